#!/usr/bin/env bash
# rtad beside what it stands on and what it stands in for, on one core each, in one run: a bare epoll loop, nginx, bare axum routes;
# axum with Redis behind it, Redis alone. Writes the table of docs/explanation/performance.md and the chart docs/explanation/peers.svg: CPU time per request.
# Installs nginx, redis-server and wrk if they are not there and it may; starts what it measures on free ports, and stops it.
#
#   bash loadtest/peers/run.sh               # 10 million devices: some 8 minutes, 2 GB of memory
#   bash loadtest/peers/run.sh 1500000000    # the pool that rtad is for; building it takes 19 bytes of disk a device in TMPDIR
#   bash loadtest/peers/run.sh 1500000000 pace    # rtad alone: at a fixed rate, through a swap, and overloaded: see pace.py
#
# Redis gets the first 10 million devices at most, which is what makes its rows comparable on machines of any size. In the environment:
#   ROUNDS=5 ROUND_SECONDS=4    # each server is measured so often, in turn, for so long
#   PACE_SECONDS=60             # of each of the runs at a fixed rate
#   PACE_HOURS=1                # as many requests as come in so many hours: is memory flat after them? Takes a quarter as long
#   STORE=DIR                   # keeps the audience there, and takes it from there if it is: of as many devices
#   MEMORY=1GiB                 # of the build
set -euo pipefail
cd "$(dirname "$0")/../.."
devices=${1:-10000000}
[ "$(nproc)" -ge 2 ] || { echo "needs two cores: one to answer, one to ask" >&2; exit 1; }

# Where nginx is, on Debian.
PATH=$PATH:/usr/sbin
bash tests/setup.sh peers
python=.venv/bin/python3
cargo build --release --workspace --quiet
programs=$PWD/target/release

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
store=$(realpath -m "${STORE:-$work/store}")
if ! [ -e "$store/old_users/CURRENT" ]; then
    "$programs/rtad-loader" synth --count "$devices" |
        "$programs/rtad-loader" build --store "$store" --audience old_users --memory "${MEMORY:-1GiB}" --quiet -
fi
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$PWD/tests
if [ "${2:-}" = pace ]; then
    "$python" loadtest/peers/pace.py "$programs/rtad" "$programs/rtad-loader" "$programs/rtad-peers" "$store" "$work" \
        "$devices" "${PACE_SECONDS:-60}" "${PACE_HOURS:-0}" docs/explanation/performance.md
    exit
fi
in_redis=$((devices < 10000000 ? devices : 10000000))
"$python" loadtest/peers/main.py "$programs/rtad" "$programs/rtad-loader" \
    "$programs/rtad-peers" "$store" "$work" "$devices" "$in_redis" "${ROUNDS:-5}" "${ROUND_SECONDS:-4}" \
    docs/explanation/performance.md docs/explanation/peers.svg
