#!/usr/bin/env bash
# `make dist`: everything that a release ships, in target/dist. Two runs of one commit give the same
# bytes, in any folder. As root: the image has files of several users.
set -euo pipefail
cd -P "$(dirname "$0")/.."
bash tests/setup.sh dist
export PATH=$PWD/target/tools/bin:$PATH
# shellcheck source=packaging/env.sh
. packaging/env.sh

programs=(rtad rtad-loader rtad-writer)
pkgid=$(cargo pkgid --package rtad)
version=${pkgid##*[#@]}
# The checkout as a URL.
checkout=${pkgid%%#*} checkout=${checkout#path+}
triple=$(rustc --print host-tuple)
name=rtad-$version-$triple
# Installed files as below /usr, and those of /etc; cargo-deb reads them by this path.
stage=$PWD/target/stage
debug=$PWD/target/stage-debug
# Renamed when complete.
out=$PWD/target/dist.new
rm -rf "$stage" "$debug" "$out"
mkdir -p "$stage" "$debug" "$out"
if [ -n "$(git status --porcelain)" ]; then
    echo "dist: the checkout has changes: the artifacts are not those of $(git rev-parse HEAD)" >&2
fi

# With the list of dependencies inside, which `cargo audit bin` reads.
build_programs() {
    cargo auditable build --release --locked "${programs[@]/#/--package=}"
    local program built id
    mkdir -p "$stage/bin"
    for program in "${programs[@]}"; do
        built=$CARGO_TARGET_DIR/release/$program
        strip --strip-all -o "$stage/bin/$program" "$built"
        # Debuggers look them up by the id of the build.
        id=$(readelf --notes "$built" | sed -n 's/^ *Build ID: //p')
        mkdir -p "$debug/${id:0:2}"
        objcopy --only-keep-debug --compress-debug-sections=zlib "$built" \
            "$debug/${id:0:2}/${id:2}.debug"
        chmod 644 "$debug/${id:0:2}/${id:2}.debug"
    done
}

# Man pages, completions, units, configuration and documents.
stage_files() {
    local share=$stage/share program
    mkdir -p "$share"/{man/man1,bash-completion/completions,zsh/vendor-completions} \
        "$share"/{fish/vendor_completions.d,doc/rtad} "$stage"/{lib/systemd/system,etc}
    for program in "${programs[@]}"; do
        "$stage/bin/$program" man "$share/man/man1"
        "$stage/bin/$program" completions bash >"$share/bash-completion/completions/$program"
        "$stage/bin/$program" completions zsh >"$share/zsh/vendor-completions/_$program"
        "$stage/bin/$program" completions fish >"$share/fish/vendor_completions.d/$program.fish"
    done
    gzip --no-name --best "$share"/man/man1/*
    cp packaging/systemd/* "$stage/lib/systemd/system"
    cp -r packaging/etc "$stage/etc/rtad"
    cp LICENSE README.md CHANGELOG.md docs/guides/install.md "$share/doc/rtad"
    python3 k8s/components/monitoring/make_alerts.py >"$share/doc/rtad/rtad-alerts.yaml"
    cargo about generate --workspace --frozen --fail --target "$triple" \
        --config packaging/about.toml --output-file "$share/doc/rtad/licenses.txt" \
        packaging/about.hbs
    cp "$share/doc/rtad/licenses.txt" "$out/rtad-$version-licenses.txt"
}

# A bill of materials for each program. The tool writes one beside each manifest, with the path of
# the checkout in it, and with the name of the first package if the folder has another name.
write_sboms() {
    local program file
    cargo cyclonedx --quiet --format json --spec-version 1.5 --target "$triple"
    for program in "${programs[@]}"; do
        file=$(git ls-files --others --exclude-standard | grep "\(^\|/\)$program\.cdx\.json$")
        sed "s|$checkout#rtad@|$checkout#|g; s|$checkout|file:///rtad|g" "$file" \
            >"$out/$program-$version.cdx.json"
    done
    git ls-files --others --exclude-standard -z '*.cdx.json' | xargs -0 rm -f
}

# pack FOLDER NAME: a tarball of the folder under this name, on stdout.
pack() {
    tar --create --directory "$1" --transform "s|^\.|$2|" --format gnu --sort name --owner 0 \
        --group 0 --numeric-owner --mode u+rw,go+r-w,+X --mtime "@$SOURCE_DATE_EPOCH" .
}

write_tarballs() {
    pack "$stage" "$name" | gzip --no-name --best >"$out/$name.tar.gz"
    # The folder that debuggers know below /usr/lib/debug.
    pack "$debug" .build-id | gzip --no-name --best >"$out/$name-debug.tar.gz"
}

write_deb() {
    cargo deb --package rtad --no-build --no-strip --locked --quiet --output "$out"
}

# The last stage of the Dockerfile with the programs from above, on a base of Debian's packages.
# Without a container engine and without a registry.
write_image() {
    local work layout
    work=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf '$work'" EXIT
    layout=$work/layout
    mkdir -p "$work"/{src/target/release,etc/ssl/certs}
    cp "$stage"/bin/* "$work/src/target/release"
    install -m 644 LICENSE "$work/src"
    mmdebstrap --quiet --variant=essential --include=ca-certificates \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        bookworm "$work/base.tar"
    tar --extract --file "$work/base.tar" --directory "$work" ./etc/ssl/certs/ca-certificates.crt
    printf 'FROM scratch\nADD base.tar /\n' >"$work/Base"
    {
        echo 'ARG BASE_IMAGE'
        sed -n '/^FROM ${BASE_IMAGE}$/,$p' Dockerfile | sed 's/--from=build //'
    } >"$work/Programs"
    images() { buildah --root "$work/images" --runroot "$work/run" --storage-driver vfs "$@"; }
    build() { images build --quiet --isolation chroot --timestamp "$SOURCE_DATE_EPOCH" "$@"; }
    build --tag localhost/base --file "$work/Base" "$work" >/dev/null
    build --build-arg BASE_IMAGE=localhost/base --tag "localhost/rtad:$version" \
        --file "$work/Programs" "$work" >/dev/null
    # The whole name: `podman load` gives it to the image.
    images push --quiet "localhost/rtad:$version" "oci:$layout:localhost/rtad:$version"
    pack "$layout" . >"$out/$name-image.tar"
    rm -rf "$work"
}

# For every Python from 3.11 on. maturin takes the times of the archive from SOURCE_DATE_EPOCH.
write_wheel() {
    .venv/bin/python3 -m maturin build --quiet --release --locked --strip \
        --manifest-path python/Cargo.toml --out "$out"
}

build_programs
stage_files
write_sboms
write_tarballs
write_deb
write_image
write_wheel

(cd "$out" && sha256sum -- * >SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS)
sync --file-system "$out"
rm -rf target/dist
mv "$out" target/dist
wc --bytes target/dist/*
