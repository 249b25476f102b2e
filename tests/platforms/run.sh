#!/usr/bin/env bash
# The platforms' protocols with a real other side: stubs that Google's compiler makes of proto/, Python's own HTTP client, and
# bytes made by hand ask a running rtad over a store that the loader has built.
#
#   bash tests/platforms/run.sh PATH_TO_RTAD PATH_TO_LOADER [TEST...]    # such as test_tencent.Golden
set -euo pipefail

usage="usage: bash tests/platforms/run.sh PATH_TO_RTAD PATH_TO_LOADER [TEST...]"
rtad=$(realpath "${1:?$usage}")
loader=$(realpath "${2:?$usage}")
shift 2
cd "$(dirname "$0")/../.."
. tests/venv.sh
need_python_packages platforms

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

mkdir "$work/stubs"
"$venv/bin/python3" -m grpc_tools.protoc -Iproto --python_out="$work/stubs" proto/tencent.proto proto/ocean.proto

here=tests/platforms
"$venv/bin/python3" $here/devices.py "$work"
columns=$(head -n 1 "$work/old_users.csv" | tr -d '\r' | tr , ' ')
for audience in old_users vip example; do
    # shellcheck disable=SC2046
    "$loader" build --store "$work/store" --audience $audience --quiet --format csv \
        $(printf -- '--column %s=%s ' $(for kind in $columns; do echo "$kind $kind"; done)) "$work/$audience.csv" >/dev/null
done

# There before the loop below looks.
: >"$work/err"
RTAD_LISTEN=127.0.0.1:0 RTAD_ADMIN_LISTEN=127.0.0.1:0 "$rtad" serve --config $here/rtad.toml --store "$work/store" \
    >"$work/out" 2>"$work/err" &
pid=$!
until grep -q 'decision port listens' "$work/err"; do
    kill -0 "$pid" 2>/dev/null || { cat "$work/out" "$work/err" >&2; exit 1; }
    sleep 0.1
done
address() { sed -n "s|.*\"$1\":\"\([^\"]*\)\".*|\1|p" "$work/err" | head -n 1; }

failed=0
RTAD_DECISIONS=$(address decision_address) RTAD_ADMIN=$(address admin_address) PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPATH=$work/stubs:$here "$venv/bin/python3" $here/main.py "$@" || failed=1

# The commands of docs/platforms.md, but for the address, the path and where protoc is.
documented() {
    awk -v wanted="$1" '/^## Integrating/ { on = 1 } on && /^ *```sh$/ { fence += 1; next } /^ *```$/ { if (on && fence == wanted) exit; next }
        on && fence == wanted { print }' docs/platforms.md |
        sed "s|POD:8080/rta/tencent|$(address decision_address)/rta/tencent-example|; s|\bprotoc\b|'$venv/bin/python3' -m grpc_tools.protoc|"
}
if ! command -v curl >/dev/null; then
    echo "no curl: the commands of docs/platforms.md were not run"
else
    ping=$(documented 1)
    [ "$(bash -c "${ping%#*}" | xargs)" = "$(xargs <<<"${ping##*#}")" ] || { echo "docs/platforms.md: the ping" >&2; failed=1; }
    bash -c "$(documented 2)" | grep -q '^code: [01]$' || { echo "docs/platforms.md: the request by hand" >&2; failed=1; }
fi
kill -0 "$pid" || { echo "rtad has died" >&2; failed=1; }
if grep -q panicked "$work/err"; then
    echo "rtad has panicked" >&2
    failed=1
fi
[ "$failed" = 0 ] || grep -v '"level":"INFO"' "$work/err" >&2 || true
exit "$failed"
