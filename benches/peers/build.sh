#!/usr/bin/env bash
# Build benchmark: the same ids in a snapshot, in Redis sets, in Bloom filters in Redis bitmaps, and
# in Bloom libraries of Python. Prints ids per second of CPU time and bytes per id. Installs
# redis-server if missing; starts one on a free port without persistence.
#
#   bash benches/peers/build.sh            # a million ids
#   bash benches/peers/build.sh 5000000
set -euo pipefail
cd "$(dirname "$0")/../.."
bash tests/setup.sh peers
cargo build --release -p rtad-loader --quiet
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PYTHONPATH=tests .venv/bin/python3 benches/peers/build.py target/release/rtad-loader "$work" "${1:-1000000}"
