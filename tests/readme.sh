#!/usr/bin/env bash
# Runs what README.md tells a newcomer to type, as it stands there but for the ports, which are free ones.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

# The commands of the fenced block under a heading.
block() { awk -v heading="$1" '$0 == heading { on = 1 } on && /^```$/ { exit } on && fenced { print } on && /^```sh$/ { fenced = 1 }' README.md; }
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
fail() { echo "readme: $*" >&2; exit 1; }

# `make test` runs this script, so it is only looked at; `make demo` is built and run with fewer devices in tests/cli.rs.
[ "$(block '## Two commands' | cut -d'#' -f1 | sed 's/ *$//')" = $'make demo\nmake test' ] || fail "the two commands are not what they were"

# Debian's smallest images have no curl; README's questions are asked with it.
command -v curl > /dev/null || { apt-get update -qq && apt-get install -qq -y curl > /dev/null; } || fail "needs curl"

work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

# The built programs are taken from the test build, which `make test` has just made.
cargo build --workspace --quiet
mkdir -p "$work/target"
ln -s "$root/target/debug" "$work/target/release"
printf '%s\n' 8d3ebd3654fb46a2832296669cf1b536 83e9158a4fb54c0e1ef0b238639a23ae > "$work/ids.txt"

port=$(free_port) admin=$(free_port)
mapfile -t commands < <(block '## Your own list, in three commands')
[ "${#commands[@]}" = 3 ] || fail "expected three commands, found ${#commands[@]}"
[ "${commands[0]}" = "cargo build --release --workspace" ] || fail "the first command builds"
cd "$work"
bash -c "${commands[1]}"
RTAD_LISTEN=127.0.0.1:$port RTAD_ADMIN_LISTEN=127.0.0.1:$admin bash -c "exec ${commands[2]}" 2> server.log &
server=$!
for _ in $(seq 100); do curl -fs "http://127.0.0.1:$admin/readyz" > /dev/null && break; sleep 0.1; done

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
