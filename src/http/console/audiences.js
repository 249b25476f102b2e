// Audience cards: served snapshot, recent polls of the store, and the map of shards.

import { byId, el, facts, keyed, pill, rows, setText, table } from "./dom.js";
import { ShardMap } from "./map.js";
import {
  bytes,
  count,
  duration,
  knows,
  list,
  moment,
  oneIn,
  percent,
  short,
  t,
  took,
} from "./words.js";

const GOOD = ["ok", "unchanged"];
/** Interval of reloading the map during a rolling swap, in milliseconds. */
const ROLLING = 10_000;
const cards = new WeakMap();
/** Whether the screen is narrow: console.css has the same width. */
const isPhone = () => matchMedia("(max-width: 44rem)").matches;

/** The reason why an audience is unavailable; undefined if it is available. */
export function whyUnavailable(audience) {
  const { available, snapshot, max_age_seconds: limit } = audience;
  if (available) return undefined;
  if (!snapshot) return t("why-none");
  if (snapshot.deltas.state !== "live") return t(`why-${snapshot.deltas.state}`);
  if (limit !== undefined && snapshot.age_seconds > limit) {
    return t("why-too-old", { age: duration(snapshot.age_seconds), limit: duration(limit) });
  }
  return t("why-expired");
}

/** The meaning of a poll's result, and the action to take. */
export function meaningOf(result, name) {
  if (!knows(`sync-${result}`))
    return { means: t("sync-unknown", { result }), todo: t("do-unknown") };
  return {
    means: t(`sync-${result}`),
    todo: GOOD.includes(result) ? undefined : t(`do-${result}`, { name }),
  };
}

/** Start of the current run of failures, which may have different causes. */
function failingSince(syncs) {
  const good = syncs.findIndex(({ result }) => GOOD.includes(result));
  return syncs.at(good < 0 ? -1 : good - 1).since_unix_seconds;
}

/** Problems of the audiences: title, text and link. */
export function problemsOf(status, reading) {
  const waiting = status.audiences
    .filter(({ required, snapshot }) => required && !snapshot)
    .map(({ name }) => name);
  const problems = [];
  if (status.draining) {
    problems.push({
      key: "draining",
      level: "warn",
      title: t("draining-title"),
      text: t("draining-text"),
    });
  } else if (!status.ready) {
    const text =
      waiting.length > 0 ? t("not-ready-text", { names: list(waiting) }) : t("not-open-text");
    problems.push({ key: "ready", level: "bad", title: t("not-ready-title"), text });
  }
  if (status.refused_config) {
    problems.push({
      key: "config",
      level: "warn",
      title: t("config-title"),
      text: t("config-text", { mistakes: status.refused_config }),
    });
  }
  for (const audience of status.audiences) {
    const { name, required, snapshot, syncs } = audience;
    const about = { href: `#audience-${name}` };
    const why = whyUnavailable(audience);
    if (why) {
      const level = required ? "bad" : "warn";
      problems.push({
        ...about,
        key: `unavailable ${name}`,
        level,
        title: t("unavailable-title", { name }),
        text: why,
      });
    }
    const [last] = syncs;
    if (last && !GOOD.includes(last.result)) {
      const served = snapshot
        ? t("still-served", { generation: snapshot.generation })
        : t("nothing-served");
      const { means } = meaningOf(last.result, name);
      const text = t("failing-text", { means, since: moment(failingSince(syncs)), served });
      problems.push({
        ...about,
        key: `failing ${name} ${last.result}`,
        level: snapshot ? "warn" : "bad",
        title: t("failing-title", { name }),
        text,
      });
    }
    if (audience.tiers_missing) {
      problems.push({
        ...about,
        key: `tiers ${name}`,
        level: "warn",
        title: t("tiers-title", { name }),
        text: t("tiers-text"),
      });
    }
    if (reading.sum("rtad_snapshot_mixed", { audience: name }) === 1) {
      problems.push({
        ...about,
        key: `mixed ${name}`,
        level: "warn",
        title: t("mixed-title", { name }),
        text: t("mixed-text"),
      });
    }
  }
  return problems;
}

/** Shows all audience cards. */
export function showAudiences(status, reading, ask) {
  const parent = byId("cards");
  if (status.audiences.length === 0) {
    parent.replaceChildren(el("p", { class: "quiet" }, t("no-audiences")));
    return;
  }
  keyed(
    parent,
    status.audiences,
    ({ name }) => name,
    make,
    (element, audience) => update(cards.get(element), audience, reading, ask),
  );
}

/** Translates all cards into the current language. */
export function rebuildAudiences() {
  for (const element of byId("cards").children) cards.get(element)?.translate();
}

function make({ name }) {
  const card = {
    pills: el("span", { class: "pills" }),
    problem: el("div", { class: "notice", hidden: true }),
    facts: el("div"),
    body: el("tbody"),
    polls: el("details", { class: "polls", open: !isPhone() }),
    map: new ShardMap(name),
    summary: el("summary"),
    showMap: () => {},
  };
  card.translate = () => {
    setText(card.summary, t("map"));
    const heads = [t("when"), t("result"), t("took-head"), t("in-words")];
    card.polls.replaceChildren(
      el("summary", {}, t("polls")),
      table(`${t("polls")}: ${name}`, heads, card.body),
    );
    card.map.translate();
  };
  card.translate();
  // The first map is open, but not on phones; the others are loaded when opened.
  const isOpen = byId("cards").childElementCount === 0 && !isPhone();
  card.details = el("details", { class: "shards", open: isOpen }, card.summary, card.map.element);
  // At once, as a paused page has no next poll.
  card.details.addEventListener("toggle", () => card.showMap());
  const id = `audience-${name}`;
  const title = el("div", { class: "title" }, el("h3", { id: `${id}-title` }, name), card.pills);
  const properties = { class: "card audience", id, "aria-labelledby": `${id}-title`, tabIndex: -1 };
  const element = el(
    "article",
    properties,
    title,
    card.problem,
    card.facts,
    card.polls,
    card.details,
  );
  cards.set(element, card);
  return element;
}

