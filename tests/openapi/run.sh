#!/usr/bin/env bash
# Holds docs/openapi.yaml against a running rtad: schemathesis asks both ports what the file allows and what it forbids,
# and fails on any answer that the file does not describe.
#
#   bash tests/openapi/run.sh PATH_TO_RTAD_BINARY
set -euo pipefail

rtad=$(realpath "${1:?usage: bash tests/openapi/run.sh PATH_TO_RTAD_BINARY}")
cd "$(dirname "$0")/../.."
spec=$(realpath "${OPENAPI:-docs/openapi.yaml}")
config=$PWD/tests/openapi/schemathesis.toml
. tests/venv.sh
need_python_packages openapi

work=$(mktemp -d)
pid=
stop() {
    if [ -n "$pid" ]; then
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap stop EXIT

"$rtad" demo --devices 20000 --dir "$work/store" --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 \
    >"$work/out" 2>"$work/err" &
pid=$!
until grep -q '^Ctrl-C' "$work/out"; do
    kill -0 "$pid" 2>/dev/null || { cat "$work/err" >&2; exit 1; }
    sleep 0.1
done
address() { sed -n "s|^curl http://\([^/]*\)/$1.*|\1|p" "$work/out" | head -n 1; }

failed=0
check() {
    echo "== $1 port =="
    # It leaves a cache where it runs.
    (cd "$work" && "$venv/bin/schemathesis" --config-file "$config" run "$spec" \
        --include-tag "$1" --url "http://$2" --seed 1) || failed=1
}
check decisions "$(address v1/decide)"
check admin "$(address v1/status)"
kill -0 "$pid" || { echo "rtad has died" >&2; cat "$work/err" >&2; failed=1; }
exit "$failed"
