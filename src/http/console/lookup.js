// Lookup form: explains the answer for an id or a captured request.

import { announce } from "./alerts.js";
import { byId, el, facts, pill, rows, table } from "./dom.js";
import { bytes, duration, list, oneIn, t } from "./words.js";

const KINDS = ["md5", "idfa", "imei", "oaid", "android_id", "mac", "caid", "gaid", "openid"];
const ANY = "any";
/** A request that is read as that of every platform. */
const ANY_PLATFORM = "platform";
/** Levels of the pills. */
const LEVELS = {
  usable: "good",
  malformed: "bad",
  member: "in",
  not_member: "out",
  unavailable: "bad",
};

let platforms = [];
/** Number of the last lookup; results of earlier ones are dropped. */
let asked = 0;
/** Whether the type was detected from the input, not selected by the user. */
let isAutomatic = false;
/** Shows the last result again, in the current language. */
let again = () => {};

/** Lists the kinds of ids and the platforms. */
export function offer(status) {
  const names = status.platforms.map(({ name }) => name);
  if (platforms.join() !== names.join() || byId("what").options.length === 0) {
    platforms = names;
    rebuildLookup();
  }
}

/** Translates the form into the current language. */
export function rebuildLookup() {
  const what = byId("what");
  const chosen = what.value || ANY;
  const option = (value, text) => el("option", { value }, text);
  const ids = el(
    "optgroup",
    { label: t("an-id") },
    option(ANY, t("any-kind")),
    ...KINDS.map((kind) => option(kind, kind)),
  );
  const requests = platforms.map((name) => option(`platform ${name}`, t("request-of", { name })));
  if (requests.length > 1) requests.unshift(option(ANY_PLATFORM, t("request-of-any")));
  requests.push(option("platform api", t("request-of", { name: "/v1/decide" })));
  what.replaceChildren(ids, el("optgroup", { label: t("a-request") }, ...requests));
  what.value = chosen;
  if (what.selectedIndex < 0) what.value = ANY;
  again();
}

/** A text longer than any id, or a JSON value, is a request. */
const isRequest = (text) =>
  text.length > 128 || /^[{[]/.test(text) || /^(0x)?[0-9a-f\s]{34,}$/i.test(text);

export function startLookup(ask) {
  const what = byId("what");
  byId("pasted").addEventListener("input", () => {
    const isOne = platforms.length > 0 && isRequest(byId("pasted").value.trim());
    if (isOne === isAutomatic || (isOne && what.value !== ANY)) return;
    const request = platforms.length > 1 ? ANY_PLATFORM : `platform ${platforms[0]}`;
    what.value = isOne ? request : ANY;
    isAutomatic = isOne;
  });
  what.addEventListener("change", () => (isAutomatic = false));
  byId("pasted").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("ask").requestSubmit();
  });
  byId("ask").addEventListener("submit", async (event) => {
    event.preventDefault();
    const number = (asked += 1);
    const text = byId("pasted").value;
    if (text.trim() === "")
      return say(() => [el("p", { class: "notice", role: "alert" }, t("nothing-pasted"))]);
    say(() => [el("p", { class: "quiet" }, t("asking"))]);
    try {
      const { show, inShort } = await explain(ask, text, what.value);
      if (number !== asked) return;
      say(show);
      announce(t("answers-are", { answers: inShort() }));
    } catch (error) {
      if (number === asked)
        say(() => [
          el(
            "p",
            { class: "notice bad", role: "alert" },
            t("ask-failed", { error: error.message }),
          ),
        ]);
    }
  });
}

function say(make) {
  again = () => byId("answer").replaceChildren(...make());
  again();
}

/** Fetches the explanation; returns functions that show it and that summarize the decisions. */
async function explain(ask, text, what) {
  const post = (path, type, body) =>
    ask(path, { method: "POST", headers: { "Content-Type": type }, body });
  const explained = async (platform) => {
    const path = `v1/explain/${encodeURIComponent(platform)}`;
    return (await post(path, "application/octet-stream", text)).json();
  };
  if (what === ANY_PLATFORM) {
    const found = likely(await Promise.all(platforms.map(explained)));
    const one = (explanation) => `${explanation.platform}: ${inShort(explanation)}`;
    return { show: () => found.flatMap(showRequest), inShort: () => found.map(one).join("; ") };
  }
  if (what.startsWith("platform ")) {
    const explanation = await explained(what.slice("platform ".length));
    return { show: () => showRequest(explanation), inShort: () => inShort(explanation) };
  }
  const question = { id: text.trim(), kind: what === ANY ? null : what };
  const { readings } = await (
    await post("v1/explain", "application/json", JSON.stringify(question))
  ).json();
  const one = ({ kinds, ...reading }) => `${kinds.join(", ")}: ${inShort(reading)}`;
  return { show: () => readings.map(showReading), inShort: () => readings.map(one).join("; ") };
}

