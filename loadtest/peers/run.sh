#!/usr/bin/env bash
# Peer benchmark: CPU time per request of rtad, a bare epoll loop, nginx, bare axum routes, axum
# with Redis, and Redis, on one core each. Writes the table of docs/explanation/performance.md and
# the chart docs/explanation/peers.svg. Installs nginx, redis-server and wrk if missing. Uses free
# ports.
#
#   bash loadtest/peers/run.sh                  # 10 million devices: about 8 minutes, 2 GB of memory
#   bash loadtest/peers/run.sh 1500000000       # full size; the build needs 19 bytes per device in TMPDIR
#   bash loadtest/peers/run.sh 1500000000 pace  # only rtad: fixed rate, swap and overload: see pace.py
#
# Redis holds at most the first 10 million devices, for comparable rows on any machine. Environment:
#   ROUNDS=5 ROUND_SECONDS=4    # number and length of the rounds per server
#   PACE_SECONDS=60             # length of each run at a fixed rate
#   PACE_HOURS=1                # memory test: sends the requests of this many hours in a quarter of it
#   STORE=DIR                   # keeps the audience there, or uses an existing one of as many devices
#   MEMORY=1GiB                 # memory of the build
set -euo pipefail
cd "$(dirname "$0")/../.."
devices=${1:-10000000}
[ "$(nproc)" -ge 2 ] || { echo "needs two cores: one for the server, one for the client" >&2; exit 1; }

# Debian installs nginx there.
PATH=$PATH:/usr/sbin
bash tests/setup.sh peers
python=.venv/bin/python3
cargo build --release -p rtad -p rtad-loader -p testkit --quiet
cargo build --release --manifest-path loadtest/Cargo.toml -p rtad-peers --target-dir target/loadtest \
    --quiet
programs=$PWD/target/release peers=$PWD/target/loadtest/release/rtad-peers

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
store=$(realpath -m "${STORE:-$work/store}")
if ! [ -e "$store/old_users/CURRENT" ]; then
    "$programs/rtad-loader" synth --count "$devices" |
        "$programs/rtad-loader" build --store "$store" --audience old_users --memory "${MEMORY:-1GiB}" --quiet -
fi
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$PWD/tests
if [ "${2:-}" = pace ]; then
    "$python" loadtest/peers/pace.py "$programs/rtad" "$programs/rtad-loader" "$peers" "$programs/load" \
        "$store" "$work" "$devices" "${PACE_SECONDS:-60}" "${PACE_HOURS:-0}" docs/explanation/performance.md
    exit
fi
in_redis=$((devices < 10000000 ? devices : 10000000))
"$python" loadtest/peers/main.py "$programs/rtad" "$programs/rtad-loader" \
    "$peers" "$store" "$work" "$devices" "$in_redis" "${ROUNDS:-5}" "${ROUND_SECONDS:-4}" \
    docs/explanation/performance.md docs/explanation/peers.svg
