#!/usr/bin/env bash
# The console in a real browser: headless Chromium, driven by Playwright, reads the page of a running rtad that is under traffic, whose
# store changes and fails.
#
#   bash tests/console/run.sh PATH_TO_RTAD PATH_TO_LOADER [TEST...]           # such as test_console.Lookups
#   SCREENSHOTS=docs/img bash tests/console/run.sh PATH_TO_RTAD PATH_TO_LOADER  # takes the pictures of docs/ instead; five minutes
#
# Chromium is Debian's, installed if there is none; CHROMIUM names another.
set -euo pipefail

usage="usage: bash tests/console/run.sh PATH_TO_RTAD PATH_TO_LOADER [TEST...]"
rtad=$(realpath "${1:?$usage}")
loader=$(realpath "${2:?$usage}")
shift 2
cd "$(dirname "$0")/../.."
here=tests/console
. tests/venv.sh
need_python_packages console

install() {
    [ "$(id -u)" = 0 ] || { echo "the console's tests need $*: install it" >&2; exit 1; }
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null
}
if [ -z "${CHROMIUM:-}" ]; then
    command -v chromium >/dev/null || install chromium
    CHROMIUM=$(command -v chromium)
fi
if [ -n "${SCREENSHOTS:-}" ]; then
    # A font for the words on the button that switches to Chinese, and small files.
    [ -e /usr/share/fonts/truetype/wqy ] || install fonts-wqy-microhei
    command -v pngquant >/dev/null || install pngquant
fi

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
trap 'exit 1' INT TERM

devices=300000
[ -z "${SCREENSHOTS:-}" ] || devices=3000000
"$loader" synth --count "$devices" --id-kind imei >"$work/old_users.txt"
"$loader" build --store "$work/store" --audience old_users --id-kind imei --quiet "$work/old_users.txt" >/dev/null
# Its map has an empty block, as no sound one has.
python3 $here/holey.py "$devices" >"$work/vip.txt"
"$loader" build --store "$work/store" --audience vip --quiet "$work/vip.txt" >/dev/null

: >"$work/err"
RTAD_LISTEN=127.0.0.1:0 RTAD_ADMIN_LISTEN=127.0.0.1:0 "$rtad" serve --config $here/rtad.toml --store "$work/store" \
    >"$work/out" 2>"$work/err" &
pid=$!
until grep -q 'decision port listens' "$work/err"; do
    kill -0 "$pid" 2>/dev/null || { cat "$work/out" "$work/err" >&2; exit 1; }
    sleep 0.1
done
address() { sed -n "s|.*\"$1\":\"\([^\"]*\)\".*|\1|p" "$work/err" | head -n 1; }

[ $# -gt 0 ] || set -- test_console test_parts
failed=0
export RTAD_DECISIONS RTAD_ADMIN RTAD_LOADER=$loader RTAD_WORK=$work CHROMIUM PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here
RTAD_DECISIONS=$(address decision_address)
RTAD_ADMIN=$(address admin_address)
if [ -n "${SCREENSHOTS:-}" ]; then
    "$venv/bin/python3" $here/screenshots.py "$SCREENSHOTS" && pngquant --force --ext .png "$SCREENSHOTS"/console*.png || failed=1
else
    "$venv/bin/python3" -m unittest "$@" || failed=1
fi
kill -0 "$pid" || { echo "rtad has died" >&2; failed=1; }
if grep -q panicked "$work/err"; then
    echo "rtad has panicked" >&2
    failed=1
fi
exit "$failed"
