#!/usr/bin/env bash
# Runs what docs/online-writes.md tells a reader to type, as it stands there but for the ports, which are free ones, against the real
# programs: what is written is then asked of an rtad that looks at the same store.
#
#   bash tests/online_writes.sh PATH_TO_RTAD PATH_TO_LOADER
set -euo pipefail

usage="usage: bash tests/online_writes.sh PATH_TO_RTAD PATH_TO_LOADER"
rtad=$(realpath "${1:?$usage}")
loader=$(realpath "${2:?$usage}")
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d)
pids=()
stop() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 1' INT TERM
fail() { echo "online writes: $*" >&2; cat "$work"/*.err >&2 || true; exit 1; }

# The commands of the page's fenced block of this number.
block() {
    awk -v wanted="$1" '/^```sh$/ { fence += 1; next } /^```$/ { on = 0; if (fence == wanted) exit; next }
        fence == wanted { print }' docs/online-writes.md
}
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# Debian's smallest images have no curl: enough of it for the page's commands.
mkdir "$work/bin"
ln -s "$loader" "$work/bin/rtad-loader"
if ! command -v curl >/dev/null; then
    cat >"$work/bin/curl" <<'PYTHON'
#!/usr/bin/env python3
import sys, urllib.error, urllib.request
words, given = sys.argv[1:], {}
for flag in ("-X", "-H", "-d"):
    if flag in words:
        place = words.index(flag)
        given[flag] = words[place + 1]
        del words[place : place + 2]
url = next(word for word in words if not word.startswith("-"))
request = urllib.request.Request(url, given["-d"].encode() if "-d" in given else None, method=given.get("-X"))
if "-H" in given:
    request.add_header(*given["-H"].split(": ", 1))
try:
    answer = urllib.request.urlopen(request)
except urllib.error.HTTPError as error:
    answer = error
sys.stdout.write(answer.read().decode())
PYTHON
    chmod +x "$work/bin/curl"
fi
export PATH="$work/bin:$PATH"

port=$(free_port) admin=$(free_port)
mapfile -t started < <(block 1)
mapfile -t commands < <(block 2; block 3)
[ "${#started[@]}" = 2 ] && [ "${#commands[@]}" -ge 15 ] || fail "the page is not what it was"
cd "$work"
mkdir store
bash -c "${started[0]}"
RTAD_LOADER_LISTEN=127.0.0.1:$port RTAD_LOADER_ADMIN_LISTEN=127.0.0.1:$admin bash -c "exec ${started[1]}" 2>loader.err &
pids+=($!)
for _ in $(seq 200); do grep -q 'listening for writes' loader.err && break; sleep 0.1; done

cat >rtad.toml <<'TOML'
[store]
poll_interval = "100ms"
[[audience]]
name = "old_users"
required = false
[[strategy]]
name = "new-users"
exclude = ["old_users"]
TOML
RTAD_STORE=$work/store RTAD_LISTEN=127.0.0.1:0 RTAD_ADMIN_LISTEN=127.0.0.1:0 "$rtad" serve --config rtad.toml 2>rtad.err &
pids+=($!)
for _ in $(seq 200); do grep -q 'decision port listens' rtad.err && break; sleep 0.1; done
decisions=$(sed -n 's|.*"decision_address":"\([^"]*\)".*|\1|p' rtad.err | head -n 1)
[ -n "$decisions" ] || fail "rtad did not start"

eval "${commands[0]}"
# The page's comment is the answer, or a part of it; a pod may take some looks to give it.
ran=0
for command in "${commands[@]:1}"; do
    expected=
    case $command in *"  # "*) expected=${command##*  # } ;; esac
    line=$(sed "s/127.0.0.1:8070/127.0.0.1:$port/; s/127.0.0.1:8080/$decisions/" <<<"${command%  # *}")
    tries=1
    case $command in *:8080/*) tries=300 ;; esac
    for _ in $(seq "$tries"); do
        answer=$(eval "$line")
        case $answer in *"$expected"*) break ;; esac
        [ "$tries" = 1 ] || sleep 0.1
    done
    case $answer in
        "") fail "$command: no answer" ;;
        *"$expected"*) ran=$((ran + 1)) ;;
        *) fail "$command: answered $answer" ;;
    esac
done
kill "${pids[0]}"
wait "${pids[0]}" || fail "the loader did not end well"
[ -z "$(grep -i panic loader.err rtad.err)" ] || fail "somebody has panicked"
cd "$root"
echo "online writes: $ran commands were run"
