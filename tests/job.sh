#!/usr/bin/env bash
# Runs the build on many machines that docs/distributed-build.md tells a reader to type, as it stands there, with four workers one after the
# other, and one of them twice: the chunks must be those of `rtad-loader build`.
#
#   bash tests/job.sh PATH_TO_LOADER
set -euo pipefail
loader=$(realpath "${1:?usage: bash tests/job.sh PATH_TO_LOADER}")
cd "$(dirname "$0")/.."
page=$PWD/docs/distributed-build.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
fail() { echo "job: $*" >&2; exit 1; }

# The commands of one step: what the page's block begins with, and what stands between two of its comments.
step() {
    awk -v wanted="$1" '/^<!-- tests\/job.sh/ { page = 1; next } page && /^```$/ { exit } page && /^# / { step += 1; next }
        page && !/^```/ && (!step || step == wanted) { print }' "$page"
}
[ "$(step 0)" = "set -euo pipefail" ] || fail "the page does not stop at what fails"
[ "$(for number in 1 2 3 4 5; do step $number | grep -c '^rtad-loader\|| rtad-loader'; done | paste -sd' ')" = "1 1 1 1 1" ] || fail "the page is not what it was"

mkdir "$work/bin" "$work/work" "$work/dumps"
ln -s "$loader" "$work/bin/rtad-loader"
export PATH="$work/bin:$PATH" STORE=$work/store N=4
cd "$work"
for store in store expected; do
    rtad-loader synth --count 500 --seed 3 | rtad-loader build --store $store --audience old_users --quiet -
    rtad-loader synth --count 300 --seed 4 | rtad-loader append --store $store --audience old_users --quiet -
    rtad-loader synth --count 40 --offset 10 | rtad-loader remove --store $store --audience old_users --quiet --tombstone -
done
for I in 0 1 2 3; do
    for file in a b; do rtad-loader synth --count 4000 --offset $((I * 3000)) >dumps/$file-$I.txt; done
done
rtad-loader build --store expected --audience old_users --quiet dumps/*.txt

bash -c "$(step 1)"
for number in 2 3 4; do
    for I in 0 1 2 2 3; do I=$I bash -c "$(step $number)"; done
done
mv work/distinct-2.json work/late
! bash -c "$(step 5)" >said 2>&1 && grep -q "made buckets 2048 to 3071 distinct" said || fail "a part that is missing: $(cat said)"
mv work/late work/distinct-2.json
bash -c "$(step 5)" >said
diff <(ls expected/old_users/chunks) <(ls store/old_users/chunks) || fail "the chunks differ"
keys() { rtad-loader inspect --store "$1" --audience old_users --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["keys"])'; }
[ "$(keys store)" = "$(keys expected)" ] || fail "the keys differ"
echo "job: $(keys store) keys by the page's commands: the chunks of a build"
