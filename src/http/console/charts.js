// Small charts. The same figures are shown as text, so screen readers skip the charts.

import { el, setText, svg } from "./dom.js";
import { percent } from "./words.js";

const WIDTH = 300;
const HEIGHT = 96;

/** The vertical position of a value. */
const linear = (top) => (value) => HEIGHT - (HEIGHT - 2) * Math.min(1, value / top);
const logarithmic = (least, most) => (value) => {
  const share = Math.log(Math.min(most, Math.max(least, value)) / least) / Math.log(most / least);
  return HEIGHT - (HEIGHT - 2) * share;
};

/** A round maximum of a scale: 1, 2, 5 or 10 times a power of ten. */
function roundTop(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((top) => top >= value);
}

/**
 * A time chart. Times are shares of its width, from 0 for the oldest to 1 for now. Between two
 * times further apart than `gap` nothing is drawn, as no data was read.
 */
export class Chart {
  constructor(gap) {
    this.gap = gap;
    this.drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" });
    this.marks = el("div", { class: "marks" });
    this.element = el("div", { class: "chart", "aria-hidden": "true" }, this.drawing, this.marks);
  }

  /** Stacked areas. Each list in `series` is as long as `times`. */
  areas(times, series, classes, write) {
    const sums = times.map((_, at) => series.reduce((sum, values) => sum + values[at], 0));
    const top = roundTop(Math.max(0, ...sums));
    const y = linear(top);
    let floor = sums.map(() => 0);
    const runs = this.runs(times);
    const shapes = series.flatMap((values, order) => {
      const ceiling = values.map((value, at) => floor[at] + value);
      const edge = (values, run) => run.map((at) => this.point(times[at], y(values[at])));
      const drawn = runs.map((run) => [...edge(ceiling, run), ...edge(floor, run).reverse()]);
      floor = ceiling;
      return drawn.map((points) =>
        svg("polygon", { points: points.join(" "), class: classes[order] }),
      );
    });
    this.draw(
      [this.rule(y(top / 2)), this.rule(y(top)), ...shapes],
      [
        [y(top), write(top)],
        [y(top / 2), write(top / 2)],
      ],
    );
  }

  /** Lines on a logarithmic scale. A missing value breaks its line. */
  lines(times, series, classes, { least, most, rules, limit, write }) {
    const y = logarithmic(least, most);
    const begins = new Set(this.runs(times).map(([first]) => first));
    const drawn = series.map((values, order) => {
      let pen = "M";
      const steps = values.map((value, at) => {
        if (begins.has(at)) pen = "M";
        if (value === undefined) {
          pen = "M";
          return "";
        }
        const step = pen + this.point(times[at], y(value));
        pen = "L";
        return step;
      });
      return svg("path", { d: steps.join(""), class: classes[order] });
    });
    const across = svg("path", { d: `M0,${y(limit)}H${WIDTH}`, class: "limit" });
    this.draw(
      [...rules.map((value) => this.rule(y(value))), across, ...drawn],
      rules.map((value) => [y(value), write(value)]),
    );
  }

  /** The indexes of the times, in runs without a gap. */
  runs(times) {
    const runs = [];
    times.forEach((time, at) => {
      if (at === 0 || time - times[at - 1] > this.gap) runs.push([]);
      runs.at(-1).push(at);
    });
    return runs;
  }

  point(time, y) {
    return `${(WIDTH * time).toFixed(1)},${y.toFixed(1)}`;
  }

  rule(y) {
    return svg("path", { d: `M0,${y.toFixed(1)}H${WIDTH}`, class: "rule" });
  }

  draw(shapes, marks) {
    this.drawing.replaceChildren(...shapes);
    while (this.marks.children.length > marks.length) this.marks.lastChild.remove();
    marks.forEach(([y, text], index) => {
      if (!this.marks.children[index]) this.marks.append(el("span"));
      const mark = this.marks.children[index];
      mark.style.top = `${((100 * y) / HEIGHT).toFixed(1)}%`;
      setText(mark, text);
    });
  }
}

/** A share of bids, or of a cap that is used, as a bar and a number. */
export function bar(share) {
  const parts = [
    [share, "bid"],
    [1 - share, "no-bid"],
  ];
  return el("span", { class: "share" }, shares(parts), el("b", {}, percent(share)));
}

/** A bar of shares that add up to 1, each with its class. */
function shares(parts) {
  const drawing = svg("svg", {
    viewBox: "0 0 100 8",
    preserveAspectRatio: "none",
    class: "shares",
    "aria-hidden": "true",
  });
  let x = 0;
  for (const [share, name] of parts) {
    drawing.append(
      svg("rect", {
        x: x.toFixed(2),
        y: 0,
        width: (share * 100).toFixed(2),
        height: 8,
        class: name,
      }),
    );
    x += share * 100;
  }
  return drawing;
}

/** A histogram with at most `count` bars from the least to the most value. */
export function histogram(values, least, most, count) {
  const step = Math.max(1, Math.ceil((most - least + 1) / count));
  const bins = new Array(Math.floor((most - least) / step) + 1).fill(0);
  for (const value of values) bins[Math.floor((value - least) / step)] += 1;
  const top = Math.max(...bins);
  const width = WIDTH / bins.length;
  const bars = bins.map((bin, at) => {
    // A minimum height keeps the bar of a single outlier visible.
    const height = bin === 0 ? 0 : Math.max(1.5, (HEIGHT * bin) / top);
    return svg("rect", {
      x: (at * width).toFixed(2),
      y: HEIGHT - height,
      width: Math.max(0.5, width - 0.6).toFixed(2),
      height,
    });
  });
  return svg(
    "svg",
    {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      class: "spread",
      "aria-hidden": "true",
    },
    ...bars,
  );
}
