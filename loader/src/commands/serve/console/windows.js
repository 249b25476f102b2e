// Panels of windows, from GET /v1/windows every two seconds.

import { byId, el, facts, keyed, pill, rows, setText, table } from "./dom.js";

const PERIOD = 2000;
const TIMEOUT = 10_000;
const UNKNOWN = "–";
const SECONDS = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86_400, day: 86_400, days: 86_400 };

const number = (value, digits = 0) =>
  value.toLocaleString("en", { maximumFractionDigits: digits });
const percent = (share, digits = 1) => `${number(100 * share, digits)} %`;

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; count >= 1024 && unit + 1 < units.length; unit += 1) count /= 1024;
  return `${number(count, 1)} ${units[unit]}`;
}

function duration(seconds) {
  if (seconds < 60) return `${number(seconds, seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  const hours = Math.floor(seconds / 3600);
  if (hours >= 48) return `${Math.floor(hours / 24)} d ${hours % 24} h`;
  return `${hours} h ${Math.floor((seconds % 3600) / 60)} min`;
}

/** Seconds of a length such as "1h 30m"; undefined for days of a time zone. */
function secondsOf(length) {
  const parts = [...length.matchAll(/(\d+)\s*([a-z]+)/g)];
  if (parts.length === 0 || parts.some(([, , unit]) => !(unit in SECONDS))) return undefined;
  return parts.reduce((sum, [, count, unit]) => sum + Number(count) * SECONDS[unit], 0);
}

const before = new Map();

/** Events per second since the last poll; undefined at first and after a restart. */
function rateOf({ window, events }, now) {
  const total = events.new + events.duplicate + events.full + events.failed;
  const last = before.get(window);
  before.set(window, { total, now });
  if (!last || total < last.total) return undefined;
  return (1000 * (total - last.total)) / (now - last.now);
}

function oldest(window) {
  if (window.oldest_seconds === null) return ["Oldest entry", "none"];
  const length = secondsOf(window.length);
  if (length === undefined) return ["Oldest entry", duration(window.oldest_seconds)];
  return ["Oldest expires in", duration(Math.max(0, length - window.oldest_seconds))];
}

/** Figures that only windows of this process have. */
function local(window) {
  const hasFiles = window.durability !== "none";
  const age = Date.now() / 1000 - window.checkpoint_unix_seconds;
  const checkpoint = window.checkpoint_unix_seconds > 0 ? duration(Math.max(0, age)) : "none";
  return [
    oldest(window),
    ["Durability", window.durability],
    hasFiles && ["Log", bytes(window.log_bytes)],
    hasFiles && ["Checkpoint age", checkpoint],
    ["Memory", bytes(window.memory_bytes)],
  ];
}

function contents(window, now) {
  const { events } = window;
  const rate = rateOf(window, now);
  const counted = events.new + events.duplicate;
  const isLocal = window.backend === undefined;
  const length = window.time_zone ? `${window.length}, ${window.time_zone}` : window.length;
  const writable = window.writable ? pill("good", "writable") : pill("bad", "not writable");
  const fill = isLocal && [
    el("progress", { max: 1, value: Math.min(1, window.fill_ratio), "aria-label": "fill" }),
    el(
      "p",
      { class: "quiet" },
      `${number(window.entries)} of ${number(window.capacity)} entries, ` +
        percent(window.fill_ratio),
    ),
  ];
  return [
    el("div", { class: "title" }, el("h3", {}, window.window), writable),
    el(
      "p",
      {},
      el("span", { class: "figure" }, rate === undefined ? UNKNOWN : number(rate, 1)),
      el("span", { class: "unit" }, " events/s"),
    ),
    ...(fill || []),
    facts([
      ["Length", length],
      ["Duplicates", counted > 0 ? percent(events.duplicate / counted, 2) : UNKNOWN],
      ["Full", number(events.full)],
      ["Failed", number(events.failed)],
      ["Backend", window.backend ?? "this process"],
      ...(isLocal ? local(window) : []),
    ]),
  ];
}

const followers = el("tbody");
byId("audiences").append(
  table("Audiences from windows", ["Audience", "Window", "Lowest count", "Lag"], followers),
);

function show({ windows, audiences }, now) {
  byId("empty").hidden = windows.length > 0;
  keyed(
    byId("panels"),
    windows,
    ({ window }) => window,
    () => el("article", { class: "card panel" }),
    (panel, window) => panel.replaceChildren(...contents(window, now)),
  );
  byId("followed").hidden = audiences.length === 0;
  rows(
    followers,
    audiences,
    ({ audience }) => audience,
    ({ audience, window, min_count, lag_seconds }) => [
      audience,
      window,
      number(min_count),
      duration(lag_seconds),
    ],
  );
}

async function poll() {
  const stale = byId("stale");
  try {
    const options = { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT) };
    const answer = await fetch("v1/windows", options);
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    show(await answer.json(), performance.now());
    setText(byId("updated"), `updated ${new Date().toLocaleTimeString()}`);
    stale.hidden = true;
  } catch (error) {
    setText(stale, `The figures are old: GET /v1/windows failed: ${error.message}`);
    stale.hidden = false;
  }
  setTimeout(poll, PERIOD);
}

setText(byId("host"), location.host);
poll();
