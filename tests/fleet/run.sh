#!/usr/bin/env bash
# A fleet of three rtad behind HAProxy, all reading one S3 store, while somebody asks without a pause and compares every answer: pods are
# restarted and killed, generations published, the store is cut off, broken configs are pushed. No request may fail but those that
# a killed pod held, and no answer may be wrong. The balancer's config is docs/haproxy.cfg. Then the fleet of `make fleet`, as a newcomer
# meets it. HAProxy is installed if it is not there and it may be.
#
#   bash tests/stores/run.sh bash tests/fleet/run.sh [--rate N] [PATH_TO_RTAD PATH_TO_LOADER PATH_TO_PEERS]
#
# --rate is in requests a second: 1,000 if it is not given. Without programs, release ones are built. TABLE=docs/operations.md in the
# environment writes the table there.
set -euo pipefail

rate=1000
if [ "${1:-}" = --rate ]; then
    rate=$2
    shift 2
fi
programs=("$@")
for number in "${!programs[@]}"; do programs[number]=$(realpath "${programs[number]}"); done
cd "$(dirname "$0")/../.."
[ -n "${RTAD_TEST_S3:-}" ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2; exit 2; }
if [ ${#programs[@]} = 0 ]; then
    cargo build --release --workspace --quiet
    programs=("$PWD"/target/release/{rtad,rtad-loader,rtad-peers})
fi
. tests/fleet/haproxy.sh
. tests/venv.sh
# protoc and Google's protobuf are those of the platforms' tests.
need_python_packages platforms

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
"$venv/bin/python3" -m grpc_tools.protoc -Iproto --python_out="$work" proto/tencent.proto

export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$work
"$venv/bin/python3" tests/fleet/newcomer.py "${programs[@]:0:2}"
"$venv/bin/python3" tests/fleet/main.py "${programs[@]}" "$work" "$rate"
