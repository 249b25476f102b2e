#!/usr/bin/env bash
# The same ids into a snapshot, and into what is used instead: Redis sets, Bloom filters in Redis bitmaps, Bloom libraries of Python.
# Prints a table of ids per second of CPU time and bytes per id. Installs redis-server if it is not there and it may; starts one on a
# free port, without a disk, and stops it.
#
#   bash benches/peers/build.sh            # a million ids
#   bash benches/peers/build.sh 5000000
set -euo pipefail
cd "$(dirname "$0")/../.."
bash tests/setup.sh peers
cargo build --release --workspace --quiet
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PYTHONPATH=tests .venv/bin/python3 benches/peers/build.py target/release/rtad-loader "$work" "${1:-1000000}"
