#!/usr/bin/env bash
# The same ids into a snapshot, and into what is used instead: Redis sets, Bloom filters in Redis bitmaps, Bloom libraries of Python.
# Prints a table of ids per second of CPU time and bytes per id. Installs redis-server if it is not there and it may; starts one on a
# free port, without a disk, and stops it.
#
#   bash benches/peers/build.sh            # a million ids
#   bash benches/peers/build.sh 5000000
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/venv.sh
need_python_packages benches/peers
if ! command -v redis-server >/dev/null; then
    [ "$(id -u)" = 0 ] || { echo "install redis-server" >&2; exit 1; }
    # Not started by its package: what runs here is started here.
    apt-get update -qq && RUNLEVEL=1 apt-get install -qq -y redis-server >/dev/null
fi
cargo build --release --workspace --quiet
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$venv/bin/python3" benches/peers/build.py target/release/rtad-loader "$work" "${1:-1000000}"