/**
 * The explanations of the platforms that the request may be of: those that read ids in it, else
 * those that can read it, else all.
 */
function likely(explanations) {
  const readable = explanations.filter(({ failure }) => failure?.cause !== "bad_body");
  const withIds = readable.filter(({ ids }) => ids.some(({ result }) => result !== "malformed"));
  return [withIds, readable, explanations].find((found) => found.length > 0);
}

const inShort = ({ strategies }) =>
  strategies
    .map(({ id, device, bid }) => `${device ?? id} ${t(bid ? "bid" : "no-bid")}`)
    .join(", ");

/** One reading of the id. */
function showReading(reading) {
  const { kinds, result, canonical, md5, shard, audiences, strategies } = reading;
  const logDevice = reading.log_device;
  const because =
    result === "malformed" && kinds.length > 1 ? t("because-no-kind") : t(`because-${result}`);
  return el(
    "article",
    { class: "card reading" },
    el(
      "div",
      { class: "title" },
      el("h3", {}, t("read-as", { kinds: kinds.join(", ") })),
      pill(LEVELS[result] ?? "warn", t(`id-${result}`)),
    ),
    result === "usable" ? undefined : el("p", {}, because),
    md5 &&
      facts([
        canonical && [t("canonical"), code(canonical)],
        [t("md5"), code(md5)],
        [t("shard"), code(shard)],
        logDevice && [t("log-device"), code(logDevice)],
      ]),
    strategiesTable(strategies, audiences),
    result === "usable" ? audiencesTable(audiences) : undefined,
    chanceNote(audiences),
  );
}

/** The explanation of a captured request. */
function showRequest(explanation) {
  const { platform, kind, body, access, failure, ids, notes, audiences, strategies, answer } =
    explanation;
  const title = el("div", { class: "title" }, el("h3", {}, t("request-title", { name: platform })));
  const isPing = notes.some(({ what }) => what === "ping");
  const parts = [
    title,
    failure &&
      el(
        "p",
        { class: "notice bad" },
        el("strong", {}, `${t(`failure-${failure.cause}`)}.`),
        failure.detail ? " " : undefined,
        failure.detail && el("code", {}, failure.detail),
      ),
    facts([
      [t("asked-at"), explanation.path, kind],
      [
        t("body"),
        t("body-read", { size: bytes(body.size_bytes), encoding: t(`encoding-${body.read_as}`) }),
      ],
      [t("access"), t(`access-${access}`)],
      explanation.log_device && [t("log-device"), code(explanation.log_device)],
      [
        t("the-answer"),
        t("answer-size", { status: answer.status, size: bytes(answer.size_bytes) }),
      ],
    ]),
    strategies.length > 0
      ? strategiesTable(strategies, audiences, failure, ids)
      : el("p", {}, isPing ? "ping" : t("no-strategies")),
    el("h4", {}, t("ids-in-it")),
    ids.length > 0 ? idsTable(ids) : el("p", { class: "quiet" }, t("no-ids")),
    audiences.length > 0 ? audiencesTable(audiences) : undefined,
    chanceNote(audiences),
    notes.length > 0 ? el("h4", {}, t("also-said")) : undefined,
    notes.length > 0 ? facts(notes.map(({ what, value }) => [what, value])) : undefined,
    el("h4", {}, t("the-answer")),
    el("pre", { tabIndex: 0, "aria-label": t("the-answer") }, `${answer.text}\n\n${answer.hex}`),
  ];
  return [el("article", { class: "card reading" }, ...parts)];
}

const code = (text) => el("code", {}, text);

/** A table with its rows. */
function filled(caption, heads, items, keyOf, cellsOf) {
  const body = el("tbody");
  const made = table(caption, heads, body);
  rows(body, items, keyOf, cellsOf);
  return made;
}

