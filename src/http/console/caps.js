// Caps of distinct devices: how much is used, until when, and alerts.

import { bar } from "./charts.js";
import { card, el, pill, rows, table } from "./dom.js";
import { count, duration, list, moment, t } from "./words.js";

let body;
let element;

/** The card, in the current language. */
export function capsCard() {
  body = el("tbody");
  const heads = [t("cap"), t("cap-used"), t("cap-per")];
  const note = el("p", { class: "quiet" }, t("cap-note"));
  element = card(t("caps"), table(t("caps"), heads, body), note);
  element.id = "caps";
  element.hidden = true;
  return element;
}

/** Shows the caps; none, no table. */
export function showCaps({ caps }) {
  element.hidden = caps.length === 0;
  rows(
    body,
    caps,
    ({ name }) => name,
    (cap) => {
      const counted = t("cap-of", { devices: count(cap.devices), limit: count(cap.granted) });
      const used = el("span", {}, bar(usedOf(cap)), el("small", {}, counted), ...granted(cap));
      const name = el("span", {}, cap.name, " ", el("small", {}, list(cap.strategies)));
      return [name, used, periodOf(cap)];
    },
  );
}

/** The part of all pods together. */
const usedOf = ({ grants, limit }) => Math.min(1, grants.all_devices / limit);

/** What all pods were granted. */
function granted({ grants, limit }) {
  const all = t("cap-granted", { all: count(grants.all_devices), total: count(limit) });
  const { failing } = grants;
  return [
    el("small", {}, all),
    ...(failing ? [el("div", {}, pill("bad", t("cap-grant-failing", { cause: failing })))] : []),
  ];
}

/** The period, whose end has the time of the cap's zone. */
function periodOf({ period, time_zone: zone, period_end_unix_seconds: end }) {
  const left = duration(Math.max(0, end - Date.now() / 1000));
  const ends = t("cap-ends", { at: moment(end, zone), left });
  return el("span", {}, t(`per-${period}`, { zone }), el("small", {}, ends));
}

/** Problems of the caps. */
export function capProblems({ caps }) {
  const problems = [];
  const note = (key, level, { name, ...values }) =>
    problems.push({
      key: `${key} ${name}`,
      level,
      title: t(`${key}-title`, { name }),
      text: t(`${key}-text`, values),
      href: "#caps",
    });
  for (const cap of caps) {
    const { name, devices, granted, limit, grants, time_zone: zone } = cap;
    // More may be granted as long as not all is.
    const isWhole = grants.all_devices >= limit;
    const until = `${moment(cap.period_end_unix_seconds, zone)} (${zone})`;
    if (isWhole && devices >= granted) note("capped", "warn", { name, limit: count(limit), until });
    if (grants.failing) note("grant", "bad", { name, cause: grants.failing });
  }
  return problems;
}
