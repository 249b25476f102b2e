#!/usr/bin/env bash
# A soak: rtad under as much load as one connection set brings, for ten minutes, while every ten seconds another generation replaces the one
# before, and nobody scrapes. Every answer is compared. Prints the memory after each swap; fails if an answer was wrong or missing, if a swap
# did not come, or if memory grew: the highest of the last third of the samples over the highest of the middle one by more than a twentieth. The first
# is left out: allocators find their size.
# Installs wrk (Debian) if need be.
#
#   bash loadtest/soak.sh                    # ten minutes, after the build
#   bash loadtest/soak.sh 120                # so many seconds; nine swaps at least
#   bash loadtest/soak.sh 600 PATH_TO_RTAD PATH_TO_LOADER
#
# By environment: DEVICES (3000000) of each generation, none of which the next one has; EVERY (10) seconds between two.
set -euo pipefail
seconds=${1:-600} devices=${DEVICES:-3000000} every=${EVERY:-10}
rtad=${2:+$(realpath "$2")} loader=${3:+$(realpath "$3")}
cd "$(dirname "$0")/.."
if [ -z "$loader" ]; then
    cargo build --release --workspace
    rtad=$PWD/target/release/rtad loader=$PWD/target/release/rtad-loader
fi
bash tests/setup.sh loadtest
python=.venv/bin/python3

[ $((seconds / every)) -ge 9 ] || { echo "soak: $seconds s are too short: it takes nine swaps, one each $every s, to tell" >&2; exit 2; }
work=$(mktemp -d) server= load=
stop() {
    for one in $load $server; do kill "$one" 2>/dev/null || true; done
    wait || true
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 1' INT TERM
fail() { echo "soak: $*" >&2; exit 1; }

# Those who are asked for are in every generation, or in none: at this rate one of 2,000 strangers is taken for a member once in a hundred soaks.
mkdir "$work/requests"
md5s() { "$loader" synth --seed 1 --offset "$1" --count 2000 | sed 's/^/md5 /'; }
md5s 0 >"$work/known"
md5s 2000 >"$work/strangers"
"$python" loadtest/make_requests.py make --known "$work/known" --strangers "$work/strangers" --out "$work/requests"
publish() {
    { sed 's/^md5 //' "$work/known"; "$loader" synth --seed 2 --offset $(($1 * devices)) --count "$devices"; } |
        nice "$loader" build --store "$work/store" --audience old_users --fpr 1e-7 --quiet -
    "$loader" gc --store "$work/store" --audience old_users --keep 2 --min-age 0s --quiet
}
publish 1

"$rtad" serve --config loadtest/rtad.toml --store "$work/store" --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --workers 1 2>"$work/log" &
server=$!
address() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$work/log" | head -n 1; }
until [ -n "$(address decision_address)" ]; do
    kill -0 "$server" 2>/dev/null || { cat "$work/log" >&2; exit 1; }
    sleep 0.05
done
url=http://$(address decision_address) admin=$(address admin_address)
ask() {
    exec 3<>"/dev/tcp/${admin%:*}/${admin##*:}"
    printf '%s %s HTTP/1.0\r\nContent-Length: 0\r\n\r\n' "$1" "$2" >&3
    sed '1,/^\r$/d' <&3
    exec 3>&-
}
generation() { ask GET /v1/status | sed -n 's/.*"generation":\([0-9]*\).*/\1/p'; }
megabytes() { awk '/^VmRSS/ { print int($2 / 1024) }' "/proc/$server/status"; }

REQUESTS=$work/requests wrk -t1 -c64 -d"${seconds}s" --latency -s loadtest/wrk/check.lua "$url" >"$work/wrk" 2>&1 &
load=$!
memory=()
count=1 begun=$SECONDS
while [ $((SECONDS - begun + every)) -le "$seconds" ]; do
    next=$((begun + (${#memory[@]} + 1) * every))
    count=$((count + 1))
    publish "$count"
    ask POST /v1/reload >/dev/null
    now=$(generation)
    [ "$now" = "$count" ] || fail "generation $now is served after $count was published"
    while [ "$SECONDS" -lt "$next" ]; do sleep 0.2; done
    memory+=("$(megabytes)")
    echo "soak: $((SECONDS - begun)) s: generation $now, ${memory[-1]} MB" >&2
done
wait "$load" || { code=$?; cat "$work/wrk" >&2; fail "wrk ended with $code"; }
load=
# The only scrape.
ask GET /metrics >"$work/metrics"
read -r requests rate p50 p99 p999 errors wrong < <(sed -n 's/^row //p' "$work/wrk") || { cat "$work/wrk" >&2; fail "wrk said nothing"; }
highest() { printf '%s\n' "$@" | sort -n | tail -n 1; }
third=$((${#memory[@]} / 3))
middle=$(highest "${memory[@]:third:third}") last=$(highest "${memory[@]: -third}")
counted=$(sed -n 's/^rtad_requests_total{route="check_one",code="200"} //p' "$work/metrics")
echo "$requests requests, $rate a second (p50 $p50 ms, p99 $p99, p99.9 $p999), $errors errors, $wrong wrong; ${#memory[@]} swaps;" \
    "memory at most $middle MB in the middle third, $last MB in the last"
[ "$errors" = 0 ] && [ "$wrong" = 0 ] || fail "errors or wrong answers"
[ "${counted%.*}" -ge "$requests" ] || fail "rtad counted ${counted:-nothing}"
[ $((last * 20)) -le $((middle * 21)) ] || fail "memory has grown"
grep -q panicked "$work/log" && fail "rtad has panicked"
kill "$server" && wait "$server" || fail "rtad ended with $?"
server=
