#!/usr/bin/env bash
# Soak test: rtad under full load for ten minutes, with a new generation every ten seconds and no
# scrapes. Every answer is verified. Prints the memory after each swap. Fails on wrong or missing
# answers, on a missing swap, and on memory growth: the maximum of the last third of the samples
# exceeds that of the middle third by over 5 %. The first third is warm-up. Installs wrk (Debian) if
# missing.
#
#   bash loadtest/soak.sh                    # ten minutes after the build
#   bash loadtest/soak.sh 120                # seconds; at least nine swaps
#   bash loadtest/soak.sh 600 PATH_TO_RTAD PATH_TO_LOADER
#
# Environment: DEVICES (3000000) of each generation, all different from the next; EVERY (10) seconds
# between generations.
set -euo pipefail
seconds=${1:-600} devices=${DEVICES:-3000000} every=${EVERY:-10}
rtad=${2:+$(realpath "$2")} loader=${3:+$(realpath "$3")}
cd "$(dirname "$0")/.."
if [ -z "$loader" ]; then
    cargo build --release -p rtad -p rtad-loader
    rtad=$PWD/target/release/rtad loader=$PWD/target/release/rtad-loader
fi
bash tests/setup.sh loadtest
python=.venv/bin/python3

[ $((seconds / every)) -ge 9 ] || { echo "soak: $seconds s are too short: expected at least nine swaps, one every $every s" >&2; exit 2; }
work=$(mktemp -d) server= load=
stop() {
    for one in $load $server; do kill "$one" 2>/dev/null || true; done
    wait || true
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 1' INT TERM
fail() { echo "soak: $*" >&2; exit 1; }

# The ids in the requests are in every generation or in none. At this fpr, one of 2,000 non-members
# is a false positive in one of a hundred runs.
mkdir "$work/requests"
md5s() { "$loader" synth --seed 1 --offset "$1" --count 2000 | sed 's/^/md5 /'; }
md5s 0 >"$work/members"
md5s 2000 >"$work/non-members"
"$python" loadtest/make_requests.py make --members "$work/members" --non-members "$work/non-members" --out "$work/requests"
publish() {
    { sed 's/^md5 //' "$work/members"; "$loader" synth --seed 2 --offset $(($1 * devices)) --count "$devices"; } |
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
request() {
    exec 3<>"/dev/tcp/${admin%:*}/${admin##*:}"
    printf '%s %s HTTP/1.0\r\nContent-Length: 0\r\n\r\n' "$1" "$2" >&3
    sed '1,/^\r$/d' <&3
    exec 3>&-
}
generation() { request GET /v1/status | sed -n 's/.*"generation":\([0-9]*\).*/\1/p'; }
megabytes() { awk '/^VmRSS/ { print int($2 / 1024) }' "/proc/$server/status"; }

REQUESTS=$work/requests wrk -t1 -c64 -d"${seconds}s" --latency -s loadtest/wrk/check.lua "$url" >"$work/wrk" 2>&1 &
load=$!
memory=()
count=1 begun=$SECONDS
while [ $((SECONDS - begun + every)) -le "$seconds" ]; do
    next=$((begun + (${#memory[@]} + 1) * every))
    count=$((count + 1))
    publish "$count"
    request POST /v1/reload >/dev/null
    now=$(generation)
    [ "$now" = "$count" ] || fail "generation $now is served after $count was published"
    while [ "$SECONDS" -lt "$next" ]; do sleep 0.2; done
    memory+=("$(megabytes)")
    echo "soak: $((SECONDS - begun)) s: generation $now, ${memory[-1]} MB" >&2
done
wait "$load" || { code=$?; cat "$work/wrk" >&2; fail "wrk ended with $code"; }
load=
# The only scrape.
request GET /metrics >"$work/metrics"
read -r requests rate p50 p99 p999 errors wrong < <(sed -n 's/^row //p' "$work/wrk") || { cat "$work/wrk" >&2; fail "wrk printed no results"; }
highest() { printf '%s\n' "$@" | sort -n | tail -n 1; }
third=$((${#memory[@]} / 3))
middle=$(highest "${memory[@]:third:third}") last=$(highest "${memory[@]: -third}")
counted=$(sed -n 's/^rtad_requests_total{route="check_one",code="200"} //p' "$work/metrics")
echo "$requests requests, $rate/s (p50 $p50 ms, p99 $p99, p99.9 $p999), $errors errors, $wrong wrong; ${#memory[@]} swaps;" \
    "memory at most $middle MB in the middle third, $last MB in the last"
[ "$errors" = 0 ] && [ "$wrong" = 0 ] || fail "errors or wrong answers"
[ "${counted%.*}" -ge "$requests" ] || fail "rtad counted ${counted:-nothing}"
[ $((last * 20)) -le $((middle * 21)) ] || fail "memory has grown"
grep -q panicked "$work/log" && fail "rtad has panicked"
kill "$server" && wait "$server" || fail "rtad ended with $?"
server=
