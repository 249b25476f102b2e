#!/usr/bin/env bash
# Fuzzes every target with stable Rust: LLVM coverage, libFuzzer, no sanitizer, as there is no
# unsafe code. Seeds are only read. New inputs stay in target/fuzz/found for later runs. A target
# ends after 10^8 runs or SECONDS. Prints a row per target; the full output is in
# target/fuzz/TARGET.log.
#
#   bash fuzz/run.sh [SECONDS] [TARGET...]
set -euo pipefail

cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
targets=("$@")
[ "${#targets[@]}" -gt 0 ] || mapfile -t targets < <(grep -A1 '^\[\[bin\]\]' fuzz/Cargo.toml |
    sed -n 's/^name = "\(.*\)"/\1/p')
runs=100000000

# shellcheck source=fuzz/tools.sh
. fuzz/tools.sh
build=(--sanitizer none --target-dir target/fuzz)
cargo fuzz build "${build[@]}"

echo '| target | runs | runs/s | edges | features | inputs |'
echo '|---|---|---|---|---|---|'
for target in "${targets[@]}"; do
    found=target/fuzz/found/$target log=target/fuzz/$target.log
    mkdir -p "$found"
    # Failures are written to fuzz/artifacts/TARGET, and their path is printed.
    cargo fuzz run "${build[@]}" "$target" "$found" "$(seeds "$target")" -- -runs="$runs" \
        -max_total_time="$seconds" -max_len=4096 -timeout=5 -rss_limit_mb=1024 \
        -print_final_stats=1 >"$log" 2>&1 || {
        grep -av '^#[0-9]' "$log" >&2
        exit 1
    }
    read -r count edges features inputs < <(
        sed -nE 's/^#([0-9]+)\tDONE +cov: ([0-9]+) ft: ([0-9]+) corp: ([0-9]+).*/\1 \2 \3 \4/p' "$log"
    )
    rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
    echo "| $target | $count | $rate | $edges | $features | $inputs |"
done
