// Parser of the Prometheus text format, and rates between two readings.

/** Time span of the figures, in milliseconds. */
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

/** One response of `/metrics`, read at `at` milliseconds of a monotonic clock. */
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

  /** The values of a label. */
  values(name, label, where) {
    return [...new Set(this.of(name, where).map(({ labels }) => labels[label]))];
  }
}

/** The change from one reading to a later one. */
export class Span {
  constructor(before, now) {
    this.before = before;
    this.now = now;
    this.seconds = (now.at - before.at) / 1000;
  }

  /** Growth of the counters. New series begin at 0. */
  growth(name, where) {
    return Math.max(0, this.now.sum(name, where) - this.before.sum(name, where));
  }

  rate(name, where) {
    return this.growth(name, where) / this.seconds;
  }

  /** Upper edge and count of each bucket of a histogram. */
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

  /** A quantile, interpolated within a bucket; infinite beyond the last edge. */
  quantile(share, buckets) {
    const total = buckets.reduce((sum, { count }) => sum + count, 0);
    if (total === 0) return undefined;
    let wanted = share * total;
    let start = 0;
    for (const { edge, count } of buckets) {
      if (wanted <= count)
        return edge === Infinity ? Infinity : start + (edge - start) * (wanted / count);
      wanted -= count;
      start = edge;
    }
    return Infinity;
  }
}

/** The share of samples above an edge. */
export function shareAbove(edge, buckets) {
  const total = buckets.reduce((sum, { count }) => sum + count, 0);
  const above = buckets
    .filter((bucket) => bucket.edge > edge)
    .reduce((sum, { count }) => sum + count, 0);
  return total === 0 ? undefined : above / total;
}
