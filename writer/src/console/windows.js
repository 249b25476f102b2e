// The console of the writer: polls GET /v1/windows every two seconds and shows its panels.
//
// dom.js and words.js are those of rtad's console; en.js and zh.js have the texts of this page.

import { showAlerts } from "./alerts.js";
import { byId, el, facts, keyed, pill, rows, setText, table } from "./dom.js";
import {
  bytes,
  clock,
  count,
  duration,
  oneIn,
  percent,
  rate,
  switchLanguage,
  t,
  took,
  translatePage,
} from "./words.js";

const EVERY = 2000;
const TIMEOUT = 5000;
/** Fill of a window, and seconds of an audience's lag, that need attention. */
const NEAR_FULL = 0.9;
const LATE = 30;
/** Time for which growing counters are a problem. */
const REMEMBERED = 60_000;
const SECONDS = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86_400 };

const state = { windows: [], audiences: [], at: undefined, error: undefined };
/** By window: its counters at the last poll, the rate of events since the one before, and when
 *  `full` and `evicted` grew last. */
const totals = new Map();
let followers = el("tbody");

/** Seconds of a length such as "1h 30m". */
const secondsOf = (length) =>
  [...length.matchAll(/(\d+)([a-z]+)/g)].reduce(
    (sum, [, number, unit]) => sum + Number(number) * SECONDS[unit],
    0,
  );

/** Computes the rate of events. It has none at the first poll and after a restart. */
function note({ window, events, answers_evicted: evicted = 0 }) {
  const total = events.new + events.duplicate + events.full + events.failed;
  const now = { at: performance.now(), wall: Date.now() };
  const last = totals.get(window);
  // During sleep the page's clock may stop; the wall clock does not.
  const passed = last && Math.max(now.at - last.at, now.wall - last.wall) / 1000;
  const isKnown = passed > 0 && total >= last.total;
  const grown = {};
  for (const [name, value] of Object.entries({ full: events.full, evicted }))
    grown[name] = { value, at: isKnown && value > last.grown[name].value ? now.at : last?.grown[name].at };
  totals.set(window, { ...now, total, grown, rate: isKnown ? (total - last.total) / passed : NaN });
}

/** Whether a counter of the window has grown in the last minute. */
const grows = (window, name) => performance.now() - totals.get(window).grown[name].at < REMEMBERED;

/** Problems of windows and of their audiences. */
function problemsOf({ windows, audiences }) {
  const problems = [];
  const note = (key, level, name, values) => {
    const [title, text] = ["title", "text"].map((part) => t(`${key}-${part}`, { name, ...values }));
    problems.push({ key: `${key} ${name}`, level, title, text });
  };
  for (const { window: name, writable, fill_ratio: fill, when_full } of windows) {
    if (!writable) note("refuses", "bad", name);
    if (grows(name, "full")) note("is-full", "bad", name, { when_full });
    else if (fill > NEAR_FULL) note("near-full", "warn", name, { share: percent(fill), when_full });
    if (grows(name, "evicted")) note("evicted", "warn", name);
  }
  for (const { audience, window, lag_seconds: lag } of audiences)
    if (lag > LATE) note("late", "warn", audience, { window, lag: duration(lag) });
  return problems;
}

/** Seconds until the date changes in a time zone. A day has up to 25 hours. */
function untilMidnight(timeZone) {
  const dateAt = (at) => new Date(at).toLocaleDateString("en", { timeZone });
  const now = Date.now();
  let [today, tomorrow] = [now, now + 25 * 3600 * 1000];
  while (tomorrow - today > 1000) {
    const middle = (today + tomorrow) / 2;
    if (dateAt(middle) === dateAt(now)) today = middle;
    else tomorrow = middle;
  }
  return (tomorrow - now) / 1000;
}

function lifetime({ oldest_seconds: oldest, length, time_zone }) {
  if (oldest === null) return [t("oldest"), t("none")];
  // A day ends at midnight of its zone, for all entries.
  if (time_zone) return [t("cleared-in"), duration(untilMidnight(time_zone))];
  return [t("expires-in"), duration(Math.max(0, secondsOf(length) - oldest))];
}

