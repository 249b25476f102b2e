// Reads Prometheus' text format, and says what happened between two readings of it.

/** Figures are of so long, in milliseconds; over what is longer nothing is said. */
export const SPAN = 10_000;
const SAMPLE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;
const NUMBERS = { "+Inf": Infinity, "-Inf": -Infinity, NaN: NaN };

const unescaped = (text) => text.replace(/\\(.)/g, (_, letter) => (letter === "n" ? "\n" : letter));

/** The samples by name, each with its labels. */
function samplesOf(text) {
  const samples = new Map();
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const [, name, inside, number] = SAMPLE.exec(line) ?? [];
    if (!name) continue;
    const labels = {};
    for (const [, label, value] of (inside ?? "").matchAll(LABEL)) labels[label] = unescaped(value);
    if (!samples.has(name)) samples.set(name, []);
    samples.get(name).push({ labels, value: NUMBERS[number] ?? Number(number) });
  }
  return samples;
}

/** One answer of `/metrics`, read at `at` milliseconds of some clock that is not set back. */
export class Reading {
  constructor(text, at) {
    this.samples = samplesOf(text);
    this.at = at;
    this.wall = Date.now();
  }

  of(name, where = {}) {
    const wanted = Object.entries(where);
    const all = this.samples.get(name) ?? [];
    return all.filter(({ labels }) => wanted.every(([label, value]) => labels[label] === value));
  }

  sum(name, where) {
    return this.of(name, where).reduce((sum, { value }) => sum + value, 0);
  }

  /** The values that a label has. */
  values(name, label, where) {
    return [...new Set(this.of(name, where).map(({ labels }) => labels[label]))];
  }
}

/** What happened from one reading to a later one. */
export class Span {
  constructor(before, now) {
    this.before = before;
    this.now = now;
    this.seconds = (now.at - before.at) / 1000;
  }

  /** How much the counters grew. Series that were not there before began at 0. */
  growth(name, where) {
    return Math.max(0, this.now.sum(name, where) - this.before.sum(name, where));
  }

  rate(name, where) {
    return this.growth(name, where) / this.seconds;
  }

  /** How many were in each bucket of a histogram, and its upper edge. */
  buckets(name, where) {
    const edges = this.now.values(`${name}_bucket`, "le", where);
    edges.sort((a, b) => (NUMBERS[a] ?? Number(a)) - (NUMBERS[b] ?? Number(b)));
    let below = 0;
    return edges.map((le) => {
      const upTo = this.growth(`${name}_bucket`, { ...where, le });
      const count = Math.max(0, upTo - below);
      below = Math.max(below, upTo);
      return { edge: NUMBERS[le] ?? Number(le), count };
    });
  }

  /** The duration that a share of all stayed under, taken as even within a bucket; infinite beyond the last edge, and nothing of nothing. */
  quantile(share, buckets) {
    const total = buckets.reduce((sum, { count }) => sum + count, 0);
    if (total === 0) return undefined;
    let wanted = share * total;
    let start = 0;
    for (const { edge, count } of buckets) {
      if (wanted <= count) return edge === Infinity ? Infinity : start + (edge - start) * (wanted / count);
      wanted -= count;
      start = edge;
    }
    return Infinity;
  }
}

/** The share of a histogram's buckets that lies above an edge. */
export function shareAbove(edge, buckets) {
  const total = buckets.reduce((sum, { count }) => sum + count, 0);
  const above = buckets.filter((bucket) => bucket.edge > edge).reduce((sum, { count }) => sum + count, 0);
  return total === 0 ? undefined : above / total;
}
