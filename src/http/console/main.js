// The console: polls the pod every two seconds and shows its state.
//
// metrics.js parses /metrics · traffic.js, strategies.js, rules.js, caps.js, audiences.js and map.js
// show it · lookup.js explains · words.js, en.js and zh.js have the texts · charts.js draws · alerts.js lists problems ·
// dom.js has DOM helpers.

import { announce, showAlerts } from "./alerts.js";
import { problemsOf, rebuildAudiences, showAudiences } from "./audiences.js";
import { capProblems, showCaps } from "./caps.js";
import { byId, pill, setText } from "./dom.js";
import { offer, rebuildLookup, startLookup } from "./lookup.js";
import { Reading, SPAN, Span } from "./metrics.js";
import { showRules } from "./rules.js";
import { showStrategies } from "./strategies.js";
import { forgetTraffic, noteTraffic, rebuildTraffic, showTraffic } from "./traffic.js";
import { clock, duration, list, switchLanguage, t, translatePage } from "./words.js";

const EVERY = 2000;
/** Delay of the second poll: a rate needs two. */
const SOON = 500;
const TIMEOUT = 5000;
/** Time for which a past problem is shown. */
const REMEMBERED = 60_000;

const state = {
  readings: [],
  status: undefined,
  at: undefined,
  error: undefined,
  isPaused: false,
  slept: 0,
};
/** When each temporary problem was last seen. */
const seen = new Map();

async function ask(path, options = {}) {
  const answer = await fetch(path, {
    cache: "no-store",
    signal: AbortSignal.timeout(TIMEOUT),
    ...options,
  });
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => undefined);
  throw new Error(problem ? `${problem.title}: ${problem.detail}` : `HTTP ${answer.status}`);
}

async function poll() {
  const wasLost = Boolean(state.error && state.at);
  let answers;
  try {
    answers = await Promise.all([
      ask("v1/status").then((a) => a.json()),
      ask("metrics").then((a) => a.text()),
    ]);
  } catch (error) {
    state.error = error;
    return show();
  }
  const [status, text] = answers;
  const { at } = state;
  take(status, new Reading(text, performance.now() + state.slept));
  try {
    show();
  } catch (error) {
    // The page still shows the previous state.
    state.at = at ?? state.at;
    throw error;
  }
  if (wasLost) announce(t("answers-again"));
}

function take(status, reading) {
  // After a restart of the pod the counters begin at 0.
  if (state.status && status.uptime_seconds < state.status.uptime_seconds) {
    state.readings = [];
    forgetTraffic();
  }
  const last = state.readings.at(-1);
  if (last) {
    // During sleep the page's clock may stop; the wall clock and the pod's clock do not.
    const clocks = [
      reading.at - last.at,
      reading.wall - last.wall,
      1000 * (status.uptime_seconds - state.status.uptime_seconds),
    ];
    const passed = Math.max(...clocks);
    // After a pause, the counters' growth is not that of the last seconds.
    if (passed > SPAN) {
      state.slept += passed - clocks[0];
      reading.at = last.at + passed;
      state.readings = [];
    }
  }
  Object.assign(state, { status, error: undefined, at: Date.now() / 1000 });
  state.readings.push(reading);
  while (state.readings.length > 2 && state.readings[1].at <= reading.at - SPAN)
    state.readings.shift();
  if (state.readings.length > 1) noteTraffic(span());
}

const span = () => new Span(state.readings[0], state.readings.at(-1));

function show() {
  showState();
  if (!state.status) return;
  const reading = state.readings.at(-1);
  if (state.readings.length > 1) {
    showTraffic(span());
    showStrategies(span());
    showCaps(state.status);
    showRules(state.status, reading);
  }
  offer(state.status);
  showProblems(reading);
  showAudiences(state.status, reading, ask);
}

/** The status line: state of the pod, and age of the data. */
function showState() {
  const { status, error, at, isPaused } = state;
  const stale = byId("stale");
  stale.hidden = !error;
  if (error)
    setText(
      stale,
      at
        ? t("stale", { at: clock(at), error: error.message })
        : t("never-answered", { error: error.message }),
    );
  document.body.classList.toggle("is-stale", Boolean(error && at));
  setText(byId("host"), status?.pod ?? location.host);
  setText(byId("pause"), t(isPaused ? "resume" : "pause"));
  if (!status) {
    setText(byId("updated"), t("waiting"));
    return;
  }
  const [level, word] = status.draining
    ? ["warn", "draining"]
    : status.ready
      ? ["good", "ready"]
      : ["bad", "not-ready"];
  const shown = pill(level, t(word));
  if (!byId("state").firstChild?.isEqualNode(shown)) byId("state").replaceChildren(shown);
  setText(
    byId("about"),
    t("about", { version: status.version, up: duration(status.uptime_seconds) }),
  );
  const words = t("updated", { at: clock(at) });
  setText(byId("updated"), isPaused ? `${words} · ${t("paused")}` : words);
}

/** Problems; each is announced once. */
function showProblems(reading) {
  const problems = [
    ...problemsOf(state.status, reading),
    ...capProblems(state.status),
    ...(state.readings.length > 1 ? passing(span()) : []),
  ];
  showAlerts(problems);
}

/** Problems detected by growing counters; each is shown for a minute. */
function passing(span) {
  const growing = [];
  const note = (key, is, problem) => {
    if (is) seen.set(key, { at: span.now.at, problem });
  };
  note("shed", span.growth("rtad_shed_total") > 0, () => ({
    title: t("shed-title"),
    text: t("shed-text"),
  }));
  const failures = "rtad_platform_failures_total";
  for (const { labels } of span.now.of(failures)) {
    const { platform, cause } = labels;
    note(`${failures} ${platform} ${cause}`, span.growth(failures, labels) > 0, () => ({
      title: t("failure-title", { platform }),
      text: t("failure-text", { cause: t(`failure-${cause}`) }),
    }));
  }
  const undecided = { reason: "unavailable" };
  const names = span.now
    .values("rtad_decisions_total", "strategy", undecided)
    .filter((strategy) => span.growth("rtad_decisions_total", { ...undecided, strategy }) > 0);
  note("undecided", names.length > 0, () => ({
    title: t("undecided-title"),
    text: t("undecided-text", { names: list(names) }),
  }));
  for (const [key, { at, problem }] of seen) {
    if (at < span.now.at - REMEMBERED) seen.delete(key);
    else growing.push({ key, level: "warn", ...problem() });
  }
  return growing;
}

function translate() {
  translatePage();
  const other = document.documentElement.lang === "en" ? "zh-CN" : "en";
  byId("language").lang = other;
  setText(byId("language"), t("other-language"));
  rebuildTraffic();
  rebuildLookup();
  rebuildAudiences();
  show();
}

async function keepPolling() {
  try {
    // A hidden page does not poll.
    if (!state.isPaused && document.visibilityState === "visible") await poll();
  } catch (error) {
    // An error of the page: the data is stale, and the next poll may succeed.
    reportError(error);
    state.error = error;
    showState();
  } finally {
    setTimeout(keepPolling, state.readings.length === 1 ? SOON : EVERY);
  }
}

byId("language").addEventListener("click", () => {
  switchLanguage();
  translate();
});
byId("pause").addEventListener("click", () => {
  state.isPaused = !state.isPaused;
  showState();
});
startLookup(ask);
translate();
keepPolling();
