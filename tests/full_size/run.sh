#!/usr/bin/env bash
# Builds the whole way, in release: ids made, piped, built, published, verified against themselves. No false negative, a measured
# false-positive rate within a tenth of the target, memory within a tenth over --memory at every size, and the same bytes whatever
# the memory, the threads and the order. Prints rates; asserts none. Then what a pod of 100 million keys fetches when a thousand are
# appended and when few shards change.
#
#   bash tests/full_size/run.sh               # 10 and 100 million ids; some 5 minutes
#   bash tests/full_size/run.sh 1500000000    # up to 1.5 billion md5 ids and 500 million IDFAs; an hour, 35 GB of disk under $TMPDIR
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/venv.sh
need_python_packages full_size
cargo build --release --workspace --quiet
loader=$PWD/target/release/rtad-loader
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
most=${1:-100000000}

# ids KIND COUNT SEED
ids() { "$venv/bin/python3" tests/full_size/random_ids.py "$@"; }

# build COUNT KIND NAME FLAGS…: what it reports goes to $work/NAME.json.
build() {
    local count=$1 kind=$2 name=$3
    shift 3
    ids "$kind" "$count" 0 |
        "$loader" build --store "$work/$name" --audience ids --id-kind "$kind" --json "$@" - >"$work/$name.json"
    python3 - "$work/$name.json" "$count" "$kind $*" <<'PYTHON'
import json, pathlib, sys

built, count = json.loads(pathlib.Path(sys.argv[1]).read_text()), int(sys.argv[2])
stages, mib = built["stages"], 1 << 20
assert built["keys"] == count, built
assert stages["peak_memory_bytes"] <= stages["memory_bytes"] * 1.1, stages
print(
    f"{count} ids ({sys.argv[3]}): {count / built['total_seconds'] / 1e6:.1f} million ids/s; "
    f"read {stages['read_seconds']:.1f} s, sorted {stages['sort_seconds']:.1f} s, chunks {stages['chunk_seconds']:.1f} s; "
    f"peak {stages['peak_memory_bytes'] / mib:.0f} of {stages['memory_bytes'] / mib:.0f} MiB, "
    f"{stages['spilled_bytes'] / 1e9:.1f} GB on disk; {built['size_bytes'] / count:.2f} bytes an id",
    flush=True,
)
PYTHON
}

# measured MOST_MEMORY_BYTES COMMAND…: its time and memory, which is bounded. What it writes goes to $work/output.
measured() {
    python3 - "$work/output" "$@" <<'PYTHON'
import resource, subprocess, sys, time

output, most, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
begun = time.monotonic()
with open(output, "w") as stdout:
    subprocess.run(command, stdout=stdout, stdin=None, check=True)
wall, used = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
peak = used.ru_maxrss << 10
assert peak <= most, (peak, most)
print(
    f"{command[1]}: {wall:.1f} s, CPU {used.ru_utime:.1f} + {used.ru_stime:.1f} s, peak {peak / (1 << 20):.0f} MiB",
    flush=True,
)
PYTHON
}

chunks() { (cd "$work/$1/ids/chunks" && ls); }

# The same set by any way gives the same chunks.
build 10000000 md5 small --memory 4GiB
for flags in "--memory 96MiB --threads 1" "--memory 96MiB --threads 2" "--memory 512MiB --threads 8"; do
    # shellcheck disable=SC2086
    build 10000000 md5 other $flags
    cmp <(chunks small) <(chunks other)
    rm -r "$work/other"
done
ids md5 10000000 0 | shuf --random-source="$loader" |
    "$loader" build --store "$work/other" --audience ids --memory 128MiB --quiet -
cmp <(chunks small) <(chunks other)
rm -r "$work/other" "$work/small"

for count in 10000000 100000000 1000000000 1500000000; do
    if [ "$count" -le "$most" ]; then
        rm -rf "$work/md5"
        build "$count" md5 md5 --memory 1GiB
        largest=$count
    fi
done

# What is said of it: nothing but verify holds it in memory.
place=(--store "$work/md5" --audience ids)
size=$(du -sb "$work/md5" | cut -f1)
measured $((3 << 27)) "$loader" inspect "${place[@]}" --json --plot "$work/map.png"
measured $((size * 6 / 5 + (1 << 28))) "$loader" verify "${place[@]}" --json
mkfifo "$work/ids"
ids md5 "$largest" 0 >"$work/ids" &
measured $((size * 6 / 5 + (1 << 28))) "$loader" verify "${place[@]}" --json --against "$work/ids"
python3 - "$work/output" "$largest" <<'PYTHON'
import json, pathlib, sys

verified, count = json.loads(pathlib.Path(sys.argv[1]).read_text()), int(sys.argv[2])
against, target = verified["against"], verified["target_fpr"]
assert against["checked"] == count and against["false_negatives"] == 0, against
assert abs(verified["measured_fpr"] / target - 1) < 0.1, verified
print(f"verified: {count} ids, no false negative, measured fpr {verified['measured_fpr']:.3e} of {target}", flush=True)
PYTHON
ids md5 1000 1 | "$loader" append "${place[@]}" --quiet -
measured $((1 << 29)) "$loader" build "${place[@]}" --compact
measured $((1 << 28)) "$loader" diff "${place[@]}" --json 1 2
rm -r "$work/md5"

build $((most / 3)) idfa idfa --memory 1GiB
rm -r "$work/idfa"

cargo test --release --quiet --test service sync_deltas -- --ignored --nocapture
