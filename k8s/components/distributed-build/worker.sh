# Worker of a distributed build: the steps of docs/guides/distributed-build.md, each after all
# workers have finished the previous one. Outputs are renamed when complete; a restarted worker
# skips them.
set -euo pipefail
umask 077
I=$JOB_COMPLETION_INDEX
mkdir -p "$WORK"
cd "$WORK"
made() { ls | grep -c "^$1-[0-9]*\.$2\$" || true; }
until_all_made() { until [ "$(made "$1" "$2")" = "$WORKERS" ]; do sleep 1; done; }
log() { echo "worker $I of $WORKERS: $*" >&2; }

# Already published: this worker was restarted after its end.
[ ! -e published ] || exit 0
if [ "$I" = 0 ] && [ ! -e job.json ]; then
    # Remove the files of abandoned jobs: no job runs for a day.
    find .. -mindepth 1 -maxdepth 1 -name 'job-*' -mmin +1440 -exec rm -rf {} +
    rtad-loader begin --store "$RTAD_STORE" --audience "$AUDIENCE" --changes changes >job.part
    mv job.part job.json
fi

if [ ! -e "keys-$I.frames" ]; then
    # Not `< <(awk …)`: its failure would look like an empty list.
    list=$(awk -v i="$I" -v n="$WORKERS" 'NF { if (count++ % n == i) print }' "$INPUTS")
    inputs=()
    [ -z "$list" ] || mapfile -t inputs <<<"$list"
    log "reads ${#inputs[@]} inputs"
    # With more workers than inputs, some have none.
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
    log "makes its part of the keys distinct"
    cat changes keys-*.frames | rtad-loader distinct --part "$I/$WORKERS" --report "distinct-$I.json" >"distinct-$I.part"
    mv "distinct-$I.part" "distinct-$I.frames"
fi

until_all_made distinct frames
if [ ! -e "chunks-$I.json" ]; then
    total=$(cat distinct-*.json | sed 's/.*"keys":\([0-9]*\).*/\1/' | awk '{ n += $1 } END { printf "%d", n }')
    log "puts its chunks of $total keys"
    rtad-loader chunk --store "$RTAD_STORE" --job job.json --keys "$total" --frames <"distinct-$I.frames" >"chunks-$I.part"
    mv "chunks-$I.part" "chunks-$I.json"
fi

[ "$I" = 0 ] || exit 0
until_all_made chunks json
rtad-loader publish --store "$RTAD_STORE" --job job.json --json keys-*.json distinct-*.json chunks-*.json
touch published
rm -f changes ./*.frames
