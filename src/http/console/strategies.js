// Decisions by strategy, platform and reason: of the last 10 s, and since the pod's start.

import { bar } from "./charts.js";
import { card, el, keyed, rows, setText, table } from "./dom.js";
import { count, percent, rate, t } from "./words.js";

const TOTALS = { rtad_decisions_total: {}, rtad_shadow_decisions_total: { shadow: true } };
const REASONS = [
  "member",
  "not_member",
  "no_device",
  "unavailable",
  "capped",
  "no_grant",
  "rule",
  "not_scheduled",
  "bucket",
];

const SPANS = ["now", "start"];

let chosen = "start";
/** The growth of the counters that is shown. */
let shown;
let parts;

/** The card, in the current language. */
export function strategiesCard() {
  const choice = el("div", { class: "choice", role: "group", "aria-label": t("time-span") });
  const body = el("tbody");
  const heads = ["strategy", "decisions", "bid-share", "bid-reasons", "no-bid-reasons"];
  const box = table(t("by-strategy"), heads.map((head) => t(head)), body);
  parts = { choice, body, amount: box.querySelectorAll("thead th")[1], note: el("p", { class: "quiet" }) };
  return card(t("by-strategy"), choice, box, parts.note);
}

export function showStrategies(span) {
  shown = span;
  keyed(parts.choice, SPANS, (name) => name, button, (element, name) =>
    element.setAttribute("aria-pressed", name === chosen),
  );
  const isNow = chosen === "now";
  const decisions = counted(span, isNow);
  setText(parts.amount, t(isNow ? "a-second" : "decisions"));
  setText(parts.note, decisions.length === 0 ? t(`none-${chosen}`) : "");
  const amount = (n) => (isNow ? rate(n / span.seconds) : count(n));
  const figure = (n, all) => (isNow ? percent(n / all) : count(n));
  rows(
    parts.body,
    grouped(decisions),
    ({ key }) => key,
    ({ platform, strategy, shadow, all, of }) => [
      el(
        "span",
        {},
        strategy,
        " ",
        el("small", {}, platform === "api" ? "/v1/decide" : platform, shadow ? `, ${t("in-shadow")}` : ""),
      ),
      amount(all),
      bar(sum(of.filter(({ decision }) => decision === "bid")) / all),
      ...["bid", "no_bid"].map((decision) => reasons(of, decision, (n) => figure(n, all))),
    ],
  );
}

function button(name) {
  const choose = () => {
    chosen = name;
    showStrategies(shown);
  };
  return el("button", { type: "button", onclick: choose }, t(`span-${name}`));
}

const sum = (decisions) => decisions.reduce((all, { count: n }) => all + n, 0);

/** The decisions between two readings, or all since the start. */
function counted(span, isNow) {
  const all = Object.entries(TOTALS).flatMap(([name, mark]) =>
    span.now.of(name).map(({ labels, value }) => {
      const decided = isNow ? span.growth(name, labels) : value;
      return { ...labels, ...mark, count: decided };
    }),
  );
  return all.filter(({ count: n }) => n > 0);
}

/** The decisions by platform and strategy, sorted, as the order in /metrics varies. */
function grouped(decisions) {
  const groups = new Map();
  for (const one of decisions) {
    const { platform, strategy, shadow = false } = one;
    const key = `${platform} ${strategy} ${shadow}`;
    if (!groups.has(key)) groups.set(key, { key, platform, strategy, shadow, of: [] });
    groups.get(key).of.push(one);
  }
  return [...groups.values()]
    .map((group) => ({ ...group, all: sum(group.of) }))
    .sort((a, b) => a.platform.localeCompare(b.platform) || a.strategy.localeCompare(b.strategy));
}

/** The reasons of a decision, each with its figure. */
function reasons(decisions, decision, figure) {
  const found = REASONS.map((reason) => [
    reason,
    sum(decisions.filter((one) => one.decision === decision && one.reason === reason)),
  ]).filter(([, n]) => n > 0);
  const one = ([reason, n]) => el("span", {}, `${t(`reason-${reason}`)} `, el("b", {}, figure(n)));
  return el("span", { class: "reasons" }, ...(found.length > 0 ? found.map(one) : ["–"]));
}
