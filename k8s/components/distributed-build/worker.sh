# One worker of a build over several pods: the steps of docs/guides/distributed-build.md, each when all workers have done the one before it.
# What a step makes gets its name when it is whole; a worker that begins again goes on behind what it has made.
set -euo pipefail
umask 077
I=$JOB_COMPLETION_INDEX
mkdir -p "$WORK"
cd "$WORK"
made() { ls | grep -c "^$1-[0-9]*\.$2\$" || true; }
until_all_made() { until [ "$(made "$1" "$2")" = "$WORKERS" ]; do sleep 1; done; }
say() { echo "worker $I of $WORKERS: $*" >&2; }

# It was published, and this worker's end was not noticed.
[ ! -e published ] || exit 0
if [ "$I" = 0 ] && [ ! -e job.json ]; then
    # What jobs left that were given up: none lives for a day.
    find .. -mindepth 1 -maxdepth 1 -name 'job-*' -mmin +1440 -exec rm -rf {} +
    rtad-loader begin --store "$RTAD_STORE" --audience "$AUDIENCE" --changes changes >job.part
    mv job.part job.json
fi

if [ ! -e "keys-$I.frames" ]; then
    # Not `< <(awk …)`, whose failure would be an empty list.
    list=$(awk -v i="$I" -v n="$WORKERS" 'NF { if (count++ % n == i) print }' "$INPUTS")
    inputs=()
    [ -z "$list" ] || mapfile -t inputs <<<"$list"
    say "reads ${#inputs[@]} inputs"
    # With more workers than inputs some have nothing to read.
    if [ ${#inputs[@]} = 0 ]; then
        : >"keys-$I.part"
    else
        rtad-loader keys --frames --id-kind "$ID_KIND" --report "keys-$I.json" "${inputs[@]}" >"keys-$I.part"
    fi
    mv "keys-$I.part" "keys-$I.frames"
fi

until_all_made keys frames
until [ -e job.json ]; do sleep 1; done
if [ ! -e "distinct-$I.frames" ]; then
    say "makes its part of the keys distinct"
    cat changes keys-*.frames | rtad-loader distinct --part "$I/$WORKERS" --report "distinct-$I.json" >"distinct-$I.part"
    mv "distinct-$I.part" "distinct-$I.frames"
fi

until_all_made distinct frames
if [ ! -e "chunks-$I.json" ]; then
    total=$(cat distinct-*.json | sed 's/.*"keys":\([0-9]*\).*/\1/' | awk '{ n += $1 } END { printf "%d", n }')
    say "puts its chunks of $total keys"
    rtad-loader chunk --store "$RTAD_STORE" --job job.json --keys "$total" --frames <"distinct-$I.frames" >"chunks-$I.part"
    mv "chunks-$I.part" "chunks-$I.json"
fi

[ "$I" = 0 ] || exit 0
until_all_made chunks json
rtad-loader publish --store "$RTAD_STORE" --job job.json --json keys-*.json distinct-*.json chunks-*.json
touch published
rm -f changes ./*.frames