/** Figures that only windows of this process have. */
function local(window) {
  const { checkpoint_unix_seconds: checkpoint } = window;
  const hasFiles = window.durability !== "none";
  const age = Math.max(0, Date.now() / 1000 - checkpoint);
  return [
    lifetime(window),
    [t("fpr"), oneIn(window.expected_fpr)],
    [t("durability"), t(`durability-${window.durability}`)],
    hasFiles && [t("log"), bytes(window.log_bytes)],
    hasFiles && [t("checkpoint"), checkpoint > 0 ? duration(age) : t("none")],
    [t("memory"), bytes(window.memory_bytes)],
  ];
}

function contents(window) {
  const { events, time_zone: zone } = window;
  const isLocal = window.backend === undefined;
  const share = events.duplicate / (events.new + events.duplicate);
  const length = zone ? t("day-in", { zone }) : duration(secondsOf(window.length));
  const writable = window.writable ? pill("good", t("writable")) : pill("bad", t("not-writable"));
  const per = t("events-per-second");
  const parts = [
    el("div", { class: "title" }, el("h3", {}, window.window), writable),
    el(
      "p",
      {},
      el("span", { class: "figure" }, rate(totals.get(window.window).rate)),
      el("span", { class: "unit" }, ` ${per}`),
    ),
  ];
  if (isLocal) {
    const fill = window.fill_ratio;
    const entries = count(window.entries);
    const capacity = count(window.capacity);
    const words = t("fill-of", { entries, capacity, share: percent(fill) });
    parts.push(
      el("progress", { max: 1, value: Math.min(1, fill), "aria-label": t("fill") }),
      el("p", { class: "quiet" }, words),
    );
  }
  parts.push(
    facts([
      [t("length"), length],
      [t("duplicates"), percent(share)],
      [t("full"), count(events.full)],
      [t("unusable"), count(events.unusable)],
      [t("failed"), count(events.failed)],
      [t("backend"), window.backend ?? t("this-process")],
      ...(isLocal ? local(window) : []),
    ]),
  );
  return parts;
}

/** Replaces only the children that differ. */
function update(panel, parts) {
  parts.forEach((part, index) => {
    const before = panel.children[index];
    if (!before) panel.append(part);
    else if (!before.isEqualNode(part)) before.replaceWith(part);
  });
}

function show() {
  const { windows, audiences, at, error } = state;
  const stale = byId("stale");
  stale.hidden = !error;
  if (error) {
    const words = at ? "stale" : "never-answered";
    setText(stale, t(words, { at: clock(at), error: error.message }));
  }
  document.body.classList.toggle("is-stale", Boolean(error && at));
  setText(byId("updated"), at ? t("updated", { at: clock(at) }) : t("waiting"));
  byId("about").hidden = !at || windows.length > 0;
  byId("windows").hidden = windows.length === 0;
  byId("attention").hidden = windows.length === 0;
  showAlerts(problemsOf(state));
  keyed(
    byId("panels"),
    windows,
    ({ window }) => window,
    () => el("article", { class: "card panel" }),
    (panel, window) => update(panel, contents(window)),
  );
  byId("followed").hidden = audiences.length === 0;
  rows(
    followers,
    audiences,
    ({ audience }) => audience,
    ({ audience, window, min_count, lag_seconds: lag }) => [
      audience,
      window,
      count(min_count),
      lag > 0 && lag < 1 ? took(lag) : duration(lag),
    ],
  );
}

async function poll() {
  try {
    const options = { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT) };
    const answer = await fetch("v1/windows", options);
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    const { windows, audiences } = await answer.json();
    windows.forEach(note);
    Object.assign(state, { windows, audiences, at: Date.now() / 1000, error: undefined });
  } catch (error) {
    state.error = error;
  }
  show();
}

async function keepPolling() {
  try {
    // A hidden page does not poll.
    if (document.visibilityState === "visible") await poll();
  } finally {
    setTimeout(keepPolling, EVERY);
  }
}

function translate() {
  translatePage();
  byId("language").lang = document.documentElement.lang === "en" ? "zh-CN" : "en";
  setText(byId("language"), t("other-language"));
  followers = el("tbody");
  const heads = [t("audience"), t("window"), t("min-count"), t("lag")];
  byId("audiences").replaceChildren(table(t("followed"), heads, followers));
  show();
}

byId("language").addEventListener("click", () => {
  switchLanguage();
  translate();
});
setText(byId("host"), location.host);
translate();
keepPolling();
