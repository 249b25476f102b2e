// Traffic: requests, decisions and latency.

import { capsCard } from "./caps.js";
import { Chart } from "./charts.js";
import { byId, card, el, facts, keyed, rows, setText, table } from "./dom.js";
import { SPAN, shareAbove } from "./metrics.js";
import { rulesCard } from "./rules.js";
import { strategiesCard } from "./strategies.js";
import { count, percent, rate, short, t, took } from "./words.js";

/** Time span of the charts, in milliseconds. They begin when the page is opened. */
const BACK = 300_000;
const DURATION = "rtad_request_duration_seconds";
const LIMIT = 0.06;
const QUANTILES = [
  ["p50", 0.5],
  ["p99", 0.99],
  ["p99.9", 0.999],
];
const COLORS = 6;
const SCALE = {
  least: 5e-6,
  most: 0.25,
  rules: [1e-5, 1e-4, 1e-3, 1e-2],
  limit: LIMIT,
  write: (value) => took(value),
};

/** Data that the page has read, oldest first. */
let past = [];
let panels;
let body;
/** The fixed color of each route with requests. */
const colors = new Map();

/** Clears the charts, as the counters were reset. */
export function forgetTraffic() {
  past = [];
}

export const routeName = (route) => {
  const words = t(`route-${route}`);
  return words === `route-${route}` ? route : words;
};

/** The routes with requests, rtad's own first. */
function routesOf(reading) {
  const asked = reading.of(`${DURATION}_count`).filter(({ value }) => value > 0);
  const routes = asked.map(({ labels }) => labels.route);
  // Routes without requests take none of the few colors.
  for (const route of routes)
    if (!colors.has(route)) colors.set(route, `s${colors.size % COLORS}`);
  return routes;
}

function build() {
  const panel = (title) => {
    const chart = new Chart(SPAN / BACK);
    const figure = el("span", { class: "figure" }, "–");
    const unit = el("span", { class: "unit" });
    const legend = el("ul", { class: "legend" });
    const heading = el("h3", {}, t(title));
    const element = el(
      "article",
      { class: "card panel" },
      heading,
      el("p", {}, figure, " ", unit),
      chart.element,
      el("p", { class: "axis" }, el("span", {}, t("ago", { n: BACK / 60_000 })), el("span", {}, t("span-end"))),
      legend,
    );
    return { chart, figure, unit, legend, element };
  };
  panels = {
    requests: panel("requests"),
    decisions: panel("decisions"),
    latency: panel("latency"),
  };
  byId("panels").replaceChildren(...Object.values(panels).map(({ element }) => element));
  body = el("tbody");
  const quantiles = QUANTILES.map(([name]) => name);
  const routes = table(
    t("by-route"),
    [t("route"), t("a-second"), ...quantiles, t("over-60"), t("errors")],
    body,
  );
  routes.classList.add("figures");
  byId("tables").replaceChildren(
    strategiesCard(),
    card(t("by-route"), routes),
    capsCard(),
    rulesCard(),
  );
}

/** Rebuilds the section in the current language. */
export function rebuildTraffic() {
  panels = undefined;
}

/** Adds the data of `span` to the charts. */
export function noteTraffic(span) {
  const routes = new Map(
    routesOf(span.now).map((route) => [route, span.rate(`${DURATION}_count`, { route })]),
  );
  const buckets = span.buckets(DURATION);
  past.push({
    at: span.now.at,
    routes,
    bid: span.rate("rtad_decisions_total", { decision: "bid" }),
    noBid: span.rate("rtad_decisions_total", { decision: "no_bid" }),
    quantiles: QUANTILES.map(([, share]) => span.quantile(share, buckets)),
  });
  past = past.filter(({ at }) => at > span.now.at - BACK);
}

/** Shows charts, figures and tables. */
export function showTraffic(span) {
  if (!panels) build();
  const now = past.at(-1);
  const times = past.map(({ at }) => 1 - (now.at - at) / BACK);
  const routes = [...now.routes.keys()];
  const total = [...now.routes.values()].reduce((sum, value) => sum + value, 0);
  const { requests, decisions, latency } = panels;

  setText(requests.figure, rate(total));
  setText(requests.unit, t("per-second"));
  const series = routes.map((route) => past.map((point) => point.routes.get(route) ?? 0));
  requests.chart.areas(
    times,
    series,
    routes.map((route) => colors.get(route)),
    short,
  );
  legend(
    requests.legend,
    routes.map((route) => [colors.get(route), routeName(route), rate(now.routes.get(route))]),
  );

  const decided = now.bid + now.noBid;
  setText(decisions.figure, decided > 0 ? percent(now.bid / decided) : "–");
  setText(decisions.unit, t("share-bid"));
  decisions.chart.areas(
    times,
    [past.map(({ bid }) => bid), past.map(({ noBid }) => noBid)],
    ["bid", "no-bid"],
    short,
  );
  legend(decisions.legend, [
    ["bid", t("bid"), rate(now.bid)],
    ["no-bid", t("no-bid"), rate(now.noBid)],
  ]);

  setText(latency.figure, took(now.quantiles[1]));
  setText(latency.unit, t("latency-p99"));
  const drawn = QUANTILES.map((_, index) => past.map(({ quantiles }) => quantiles[index]));
  latency.chart.lines(times, drawn, ["q0", "q1", "q2"], SCALE);
  const named = QUANTILES.map(([name], index) => [`q${index}`, name, took(now.quantiles[index])]);
  legend(latency.legend, [...named, ["limit", t("limit"), ""]]);

  showStats(span);
  showRoutes(
    span,
    routes.map((route) => ({ route, perSecond: now.routes.get(route) })),
  );
}

/** The legend of a chart: color, name and figure of each entry. */
function legend(parent, entries) {
  const make = ([color]) =>
    el("li", {}, el("i", { class: `key ${color}`, "aria-hidden": "true" }), el("span"), el("b"));
  keyed(
    parent,
    entries,
    ([, words]) => words,
    make,
    (element, [, words, figure]) => {
      setText(element.children[1], words);
      setText(element.children[2], figure);
    },
  );
}

function showStats(span) {
  const ids = span.growth("rtad_ids_total");
  const unusable = ids - span.growth("rtad_ids_total", { result: "usable" });
  const stats = facts([
    [t("connections"), count(span.now.sum("rtad_connections"))],
    [t("in-flight"), count(span.now.sum("rtad_in_flight"))],
    [t("shed"), rate(span.rate("rtad_shed_total"))],
    [t("failures"), rate(span.rate("rtad_platform_failures_total"))],
    [t("ids-unusable"), ids > 0 ? percent(unusable / ids) : "–"],
  ]);
  stats.classList.add("strip", "card");
  if (!byId("stats").firstChild?.isEqualNode(stats)) byId("stats").replaceChildren(stats);
}

function showRoutes(span, routes) {
  rows(
    body,
    routes,
    ({ route }) => route,
    ({ route, perSecond }) => {
      const buckets = span.buckets(DURATION, { route });
      const swatch = el("i", { class: `key ${colors.get(route)}`, "aria-hidden": "true" });
      const failed =
        span.growth("rtad_requests_total", { route }) -
        span.growth("rtad_requests_total", { route, code: "200" });
      return [
        el("span", {}, swatch, routeName(route)),
        rate(perSecond),
        ...QUANTILES.map(([, share]) => took(span.quantile(share, buckets))),
        percent(shareAbove(LIMIT, buckets)),
        percent(perSecond > 0 ? failed / span.seconds / perSecond : undefined),
      ];
    },
  );
}
