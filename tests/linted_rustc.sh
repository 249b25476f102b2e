#!/usr/bin/env bash
# The compiler of tests/run.py, as RUSTC_WORKSPACE_WRAPPER: compiles a crate of ours with the lints
# of clippy, and checks its documentation. Warnings are errors. `cargo clippy` and `cargo doc` find
# the same, but read all dependencies once more: an eighth of the time of CI.
set -euo pipefail

clippy-driver "$@" -D warnings

shift # The path of rustc.
options=()
while (($#)); do
    case $1 in
    --test | build_script_build | -vV | --print*) exit ;;
    --out-dir) shift ;;
    --emit=* | --json=*) ;;
    *) options+=("$1") ;;
    esac
    shift
done
pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
rustdoc "${options[@]}" -D warnings --out-dir "$pages"
