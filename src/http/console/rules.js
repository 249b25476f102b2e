// Rules of the strategies: for whom each bids and when, the values of its bids, and its buckets.

import { card, el, pill, rows, table } from "./dom.js";
import { count, list, moment, percent, t } from "./words.js";

let body;

/** The card, in the current language. */
export function rulesCard() {
  body = el("tbody");
  const heads = ["strategy", "rule", "schedule", "values", "buckets"].map((head) => t(head));
  const note = el("p", { class: "quiet" }, t("rules-note"));
  return card(t("rules"), table(t("rules"), heads, body), note);
}

export function showRules({ rules }, reading) {
  rows(
    body,
    rules,
    ({ strategy }) => strategy,
    (rule) => [
      el("span", {}, rule.strategy, ...(rule.shadow ? [" ", el("small", {}, t("in-shadow"))] : [])),
      lines(conditions(rule)),
      times(rule),
      lines(rule.values.map((entry, row) => value(rule, entry, row, reading))),
      lines(buckets(rule, reading)),
    ],
  );
}

/** Lines of a cell; a dash without any. */
const lines = (all) =>
  el("span", {}, ...(all.length > 0 ? all.map((line) => el("div", {}, line)) : ["–"]));

function conditions({ exclude, when }) {
  const all = [];
  if (exclude.length > 0) all.push(t("rule-exclude", { names: list(exclude) }));
  if (when) all.push(when);
  return all.length > 0 ? all : [t("rule-all")];
}

function times({ schedule }) {
  if (!schedule) return t("always");
  const next = schedule.next_change_unix_seconds;
  const until = next ? t("changes-at", { at: moment(next) }) : t("never-changes");
  const now = schedule.holds ? pill("good", t("bids-now")) : pill("warn", t("bids-not-now"));
  return el("span", {}, now, " ", el("small", {}, until));
}

/** An entry of the values, and the bids that had it. */
function value({ strategy }, { audience, tier, bucket, value: numbers }, row, reading) {
  const bids = reading.sum("rtad_bid_values_total", { strategy, row: String(row) });
  const words = Object.entries(numbers).map(([key, number]) => `${key} ${number}`);
  const conditions = [audience, tier && t("tier", { tier }), bucket].filter(Boolean);
  const of = conditions.length ? conditions : [t("value-others")];
  return t("value-line", { of: of.join(", "), numbers: list(words), bids: count(bids) });
}

/** The parts of the strategy's experiments, with the decisions about their devices. */
function buckets({ strategy }, reading) {
  const parts = new Map();
  for (const { labels, value: n } of reading.of("rtad_bucket_decisions_total", { strategy })) {
    const key = `${labels.experiment}:${labels.bucket}`;
    const part = parts.get(key) ?? { all: 0, bids: 0 };
    part.all += n;
    if (labels.decision === "bid") part.bids += n;
    parts.set(key, part);
  }
  return [...parts]
    .sort(([a], [b]) => a.localeCompare(b))
    .map(([part, { all, bids }]) =>
      t("bucket-line", { part, all: count(all), share: all > 0 ? percent(bids / all) : "–" }),
    );
}
