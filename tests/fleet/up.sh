#!/usr/bin/env bash
# A fleet to look at: three rtad behind HAProxy on this machine, over a store of synthetic devices in a directory. Prints requests to paste. A
# pod that ends is started again, as Kubernetes does it. Ctrl-C ends all of it and removes what it has made. `make fleet` builds and runs it.
#
#   bash tests/fleet/up.sh PATH_TO_RTAD PATH_TO_LOADER
#
# By environment: DEVICES (1000000); FLEET_LISTEN (127.0.0.1:8000), where the balancer is asked; POD_1 (127.0.0.1:8081) to POD_3, where
# pods are, and POD_1_ADMIN (9091) to POD_3_ADMIN, their admin ports.
set -euo pipefail

usage="usage: bash tests/fleet/up.sh PATH_TO_RTAD PATH_TO_LOADER"
rtad=$(realpath "${1:?$usage}")
loader=$(realpath "${2:?$usage}")
cd "$(dirname "$0")/../.."
. tests/fleet/haproxy.sh
devices=${DEVICES:-1000000}
export FLEET_LISTEN=${FLEET_LISTEN:-127.0.0.1:8000}
export POD_1=${POD_1:-127.0.0.1:8081} POD_2=${POD_2:-127.0.0.1:8082} POD_3=${POD_3:-127.0.0.1:8083}
export POD_1_ADMIN=${POD_1_ADMIN:-9091} POD_2_ADMIN=${POD_2_ADMIN:-9092} POD_3_ADMIN=${POD_3_ADMIN:-9093}

work=$(mktemp -d)
balancer=
pids=()
stop() {
    trap '' INT TERM
    # Nobody asks any more.
    [ -z "$balancer" ] || kill -KILL "$balancer" 2>/dev/null || true
    for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done; done
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 0' INT TERM

"$loader" synth --count "$devices" | "$loader" build --store "$work/store" --audience old_users --quiet -
ready() {
    { exec 3<>"/dev/tcp/127.0.0.1/$1"; } 2>/dev/null || return 1
    printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3
    head -n 1 <&3 | grep -q ' 200 '
}
# start NUMBER: returns once the pod is ready; fails if it has ended before.
start() {
    local listen=POD_$1 admin=POD_$1_ADMIN
    RTAD_LISTEN=${!listen} RTAD_ADMIN_LISTEN=${!listen%:*}:${!admin} RTAD_DRAIN_TIMEOUT=8s \
        "$rtad" serve --store "$work/store" >>"$work/pod$1.log" 2>&1 &
    pids[$1]=$!
    # Or the shell would say that it was killed.
    disown
    echo $! >"$work/pod$1.pid"
    until ready "${!admin}"; do
        kill -0 "${pids[$1]}" 2>/dev/null || { tail -n 3 "$work/pod$1.log" >&2; return 1; }
        sleep 0.1
    done
}
for number in 1 2 3; do start $number || { echo "fleet: pod $number did not start" >&2; exit 1; }; done
haproxy -db -f docs/haproxy.cfg >"$work/haproxy.log" 2>&1 &
balancer=$!
until (: <"/dev/tcp/${FLEET_LISTEN%:*}/${FLEET_LISTEN##*:}") 2>/dev/null; do
    kill -0 "$balancer" 2>/dev/null || { cat "$work/haproxy.log" >&2; exit 1; }
    sleep 0.1
done

member=$("$loader" synth --count 1) stranger=$("$loader" synth --offset "$devices" --count 1)
cat <<END

Three pods serve $devices synthetic devices behind http://$FLEET_LISTEN. Paste; what comes after # is the answer:

curl http://$FLEET_LISTEN/v1/check/old_users/$member # {"member":true}
curl http://$FLEET_LISTEN/v1/check/old_users/$stranger # {"member":false}
curl http://$FLEET_LISTEN/v1/decide -d '{"device":{"imei_md5":"$stranger"}}' # {"decisions":[{"strategy":"new-users","bid":true,"reason":"not_member"}]}

End a pod, gently or not, and ask again: it is started anew, and no question goes unanswered.

kill -TERM \$(cat $work/pod1.pid)
kill -KILL \$(cat $work/pod2.pid)

Make the stranger a member; some seconds later every pod knows, and says so on its admin port:

echo $stranger | $loader append --store $work/store --audience old_users -
curl http://127.0.0.1:$POD_1_ADMIN/v1/status

The logs are $work/*.log. Ctrl-C ends it.
END
while sleep 0.5; do
    kill -0 "$balancer" 2>/dev/null || { cat "$work/haproxy.log" >&2; exit 1; }
    for number in 1 2 3; do
        kill -0 "${pids[$number]}" 2>/dev/null && continue
        echo "pod $number has ended and is started again"
        start $number || true
    done
done
