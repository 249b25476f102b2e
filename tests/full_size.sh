#!/usr/bin/env bash
# Twenty million ids the whole way, in release: made, piped, built, published, verified against themselves.
# No false negative, and a measured false-positive rate within a tenth of the target. Prints rates; asserts none. Then what a pod
# of 100 million keys fetches when a thousand are appended and when few shards change.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --workspace --quiet
loader=$PWD/target/release/rtad-loader
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
count=${1:-20000000}

"$loader" synth --count "$count" | "$loader" build --store "$work/store" --audience old_users --json - > "$work/built.json"
"$loader" synth --count "$count" | "$loader" verify --store "$work/store" --audience old_users --json --against - > "$work/verified.json"
python3 - "$work" "$count" <<'PYTHON'
import json, pathlib, sys

work, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
built = json.loads((work / "built.json").read_text())
verified = json.loads((work / "verified.json").read_text())
assert built["keys"] == count, built
against, target = verified["against"], verified["target_fpr"]
assert against["checked"] == count and against["false_negatives"] == 0, against
assert abs(verified["measured_fpr"] / target - 1) < 0.1, verified
print(f"full size: {count} ids, no false negative, measured fpr {verified['measured_fpr']:.3e} of {target}")
print("built:", {key: built[key] for key in built if "second" in key or "per" in key or "memory" in key or "rss" in key})
PYTHON
cargo test --release --quiet --test sync_deltas -- --ignored --nocapture