function replace(parent, ...children) {
  const same =
    parent.childNodes.length === children.length &&
    children.every((child, index) => parent.childNodes[index].isEqualNode(child));
  if (!same) parent.replaceChildren(...children);
}

function update(card, audience, reading, ask) {
  const { name, required, available, snapshot, syncs } = audience;
  replace(
    card.pills,
    pill(
      available ? "good" : required ? "bad" : "warn",
      t(available ? "available" : "unavailable"),
    ),
    pill("calm", t(required ? "required" : "optional")),
  );
  showProblem(card.problem, audience);
  replace(card.facts, ...(snapshot ? [factsOf(audience, reading)] : []));
  rows(
    card.body,
    syncs,
    (poll) => `${poll.since_unix_seconds} ${poll.result} ${poll.generation ?? ""}`,
    (poll) => {
      const good = GOOD.includes(poll.result);
      const level = poll.result === "ok" ? "good" : good ? "calm" : "bad";
      return [whenOf(poll), pill(level, poll.result), took(poll.seconds), wordsOf(poll, audience)];
    },
  );
  card.details.hidden = !snapshot;
  const rolling =
    reading.sum("rtad_snapshot_mixed", { audience: name }) === 1
      ? Math.floor(reading.at / ROLLING)
      : "";
  card.showMap = () => {
    if (snapshot && card.details.open)
      card.map.update(`${snapshot.generation} ${snapshot.created_unix_seconds} ${rolling}`, ask);
  };
  card.showMap();
}

function showProblem(element, audience) {
  const [last] = audience.syncs;
  const why = whyUnavailable(audience);
  const isFailing = last && !GOOD.includes(last.result);
  element.hidden = !why && !isFailing;
  element.classList.toggle("bad", !audience.available && audience.required);
  const parts = why ? [el("p", {}, el("strong", {}, why))] : [];
  if (isFailing) {
    const { means, todo } = meaningOf(last.result, audience.name);
    parts.push(el("p", {}, el("strong", {}, means)), el("p", {}, `${t("what-to-do")} `, todo));
    if (last.error) parts.push(el("p", {}, `${t("in-the-log")} `, el("code", {}, last.error)));
  }
  replace(element, ...parts);
}

function factsOf({ snapshot, name, max_age_seconds: limit }, reading) {
  const fill = (stat) => percent(reading.sum("rtad_snapshot_fill_ratio", { audience: name, stat }));
  const { deltas } = snapshot;
  const ends = [snapshot.expires_unix_seconds, deltas.expires_unix_seconds].filter(Boolean);
  const hasDeltas = deltas.deltas > 0 || deltas.tombstones > 0;
  return facts([
    [
      t(snapshot.staged ? "staged-generation" : "generation"),
      count(snapshot.generation),
      moment(snapshot.created_unix_seconds),
    ],
    [
      t("age"),
      duration(snapshot.age_seconds),
      limit !== undefined && t("age-limit", { limit: duration(limit) }),
    ],
    [t("keys"), count(snapshot.keys)],
    [
      t("size"),
      bytes(snapshot.size_bytes),
      snapshot.keys > 0 &&
        t("bits-per-key", { n: ((8 * snapshot.size_bytes) / snapshot.keys).toFixed(1) }),
    ],
    [
      t("fpr"),
      oneIn(snapshot.expected_fpr),
      t("fpr-target", { target: oneIn(snapshot.target_fpr) }),
    ],
    snapshot.filter === "ribbon"
      ? [
          t("diverted"),
          percent(snapshot.keys > 0 ? snapshot.diverted_keys / snapshot.keys : 0),
          t("listed", { listed: short(snapshot.listed_keys) }),
        ]
      : [t("fill"), fill("mean"), t("fill-range", { min: fill("min"), max: fill("max") })],
    [t("filter"), snapshot.filter, snapshot.value_bits && t("with-values")],
    [
      t("deltas"),
      hasDeltas
        ? t("deltas-sum", { added: short(deltas.added), removed: short(deltas.removed) })
        : t("deltas-none"),
      hasDeltas &&
        t("deltas-detail", { deltas: count(deltas.deltas), tombstones: count(deltas.tombstones) }),
    ],
    [t("expires"), ends.length > 0 ? moment(Math.min(...ends)) : t("never")],
  ]);
}

function whenOf({ at_unix_seconds: at, since_unix_seconds: since, count: n }) {
  return n > 1
    ? t("polls-count", { n: count(n), since: moment(since), at: moment(at) })
    : moment(at);
}

/** The result of a poll. If an earlier poll loaded the generation, only its deltas are new. */
function wordsOf(poll, { name, syncs }) {
  const { result, generation, error } = poll;
  if (generation !== undefined) {
    const wasLoaded =
      syncs.slice(syncs.indexOf(poll) + 1).find((older) => older.generation !== undefined)
        ?.generation === generation;
    return t(wasLoaded ? "loaded-delta" : "loaded-generation", { generation: count(generation) });
  }
  const { means } = meaningOf(result, name);
  return error ? el("span", {}, means, " ", el("code", {}, error)) : means;
}
