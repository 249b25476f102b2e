#!/usr/bin/env bash
# Builds the image by the Dockerfile as it stands, twice, and runs its programs as a pod does: as its user, in a root that cannot be
# written. Two things stand in for what registries have: bases that are made of Debian's packages, and for cargo a script that says
# how it was called and puts programs there that are built already.
#
#   bash tests/k8s/image.sh PATH_TO_RTAD PATH_TO_LOADER    # as root; installs buildah and mmdebstrap
set -euo pipefail

usage="usage: bash tests/k8s/image.sh PATH_TO_RTAD PATH_TO_LOADER"
rtad=$(realpath "${1:?$usage}")
loader=$(realpath "${2:?$usage}")
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "image: needs root: the image's user, and a root of its own" >&2; exit 1; }
wanted=()
for program in buildah mmdebstrap; do
    command -v "$program" >/dev/null || wanted+=("$program")
done
if [ ${#wanted[@]} -gt 0 ]; then
    apt-get update -qq && apt-get install -qq -y --no-install-recommends "${wanted[@]}" >/dev/null
fi
. tests/venv.sh
need_python_packages k8s

work=$(mktemp -d)
images() { buildah --root "$work/images" --runroot "$work/run" --storage-driver vfs "$@"; }
stop() {
    images umount --all >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 1' INT TERM
fail() { echo "image: $*" >&2; exit 1; }

mmdebstrap --quiet --variant=essential --include=ca-certificates bookworm "$work/base.tar"
mkdir "$work/programs"
cp "$rtad" "$work/programs/rtad"
cp "$loader" "$work/programs/rtad-loader"
strip --strip-debug "$work"/programs/*
cat >"$work/cargo" <<'SH'
#!/bin/bash
find . -type f | sed 's|^\./||' | LC_ALL=C sort >/context
echo "$PWD: cargo $*, strip $CARGO_PROFILE_RELEASE_STRIP" >/called
mkdir -p target/release && cp /programs/* target/release
SH
chmod +x "$work/cargo"
printf 'FROM scratch\nADD base.tar /\n' >"$work/Base"
printf 'FROM localhost/base\nCOPY cargo /usr/bin/cargo\nCOPY programs /programs\n' >"$work/Rust"
build() { images build --isolation chroot --quiet "$@"; }
build --tag localhost/base --file "$work/Base" "$work" >/dev/null
build --tag localhost/rust --file "$work/Rust" "$work" >/dev/null
bases=(--build-arg RUST_IMAGE=localhost/rust --build-arg BASE_IMAGE=localhost/base)

build "${bases[@]}" --target build --tag localhost/stage . >/dev/null
stage=$(images mount "$(images from localhost/stage)")
[ "$(cat "$stage/called")" = "/src: cargo build --release --locked --package rtad --package rtad-loader, strip debuginfo" ] ||
    fail "called as $(cat "$stage/called")"
RTAD=$rtad LOADER=$loader WORK=$work PATH=$venv/bin:$PATH PYTHONPATH=tests/k8s PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python3" -c '
from test_image import let_in, patterns, tracked
print(*(path for path in tracked() if let_in(path, patterns())), sep="\n")' | LC_ALL=C sort | diff - "$stage/context" ||
    fail "the tests have another idea of .dockerignore"

once=$(build --no-cache --timestamp 0 "${bases[@]}" --tag localhost/rtad .)
again=$(build --no-cache --timestamp 0 "${bases[@]}" --tag localhost/again .)
[ "$once" = "$again" ] || fail "two builds are two images"
user=$(images inspect --type image --format '{{.OCIv1.Config.User}}' localhost/rtad)
root=$(images mount "$(images from localhost/rtad)")

cat >"$work/pod.sh" <<'SH'
set -euo pipefail
root=$1 user=$2
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -o remount,bind,ro "$root"
mount -t tmpfs -o mode=777 none "$root/mnt"
inside() { chroot --userspec="$user" "$root" "$@"; }
# Not inside: its user may not write there anyway.
if touch "$root/opt/x" 2>/dev/null; then echo "the root can be written"; exit 1; fi
cp k8s/components/distributed-build/worker.sh tests/platforms/rtad.toml "$root/mnt"
for audience in old_users vip example; do
    inside bash -c 'rtad-loader synth --count 1000 >/mnt/ids'
    inside rtad-loader build --quiet --store /mnt/store --audience "$audience" /mnt/ids
done
echo /mnt/ids >"$root/mnt/inputs"
export RTAD_STORE=/mnt/store AUDIENCE=old_users ID_KIND=md5 INPUTS=/mnt/inputs WORK=/mnt/job-1 WORKERS=1 JOB_COMPLETION_INDEX=0
inside bash /mnt/worker.sh >/dev/null
inside rtad-loader list --store /mnt/store
export RTAD_LISTEN=127.0.0.1:0 RTAD_ADMIN_LISTEN=127.0.0.1:0
for store in /mnt/store https://127.0.0.1:1/none; do
    # Of its own: the last round's has the line that is waited for.
    log=$(mktemp)
    RTAD_STORE=$store chroot --userspec="$user" "$root" rtad serve --config /mnt/rtad.toml 2>"$log" &
    until grep -qs '"decision port listens"' "$log"; do sleep 0.1; kill -0 $! || { cat "$log"; exit 1; }; done
    kill $!
    wait $!
    cat "$log"
    rm "$log"
done
SH
timeout 120 unshare --mount bash "$work/pod.sh" "$root" "$user" >"$work/said" 2>&1 || fail "$(cat "$work/said")"
grep -q '"ready":true' "$work/said" || fail "it was not ready: $(cat "$work/said")"
# It has certificates to trust, or it would not have come as far.
grep -q 'Connection refused' "$work/said" || fail "nothing was asked over TLS: $(cat "$work/said")"
size=$(images images --format '{{.Size}}' localhost/rtad | head -n 1)
echo "image: $once, $size of which $(du -ch "$work"/programs/* | tail -n 1 | cut -f 1) are programs; user $user; twice the same"
