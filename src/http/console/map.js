// The map of an audience's 65,536 shards: row = first byte of the key, column = second byte.

import { histogram } from "./charts.js";
import { el, setText } from "./dom.js";
import { count, t } from "./words.js";

const SIDE = 256;
const SHARDS = SIDE * SIDE;
/** Range of the colors, in standard deviations from the mean. */
const FAR = 4;
const STEPS = {
  ArrowLeft: -1,
  ArrowRight: 1,
  ArrowUp: -SIDE,
  ArrowDown: SIDE,
  PageUp: -16 * SIDE,
  PageDown: 16 * SIDE,
};

/** The color in a custom property of the page, as three numbers. */
function color(property) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(property).trim();
  return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
}

export class ShardMap {
  constructor(audience) {
    this.audience = audience;
    this.shown = undefined;
    this.keys = undefined;
    this.at = 0;
    this.canvas = el("canvas", {
      width: SIDE,
      height: SIDE,
      tabIndex: 0,
      role: "application",
      "aria-roledescription": "map",
    });
    this.cursor = el("div", { class: "cursor", hidden: true });
    this.readout = el("output", { class: "readout" });
    this.facts = el("p", { class: "quiet" });
    this.hint = el("p", { class: "quiet" });
    this.scale = el("div", { class: "scale" }, el("span"), el("span"), el("span"));
    this.empty = el(
      "p",
      { class: "quiet" },
      el("i", { class: "key empty", "aria-hidden": "true" }),
      el("span"),
    );
    this.spreadTitle = el("h4");
    this.spread = el("div", { class: "spread-box" });
    const picture = el("div", { class: "picture" }, this.canvas, this.cursor);
    const beside = el(
      "div",
      { class: "beside" },
      this.readout,
      this.scale,
      this.empty,
      this.spreadTitle,
      this.spread,
      this.facts,
      this.hint,
    );
    this.element = el("div", { class: "map" }, picture, beside);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerdown", (event) => this.point(event));
    this.canvas.addEventListener("focus", () => this.moveTo(this.at));
    this.canvas.addEventListener("keydown", (event) => this.press(event));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    this.translate();
  }

  /** Loads the map if `version` differs from the shown one. */
  async update(version, ask) {
    if (this.shown === version) return;
    this.shown = version;
    if (!this.keys) setText(this.readout, t("map-loading"));
    try {
      const answer = await ask(`v1/audiences/${encodeURIComponent(this.audience)}/shards`, {
        cache: "no-cache",
      });
      const numbers = new DataView(await answer.arrayBuffer());
      // A later version was requested meanwhile.
      if (this.shown !== version) return;
      this.keys = Uint32Array.from({ length: SHARDS }, (_, shard) =>
        numbers.getUint32(4 * shard, true),
      );
      this.translate();
      this.draw();
    } catch (error) {
      if (this.shown !== version) return;
      // The next poll tries again.
      this.shown = undefined;
      setText(this.readout, t("map-failed", { error: error.message }));
    }
  }

  /** Translates all texts into the current language. */
  translate() {
    this.canvas.setAttribute("aria-label", t("map-label", { name: this.audience }));
    setText(this.hint, t("map-hint"));
    setText(this.empty.lastChild, t("map-empty"));
    setText(this.spreadTitle, t("map-spread"));
    if (!this.keys) return;
    const { least, most, empty, mean } = this.measure();
    setText(
      this.facts,
      t("map-facts", { least: count(least), most: count(most), empty: count(empty) }),
    );
    const words = [
      `−${FAR} σ`,
      t("map-mean", { n: mean.toLocaleString(undefined, { maximumFractionDigits: 1 }) }),
      `+${FAR} σ`,
    ];
    words.forEach((text, index) => setText(this.scale.children[index], text));
    this.say();
  }

  measure() {
    let [sum, least, most, empty] = [0, Infinity, 0, 0];
    for (const keys of this.keys) {
      sum += keys;
      least = Math.min(least, keys);
      most = Math.max(most, keys);
      empty += keys === 0 ? 1 : 0;
    }
    return { least, most, empty, mean: sum / SHARDS };
  }

  draw() {
    if (!this.keys) return;
    const { least, most, mean } = this.measure();
    const [low, middle, high] = ["--map-low", "--map-middle", "--map-high"].map(color);
    // With few keys, empty shards are expected.
    const isEmptyByChance = SHARDS * Math.exp(-mean) >= 1;
    const empty = color(isEmptyByChance ? "--map-none" : "--map-empty");
    this.empty.firstChild.classList.toggle("by-chance", isEmptyByChance);
    const context = this.canvas.getContext("2d");
    const picture = context.createImageData(SIDE, SIDE);
    this.keys.forEach((keys, shard) => {
      const off = Math.max(-1, Math.min(1, (keys - mean) / Math.sqrt(mean || 1) / FAR));
      const end = off < 0 ? low : high;
      const mixed = middle.map((part, index) => part + (end[index] - part) * Math.abs(off));
      picture.data.set([...(keys === 0 ? empty : mixed), 255], 4 * shard);
    });
    context.putImageData(picture, 0, 0);
    this.spread.replaceChildren(histogram(this.keys, least, most, 48));
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const cell = (part, size) => Math.max(0, Math.min(SIDE - 1, Math.floor((part / size) * SIDE)));
    this.moveTo(
      cell(event.clientY - box.top, box.height) * SIDE + cell(event.clientX - box.left, box.width),
    );
  }

  press(event) {
    const row = this.at - (this.at % SIDE);
    const step = STEPS[event.key] * (event.shiftKey ? 16 : 1);
    const to = { Home: row, End: row + SIDE - 1 }[event.key] ?? this.at + step;
    if (!Number.isInteger(to)) return;
    event.preventDefault();
    if (to >= 0 && to < SHARDS) this.moveTo(to);
  }

  moveTo(shard) {
    if (!this.keys) return;
    this.at = shard;
    this.cursor.hidden = false;
    this.cursor.style.left = `${((shard % SIDE) * 100) / SIDE}%`;
    this.cursor.style.top = `${(Math.floor(shard / SIDE) * 100) / SIDE}%`;
    this.say();
  }

  say() {
    if (this.cursor.hidden) {
      setText(this.readout, t("map-start"));
      return;
    }
    const { mean } = this.measure();
    const keys = this.keys[this.at];
    const off = (keys - mean) / Math.sqrt(mean || 1);
    const shard = this.at.toString(16).padStart(4, "0");
    const words = t("map-shard", { shard, keys: t("map-keys", { n: count(keys) }) });
    const side = t(off < 0 ? "below" : "above");
    setText(this.readout, `${words}, ${t("map-off", { n: Math.abs(off).toFixed(1), side })}`);
  }
}
