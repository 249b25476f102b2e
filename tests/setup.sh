#!/usr/bin/env bash
# Installs the tools of tests, load tests, benchmarks and releases: Debian packages, Python packages
# into .venv, Azurite and commands of cargo into target/tools. Anything already there is left alone,
# so a second run takes a moment.
#
#   bash tests/setup.sh [GROUP...]
#
# Groups: test (the default), docs, long, dist, deny, fleet, loadtest, events, s3, lint, fuzz,
# screenshots.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=() requirements=() commands=() azurite=
# need PROGRAM [PACKAGE]
need() { PATH=$PATH:/usr/sbin command -v "$1" >/dev/null || packages+=("${2:-$1}"); }
for group in "${@:-test}"; do
    case $group in
        test)
            need curl
            need faketime
            need haproxy
            need npm
            need promtool prometheus
            need systemd-analyze systemd
            need wrk
            [ -n "${CHROMIUM:-}" ] || need chromium-headless-shell
            requirements+=(tests/requirements.txt tests/requirements-docs.txt)
            azurite=target/tools/azurite
            ;;
        docs) requirements+=(tests/requirements-docs.txt) ;;
        long)
            need buildah
            need docker-registry
            need mmdebstrap
            need podman
            need skopeo
            java -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])' ||
                packages+=(openjdk-17-jre-headless)
            requirements+=(tests/requirements-long.txt)
            ;;
        dist)
            need buildah
            need dpkg-shlibdeps dpkg-dev
            need mmdebstrap
            need strip binutils
            commands+=(
                "cargo-about@0.9.3 --features=cli"
                cargo-auditable@0.7.7
                cargo-cyclonedx@0.5.9
                cargo-deb@3.8.0
            )
            requirements+=(packaging/requirements.txt)
            ;;
        deny) commands+=(cargo-deny@0.20.2) ;;
        fleet) need haproxy ;;
        loadtest)
            need wrk
            requirements+=(tests/requirements.txt loadtest/requirements.txt)
            ;;
        events) need wrk ;;
        lint | s3) requirements+=(tests/requirements.txt) ;;
        fuzz)
            # libFuzzer is C++.
            need c++ g++
            ;;
        screenshots)
            need pngquant
            # For the button that switches to Chinese.
            [ -e /usr/share/fonts/truetype/wqy ] || packages+=(fonts-wqy-microhei)
            ;;
        *)
            sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2
            exit 2
            ;;
    esac
done

if [ ${#requirements[@]} -gt 0 ] && ! .venv/bin/python3 -c 'import pip' 2>/dev/null; then
    # Debian's python3 comes without ensurepip.
    python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)
fi
if [ ${#packages[@]} -gt 0 ]; then
    [ "$(id -u)" = 0 ] || { echo "setup: install ${packages[*]}" >&2; exit 1; }
    apt-get update -qq
    # RUNLEVEL: packages do not start their servers; tests start their own.
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 \
        install -qq -y --no-install-recommends "${packages[@]}" >/dev/null
fi

for wanted in "${requirements[@]}"; do
    installed=.venv/${wanted//\//-}
    if cmp -s "$wanted" "$installed"; then continue; fi
    .venv/bin/python3 -c 'import pip' 2>/dev/null || python3 -m venv --clear .venv
    # Not bin/pip, which names the path of its creation: a checkout may have been moved or copied.
    # Most modules are never imported: compiling them took a third of the installation.
    .venv/bin/python3 -m pip install --quiet --disable-pip-version-check --no-compile \
        --requirement "$wanted"
    cp "$wanted" "$installed"
done

if [ -n "$azurite" ] && ! cmp -s tests/azurite/package-lock.json "$azurite/installed"; then
    mkdir -p "$azurite"
    cp tests/azurite/package.json tests/azurite/package-lock.json "$azurite"
    npm ci --prefix "$azurite" --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null || {
        echo "setup: npm cannot install Azurite; without it the stores suite fails for Azure" >&2
        exit 1
    }
    cp tests/azurite/package-lock.json "$azurite/installed"
fi

# A word of the rest is an option of the installation.
for wanted in "${commands[@]}"; do
    read -ra words <<<"$wanted"
    grep -qs "^\"${words[0]/@/ } " target/tools/.crates.toml && continue
    # Link-time optimization would cost more than it saves.
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        CARGO_TARGET_DIR=target/tools/build \
        cargo install --quiet --locked --root target/tools "${words[@]}"
done
rm -rf target/tools/build
