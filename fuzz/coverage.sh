#!/usr/bin/env bash
# Line coverage of each target's reader by its seeds and the inputs of earlier runs. Prints a row
# per target. Needs `rustup component add llvm-tools`.
#
#   bash fuzz/coverage.sh [TARGET...]
set -euo pipefail

cd "$(dirname "$0")/.."
# shellcheck source=fuzz/tools.sh
. fuzz/tools.sh
host=$(rustc -vV | sed -n 's/^host: //p')
llvm_cov=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-cov
[ -x "$llvm_cov" ] || {
    echo "coverage: llvm-cov is missing: run \`rustup component add llvm-tools\`" >&2
    exit 1
}

core=crates/rtad-core/src/snapshot
# Target and the files of its reader.
readers=(
    "tencent src/platform/tencent.rs src/platform/tencent"
    "ocean src/platform/ocean.rs"
    "api src/platform/api.rs"
    "custom_protobuf src/platform/custom/protobuf.rs src/platform/custom/reading.rs"
    "custom_json src/platform/custom/json.rs src/platform/custom/reading.rs"
    "chunk $core/chunk.rs $core/chunk"
    "delta $core/delta.rs $core/delta"
    "manifest $core/manifest.rs $core/json.rs"
    "current $core/current.rs"
    "snapshot $core.rs $core/overlay.rs $core/shard_index.rs"
    "config src/config.rs src/config src/serve/assemble.rs"
    "csv loader/src/input/csv.rs loader/src/input/cells.rs"
    "ndjson loader/src/input/ndjson.rs loader/src/input/lines.rs"
    "parquet loader/src/input/parquet.rs loader/src/input/parquet"
)
echo '| target | files | lines | covered |'
echo '|---|---|---|---|'
for reader in "${readers[@]}"; do
    read -r target files <<<"$reader"
    [ $# -eq 0 ] || [[ " $* " == *" $target "* ]] || continue
    found=target/fuzz/found/$target log=target/fuzz/$target.coverage.log
    # A copy, as a running fuzzer replaces inputs.
    rm -rf target/fuzz/inputs
    mkdir -p "$found"
    cp -r "$found" target/fuzz/inputs 2>/dev/null || true
    cargo fuzz coverage --sanitizer none --target-dir target/fuzz-coverage "$target" \
        target/fuzz/inputs "$(seeds "$target")" >"$log" 2>&1 || { tail -n 20 "$log" >&2; exit 1; }
    # Files of the loader are compiled in by paths with dots.
    "$llvm_cov" export --summary-only --instr-profile "fuzz/coverage/$target/coverage.profdata" \
        "target/fuzz-coverage/$host/release/$target" |
        TARGET=$target FILES=$files python3 -c '
import json, os, sys
from pathlib import Path

names = os.environ["FILES"].split()
readers = [Path(name).resolve() for name in names]
lines = covered = 0
for file in json.load(sys.stdin)["data"][0]["files"]:
    path = Path(os.path.normpath(file["filename"]))
    if any(reader in [path, *path.parents] for reader in readers):
        lines += file["summary"]["lines"]["count"]
        covered += file["summary"]["lines"]["covered"]
print("|", os.environ["TARGET"], "|", ", ".join(f"`{name}`" for name in names), end=" ")
print(f"| {lines} | {covered / lines:.0%} |")
'
done
