#!/usr/bin/env bash
# Ten million random lower-case words of 4 to 12 letters, in release: `rtad-loader dedup` must find the very duplicates that sort and uniq
# find, exactly, and with m/n = 429 and k = 8 misjudge none. Then `plan --table --measure`: rates are what the formula says.
#
#   bash tests/dedup.sh PATH_TO_LOADER [WORDS]
set -euo pipefail
loader=$(realpath "${1:?usage: bash tests/dedup.sh PATH_TO_LOADER [WORDS]}")
count=${2:-10000000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
export LC_ALL=C

python3 - "$count" >"$work/words" <<'PYTHON'
import random, sys

count, source = int(sys.argv[1]), random.Random(2026)
letters = b"abcdefghijklmnopqrstuvwxyz"
table = bytes(letters[byte % 26] for byte in range(256))
unfair = bytes(range(234, 256))  # 234 is nine times 26
out = sys.stdout.buffer
while count:
    some = min(count, 100_000)
    stream = source.randbytes(some * 12 + some * 3).translate(table, unfair)
    place, words = 0, []
    for length in source.choices(range(4, 13), k=some):
        words.append(stream[place : place + length])
        place += length
    assert place <= len(stream)
    out.write(b"\n".join(words) + b"\n")
    count -= some
PYTHON

sort -S 1G -T "$work" "$work/words" >"$work/sorted"
uniq "$work/sorted" >"$work/unique"
unique=$(wc -l <"$work/unique")
for how in "" "--bloom --expected $count --bits-per-key 429 --hashes 8"; do
    # shellcheck disable=SC2086
    "$loader" dedup --text $how --report "$work/report.json" --quiet "$work/words" >"$work/first"
    sort -S 1G -T "$work" "$work/first" | cmp - "$work/unique"
    python3 - "$work/report.json" "$count" "$unique" "${how:-exact}" <<'PYTHON'
import json, sys

report, count, unique = json.load(open(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
assert (report["rows"], report["first_seen"], report["duplicates"]) == (count, unique, count - unique), report
print(f"dedup, {sys.argv[4]}: {unique} of {count} words, as sort and uniq have it, in {report['seconds']:.1f} s and",
      f"{report['memory_bytes'] / unique:.1f} bytes a word; {report['expected_false_positives']:.1e} false positives expected")
PYTHON
done
# In the order of the input: of each word the first.
awk '!seen[$0]++ { print; if (++n == 1000000) exit }' "$work/words" | cmp - <(head -n 1000000 "$work/first")

"$loader" plan --table --measure --json >"$work/table.json"
python3 - "$work/table.json" <<'PYTHON'
import json, sys

for row in json.load(open(sys.argv[1]))["rows"]:
    if not (measured := row.get("measured")):
        continue
    expected, found = row["fpr"] * measured["probes"], measured["false_positives"]
    # Five standard deviations, and what double hashing adds to the formula: 0.03 / n at most.
    most = expected + 0.03 / row["keys"] * measured["probes"]
    assert expected - 5 * expected**0.5 <= found <= most + 5 * most**0.5 + 1, row
    print(f"fpr at n = {row['keys']}, m/n = {row['bits_per_key']}, k = {row['hashes']}: {found} of {measured['probes']},",
          f"{expected:.1f} by formula")
PYTHON
