#!/usr/bin/env bash
# Fuzzes every target with stable Rust: LLVM coverage, libFuzzer, no sanitizer, as there is no
# unsafe code. Seeds are only read. New inputs stay in target/fuzz/found for later runs.
#
#   bash fuzz/run.sh [SECONDS] [TARGET...]
set -euo pipefail

cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
targets=("$@")
[ "${#targets[@]}" -gt 0 ] || targets=(tencent ocean api custom_protobuf custom_json ndjson parquet)
version=0.13.2

export PATH=$PWD/target/tools/bin:$PATH
if [ "$(cargo fuzz --version 2>/dev/null)" != "cargo-fuzz $version" ]; then
    cargo install --quiet --locked --root target/tools "cargo-fuzz@$version"
fi
bash tests/setup.sh fuzz

for target in "${targets[@]}"; do
    echo "== $target =="
    found=target/fuzz/found/$target
    mkdir -p "$found"
    case $target in
        custom_protobuf) seeds=ocean ;;
        custom_json) seeds=api ;;
        *) seeds=$target ;;
    esac
    # Failures are written to fuzz/artifacts/TARGET, and their path is printed.
    cargo fuzz run --sanitizer none --target-dir target/fuzz "$target" "$found" "fuzz/corpus/$seeds" -- \
        -max_total_time="$seconds" -max_len=4096 -timeout=5 -rss_limit_mb=1024 -print_final_stats=1 2>&1 |
        grep -v -e '^#[0-9]*.*\(NEW\|REDUCE\|pulse\|RELOAD\)' -e '# Uses:'
done
