#!/usr/bin/env bash
# Runs what README.md tells a newcomer to type, as it stands there but for the ports, which are free ones.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

# The commands of a heading's fenced block; of its second one, given 2.
block() {
    awk -v heading="$1" -v wanted="${2:-1}" '
        $0 == heading { on = 1; next } on && /^## / { exit }
        on && /^```sh$/ { fence += 1; next } /^```$/ { if (on && fence == wanted) exit; next }
        on && fence == wanted { print }' README.md
}
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
fail() { echo "readme: $*" >&2; exit 1; }

# `make test` runs this script, so it is only looked at; `make demo` is built and run with fewer devices in tests/service/cli.
[ "$(block '## Two commands' | cut -d'#' -f1 | sed 's/ *$//')" = $'make demo\nmake test' ] || fail "the two commands are not what they were"

work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

# The built programs are taken from the test build, which `make test` has just made.
cargo build --workspace --quiet
mkdir -p "$work/target"
ln -s "$root/target/debug" "$work/target/release"

# Debian's smallest images have no curl: enough of it for README's questions.
if ! command -v curl > /dev/null; then
    mkdir "$work/bin"
    cat > "$work/bin/curl" <<'PYTHON'
#!/usr/bin/env python3
import sys, urllib.request
words = [word for word in sys.argv[1:] if word not in ("-s", "-fs")]
data = words.pop(words.index("-d") + 1).encode() if "-d" in words else None
url = next(word for word in words if word != "-d")
sys.stdout.write(urllib.request.urlopen(url, data).read().decode())
PYTHON
    chmod +x "$work/bin/curl"
    export PATH="$work/bin:$PATH"
fi

port=$(free_port) admin=$(free_port)
own='## Your own list, in three commands'
mapfile -t commands < <(block "$own" 2)
[ "${#commands[@]}" = 3 ] || fail "expected three commands, found ${#commands[@]}"
[ "${commands[0]}" = "cargo build --release --workspace" ] || fail "the first command builds"
ids=$(block "$own" 1)
cd "$work"
bash -c "$ids"
bash -c "${commands[1]}"
RTAD_LISTEN=127.0.0.1:$port RTAD_ADMIN_LISTEN=127.0.0.1:$admin bash -c "exec ${commands[2]}" 2> server.log &
server=$!
for _ in $(seq 100); do curl -fs "http://127.0.0.1:$admin/readyz" > /dev/null && break; sleep 0.1; done

asked='## Let a platform ask'
bash -c "$(cd "$root" && block "$asked" 1)"
mapfile -t commands < <(cd "$root" && block "$asked" 2)
[ "${#commands[@]}" = 2 ] || fail "expected two commands about platforms, found ${#commands[@]}"
bash -c "${commands[0]}" > /dev/null
answer=$(bash -c "${commands[1]}")
grep -q '^No bid for T1001, because' <<< "$answer" || fail "explain said: $answer"

cd "$root"
mapfile -t questions < <(block '## Ask it')
[ "${#questions[@]}" -ge 3 ] || fail "expected at least three questions"
for question in "${questions[@]}"; do
    expected=${question##*# }
    answer=$(bash -c "$(sed "s/:8080/:$port/; s/:9090/:$admin/" <<< "${question%#*}")")
    [ "$answer" = "$expected" ] || fail "$question answered $answer"
done
kill "$server"
wait "$server" || fail "the server did not end well"
server=
echo "readme: every command was run"
