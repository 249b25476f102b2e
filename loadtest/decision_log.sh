#!/usr/bin/env bash
# Cost of the decision log on this machine: CPU time of the service per request without a log and
# with one, at several samples, and of a replay of what was logged. Installs what loadtest/run.sh
# installs.
#
#   bash loadtest/decision_log.sh                              # after a release build, 3 minutes
#   bash loadtest/decision_log.sh PATH_TO_RTAD PATH_TO_LOADER
#
# Environment (defaults in parentheses):
#   ROUNDS (3), SECONDS_EACH (5)   each round serves once per sample, in turn
#   SAMPLES (off 0 0.01 1)         `off` is a service without a log
#   CONNECTIONS (64)               of wrk
#   DELAY                          mean milliseconds between the requests of a connection
#   SERVER_CORES (1)               cores for rtad; wrk gets the others
set -euo pipefail

cd "$(dirname "$0")/.."
rtad=${1:-target/release/rtad} loader=${2:-target/release/rtad-loader}
[ -x "$rtad" ] && [ -x "$loader" ] || cargo build --release -p rtad -p rtad-loader
bash tests/setup.sh loadtest
python=.venv/bin/python3
rounds=${ROUNDS:-3} seconds=${SECONDS_EACH:-5} connections=${CONNECTIONS:-64}
read -ra samples <<<"${SAMPLES:-off 0 0.01 1}"
work=$(mktemp -d)
pid=
stop() {
    [ -z "$pid" ] || { kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; } || true
    rm -rf "$work"
}
trap stop EXIT

mapfile -t cores < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
server_cores=${SERVER_CORES:-1}
on_server=() on_load=()
if [ ${#cores[@]} -gt "$server_cores" ]; then
    list() { local IFS=,; echo "$*"; }
    on_server=(taskset -c "$(list "${cores[@]:0:server_cores}")")
    on_load=(taskset -c "$(list "${cores[@]:server_cores}")")
fi

count=50000
ids() { "$loader" synth --seed 0 --offset "$1" --count $count | sed 's/^/md5 /'; }
ids 0 >"$work/members"
ids $((20 * count)) >"$work/non-members"
"$loader" synth --seed 0 --count $((20 * count)) |
    "$loader" build --store "$work/store" --audience old_users --quiet -
export REQUESTS=$work/requests CHECK=0
mkdir "$REQUESTS"
"$python" loadtest/make_requests.py make --members "$work/members" \
    --non-members "$work/non-members" --out "$REQUESTS"
ports='from suites.testkit.ports import free_ports; print(*free_ports(2))'
read -r port admin < <(PYTHONPATH=tests "$python" -c "$ports")

# cpu PID: nanoseconds of the log's thread, and of all other threads.
cpu() {
    local log=0 others=0 task name time _
    for task in "/proc/$1/task"/*; do
        read -r name <"$task/comm"
        read -r time _ <"$task/schedstat"
        if [ "$name" = log ]; then log=$((log + time)); else others=$((others + time)); fi
    done
    echo "$log $others"
}
metric() { curl -s "http://127.0.0.1:$admin/metrics" | awk -v name="$1" 'index($1, name) == 1 { sum += $2 } END { printf "%d", sum }'; }

# serve SAMPLE: prints the sample, CPU µs per request of the log's thread and of the others, p99,
# requests, rows, dropped rows.
serve() {
    cp loadtest/rtad.toml "$work/rtad.toml"
    if [ "$1" != off ]; then
        cat >>"$work/rtad.toml" <<EOF
[log]
to = "$work/log-$1"
key_secret = "a secret of the load test"
sample = $1
max_rate = 10000000
max_age = "5s"
EOF
    fi
    RTAD_LISTEN=127.0.0.1:$port RTAD_ADMIN_LISTEN=127.0.0.1:$admin RTAD_WORKERS=$server_cores \
        "${on_server[@]}" "$rtad" serve --config "$work/rtad.toml" --store "$work/store" \
        >"$work/out" 2>"$work/rtad.log" &
    pid=$!
    until curl -sf -o /dev/null "http://127.0.0.1:$admin/readyz"; do
        kill -0 $pid || { cat "$work/rtad.log" >&2; exit 1; }
        sleep 0.05
    done
    local log others log_after others_after requests p99 rows=0 dropped=0
    read -r log others < <(cpu $pid)
    "${on_load[@]}" wrk -t1 -c"$connections" -d"${seconds}s" --latency -s loadtest/wrk/tencent.lua \
        "http://127.0.0.1:$port" >"$work/wrk"
    # The log's thread is at most a moment behind.
    sleep 0.5
    read -r log_after others_after < <(cpu $pid)
    requests=$(awk '/requests in/ { print $1 }' "$work/wrk")
    p99=$(awk '$1 == "99%" { print $2 }' "$work/wrk")
    dropped=$(metric rtad_log_dropped_rows_total)
    kill -TERM $pid
    wait $pid || true
    pid=
    if [ -d "$work/log-$1" ]; then
        # A log without files is an error of the replay.
        rows=$({ RTAD_STORE="$work/store" "$rtad" replay --config loadtest/rtad.toml --json "$work/log-$1" 2>/dev/null || true; } |
            "$python" -c 'import json, sys; print(json.loads(sys.stdin.read() or "{\"rows\": 0}")["rows"])')
    fi
    awk -v sample="$1" -v log_ns=$((log_after - log)) -v others=$((others_after - others)) \
        -v requests="$requests" -v p99="$p99" -v rows="$rows" -v dropped="$dropped" 'BEGIN {
            printf "%s %.3f %.3f %s %d %d %d\n", sample, log_ns / 1e3 / requests,
                others / 1e3 / requests, p99, requests, rows, dropped }'
}

for ((round = 0; round < rounds; round++)); do
    for sample in "${samples[@]}"; do
        serve "$sample"
    done
done | tee "$work/results" | sed 's/^/decision_log: /' >&2

"$python" - "$work/results" <<'EOF'
import statistics
import sys
from collections import defaultdict

runs = defaultdict(list)
for line in open(sys.argv[1]):
    sample, log, others, p99, requests, rows, dropped = line.split()
    runs[sample].append((float(log), float(others), p99, int(rows), int(dropped)))
print("| sample | CPU µs/request but the log's thread | more than `off` | the log's thread | p99 | rows of all rounds | dropped |")
print("|---|---|---|---|---|---|---|")
base = statistics.median(run[1] for run in runs["off"]) if "off" in runs else None
for sample, found in runs.items():
    log, others = (statistics.median(run[part] for run in found) for part in (0, 1))
    more = f"{others - base:+.2f}" if base else "-"
    rows, dropped = max(run[3] for run in found), sum(run[4] for run in found)
    print(f"| {sample} | {others:.2f} | {more} | {log:.2f} | {found[-1][2]} | {rows} | {dropped} |")
EOF
if [ -d "$work/log-1" ]; then
    du -sb "$work/log-1" | awk '{ print "bytes of the log at sample 1: " $1 }'
    RTAD_STORE="$work/store" /usr/bin/env time -f "replay: %e s, %U s user, %M KiB" \
        "$rtad" replay --config loadtest/rtad.toml --max-change 0% "$work/log-1" | head -5
fi