function strategiesTable(strategies, audiences, failure, ids = []) {
  // Each id of a batch is a device of its own.
  const audiencesOf = ({ device }) =>
    (device !== undefined && ids.find(({ value }) => value === device)?.audiences) || audiences;
  return filled(
    t("by-strategy"),
    [t("strategy"), t("decision"), t("because")],
    strategies.map((one, at) => ({ ...one, at })),
    ({ id, device, at }) => (device === undefined ? id : at),
    (one) => [
      (one.device === undefined ? "" : `${one.device}: `) +
        (one.strategy === null || one.strategy === one.id ? one.id : `${one.id} = ${one.strategy}`),
      pill(one.bid ? "good" : "no", t(one.bid ? "bid" : "no-bid")),
      [because(one, audiencesOf(one), failure), ...bucketsOf(one), ...valueOf(one), ...(one.shadow ? [t("in-shadow")] : [])].join("; "),
    ],
  );
}

/** The device's parts in the strategy's experiments. */
function bucketsOf({ buckets }) {
  return (buckets ?? []).map((one) =>
    t(one.unit ? "bucket-by" : "bucket-without-id", { ...one, kinds: list(one.kinds) }),
  );
}

/** The value of a strategy's bid. */
function valueOf({ values }) {
  const chosen = (values ?? []).filter((one) => one.chosen);
  return chosen.map(({ audience, tier, bucket, value }) => {
    const numbers = list(Object.entries(value).map(([key, number]) => `${key} ${number}`));
    const conditions = [audience, tier && t("tier", { tier }), bucket].filter(Boolean);
    if (!conditions.length) return t("value-default", { numbers });
    return t("value-of", { numbers, of: conditions.join(", ") });
  });
}

/** The reason of a strategy's decision, with the audiences that caused it. */
function because({ bid, reason, exclude, when, unknown }, audiences, failure) {
  const outcome = t(bid ? "bid" : "no-bid");
  const members = (names) => {
    const said = audiences.filter(({ name, answer }) => names.includes(name) && answer === "member");
    return list(said.map(({ name }) => name));
  };
  switch (reason) {
    case "member":
      return t("why-member", { names: members(exclude) });
    case "not_member":
      return t("why-not_member", { names: list(exclude) });
    case "no_device":
      return t("why-no_device", { outcome });
    case "rule":
    case "bucket":
      return t(bid ? "why-rule-holds" : "why-rule-fails", { rule: when.rule });
    case "unavailable":
      return failure
        ? t("why-failed", { outcome })
        : t("why-unavailable", { names: list(Object.values(unknown).flat()), outcome });
    default:
      return t(`why-${reason}`);
  }
}

function audiencesTable(audiences) {
  return filled(
    t("audiences"),
    [t("audience"), t("says"), t("served-from")],
    audiences,
    ({ name }) => name,
    ({ name, answer, tier, snapshot }) => [
      name,
      answer
        ? el("span", {}, pill(LEVELS[answer], t(answer)), ...(tier === undefined ? [] : [" ", t("tier", { tier })]))
        : t("not-asked"),
      snapshot
        ? t("generation-and-age", {
            generation: snapshot.generation,
            age: duration(snapshot.age_seconds),
          })
        : "–",
    ],
  );
}

/** A note on false positives. */
function chanceNote(audiences) {
  const notes = audiences
    .filter(({ answer, snapshot }) => answer === "member" && snapshot?.expected_fpr > 1e-12)
    .map(({ name, snapshot }) =>
      t("chance-note", { audience: name, fpr: oneIn(snapshot.expected_fpr) }),
    );
  return notes.length > 0 ? el("p", { class: "quiet" }, notes.join(" ")) : undefined;
}

function idsTable(ids) {
  return filled(
    t("ids-in-it"),
    [t("field"), t("value"), t("result"), t("md5"), t("shard"), t("says")],
    ids.map((id, at) => ({ ...id, at })),
    ({ at }) => at,
    (id) => {
      const details = el("span", {}, pill(LEVELS[id.result] ?? "warn", t(`id-${id.result}`)));
      if (id.result !== "usable") details.append(" ", t(`because-${id.result}`));
      const members = (id.audiences ?? []).map(({ name, answer, tier }) =>
        [`${name}: ${t(answer)}`, ...(tier === undefined ? [] : [t("tier", { tier })])].join(", "),
      );
      const key = el("span", {}, code(id.md5 ?? "–"));
      if (id.canonical) key.append(el("br"), `${t("canonical")}: `, code(id.canonical));
      if (id.log_device) key.append(el("br"), `${t("log-device")}: `, code(id.log_device));
      const field = el("span", {}, id.path, el("br"), el("small", {}, id.kind));
      return [
        field,
        code(id.value),
        details,
        key,
        id.shard ? code(id.shard) : "–",
        members.join("; ") || "–",
      ];
    },
  );
}
