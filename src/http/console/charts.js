// Small drawings. What they show also stands beside them in figures, so to a screen reader they do not exist.

import { el, setText, svg } from "./dom.js";

const WIDTH = 300;
const HEIGHT = 96;

/** Where on a scale a value is drawn. */
const linear = (top) => (value) => HEIGHT - (HEIGHT - 2) * Math.min(1, value / top);
const logarithmic = (least, most) => (value) => {
  const place = Math.log(Math.min(most, Math.max(least, value)) / least) / Math.log(most / least);
  return HEIGHT - (HEIGHT - 2) * place;
};

/** A number that a scale may well end at: 1, 2 or 5 times a power of ten. */
function roundTop(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((times) => times * power).find((top) => top >= value);
}

/**
 * A drawing of what has been. Places are shares of its width, from 0 for the oldest to 1 for now; what was between two that are further
 * apart than `gap` nobody saw, and nothing is drawn.
 */
export class Chart {
  constructor(gap) {
    this.gap = gap;
    this.drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" });
    this.marks = el("div", { class: "marks" });
    this.element = el("div", { class: "chart", "aria-hidden": "true" }, this.drawing, this.marks);
  }

  /** Areas one upon the other. `series` are lists of numbers, each as long as `places`, in the order of `classes`. */
  areas(places, series, classes, write) {
    const sums = places.map((_, at) => series.reduce((sum, values) => sum + values[at], 0));
    const top = roundTop(Math.max(0, ...sums));
    const y = linear(top);
    let floor = sums.map(() => 0);
    const runs = this.runs(places);
    const shapes = series.flatMap((values, order) => {
      const ceiling = values.map((value, at) => floor[at] + value);
      const edge = (values, run) => run.map((at) => this.point(places[at], y(values[at])));
      const drawn = runs.map((run) => [...edge(ceiling, run), ...edge(floor, run).reverse()]);
      floor = ceiling;
      return drawn.map((points) => svg("polygon", { points: points.join(" "), class: classes[order] }));
    });
    this.draw([this.rule(y(top / 2)), this.rule(y(top)), ...shapes], [[y(top), write(top)], [y(top / 2), write(top / 2)]]);
  }

  /** Lines over a logarithmic scale; a value that is missing breaks its line. `limit` is drawn across. */
  lines(places, series, classes, { least, most, rules, limit, write }) {
    const y = logarithmic(least, most);
    const begins = new Set(this.runs(places).map(([first]) => first));
    const drawn = series.map((values, order) => {
      let pen = "M";
      const steps = values.map((value, at) => {
        if (begins.has(at)) pen = "M";
        if (value === undefined) {
          pen = "M";
          return "";
        }
        const step = pen + this.point(places[at], y(value));
        pen = "L";
        return step;
      });
      return svg("path", { d: steps.join(""), class: classes[order] });
    });
    const across = svg("path", { d: `M0,${y(limit)}H${WIDTH}`, class: "limit" });
    this.draw([...rules.map((value) => this.rule(y(value))), across, ...drawn], rules.map((value) => [y(value), write(value)]));
  }

  /** The numbers of the places, in runs without a gap. */
  runs(places) {
    const runs = [];
    places.forEach((place, at) => {
      if (at === 0 || place - places[at - 1] > this.gap) runs.push([]);
      runs.at(-1).push(at);
    });
    return runs;
  }

  point(place, y) {
    return `${(WIDTH * place).toFixed(1)},${y.toFixed(1)}`;
  }

  rule(y) {
    return svg("path", { d: `M0,${y.toFixed(1)}H${WIDTH}`, class: "rule" });
  }

  draw(shapes, marks) {
    this.drawing.replaceChildren(...shapes);
    while (this.marks.children.length > marks.length) this.marks.lastChild.remove();
    marks.forEach(([y, text], place) => {
      if (!this.marks.children[place]) this.marks.append(el("span"));
      const mark = this.marks.children[place];
      mark.style.top = `${((100 * y) / HEIGHT).toFixed(1)}%`;
      setText(mark, text);
    });
  }
}

/** A bar in parts: shares of one, each with its class. */
export function shares(parts) {
  const bar = svg("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", class: "shares", "aria-hidden": "true" });
  let x = 0;
  for (const [share, name] of parts) {
    bar.append(svg("rect", { x: x.toFixed(2), y: 0, width: (share * 100).toFixed(2), height: 8, class: name }));
    x += share * 100;
  }
  return bar;
}

/** How many of many values fall where: one bar for each of `count` steps from the least to the most. */
export function histogram(values, least, most, count) {
  const step = Math.max(1, Math.ceil((most - least + 1) / count));
  const bins = new Array(Math.floor((most - least) / step) + 1).fill(0);
  for (const value of values) bins[Math.floor((value - least) / step)] += 1;
  const top = Math.max(...bins);
  const width = WIDTH / bins.length;
  const bars = bins.map((bin, at) => {
    // Of one shard among thousands the bar would not be seen; it is what is looked for.
    const height = bin === 0 ? 0 : Math.max(1.5, (HEIGHT * bin) / top);
    return svg("rect", { x: (at * width).toFixed(2), y: HEIGHT - height, width: Math.max(0.5, width - 0.6).toFixed(2), height });
  });
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "spread", "aria-hidden": "true" }, ...bars);
}
