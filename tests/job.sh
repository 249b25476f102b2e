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

# The commands of one step: what stands between two comments of the page's block.
step() {
    awk -v wanted="$1" '/^<!-- tests\/job.sh/ { page = 1 } page && /^```$/ { exit } page && /^# / { step += 1; next }
        page && step == wanted { print }' "$page"
}
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

bash -euc "$(step 1)"
for number in 2 3 4; do
    for I in 0 1 2 2 3; do I=$I bash -euo pipefail -c "$(step $number)"; done
done
said=$(bash -euc "$(step 5)")
diff <(ls expected/old_users/chunks) <(ls store/old_users/chunks) || fail "the chunks differ"
keys() { rtad-loader inspect --store "$1" --audience old_users --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["keys"])'; }
[ "$(keys store)" = "$(keys expected)" ] || fail "the keys differ"
echo "job: $(keys store) keys by the page's commands: the chunks of a build"
