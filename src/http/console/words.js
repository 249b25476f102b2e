// Texts in two languages, and formats of numbers.

import { en } from "./en.js";
import { zh } from "./zh.js";

export const LANGUAGES = { en, zh };
const KEPT_AS = "rtad-language";

let language = chosen();

function chosen() {
  try {
    const kept = localStorage.getItem(KEPT_AS);
    if (kept in LANGUAGES) return kept;
  } catch {
    // Storage may be blocked: use the browser's language.
  }
  return (navigator.languages?.[0] ?? navigator.language ?? "").toLowerCase().startsWith("zh")
    ? "zh"
    : "en";
}

export const currentLanguage = () => language;

export function switchLanguage() {
  language = language === "en" ? "zh" : "en";
  try {
    localStorage.setItem(KEPT_AS, language);
  } catch {
    // Storage may be blocked: the choice lasts until the page is closed.
  }
  translatePage();
}

/** The text of a key, with `{name}` replaced. */
export function t(key, values = {}) {
  const words = LANGUAGES[language][key] ?? en[key];
  if (words === undefined) return key;
  return words.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}

/** Whether a key has a text. A newer pod may send unknown results. */
export const knows = (key) => key in en;

/** Fills the marked elements of the page. */
export function translatePage() {
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  document.title = t("title");
  for (const element of document.querySelectorAll("[data-t]"))
    element.textContent = t(element.dataset.t);
  for (const element of document.querySelectorAll("[data-t-label]")) {
    element.setAttribute("aria-label", t(element.dataset.tLabel));
  }
}

const NOTHING = "–";

export const count = (number) =>
  Number.isFinite(number) ? number.toLocaleString(language) : NOTHING;

/** A number with three significant digits, or all integer digits. */
export function rate(number) {
  if (!Number.isFinite(number)) return NOTHING;
  const digits = number === 0 || number >= 100 ? 0 : number >= 10 ? 1 : 2;
  return number.toLocaleString(language, {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}

export const short = (number) =>
  number.toLocaleString(language, { notation: "compact", maximumSignificantDigits: 3 });

export function percent(share) {
  if (!Number.isFinite(share)) return NOTHING;
  const digits = share === 0 || share >= 0.0995 ? 0 : share >= 0.00995 ? 1 : 2;
  return share.toLocaleString(language, {
    style: "percent",
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}

/** Duration of a request or poll. */
export function took(seconds) {
  if (seconds === undefined) return NOTHING;
  if (seconds === Infinity) return "> 250 ms";
  const [size, unit] = seconds < 0.001 ? [1e6, "µs"] : seconds < 1 ? [1e3, "ms"] : [1, "s"];
  return `${(seconds * size).toLocaleString(language, { maximumSignificantDigits: 3 })} ${unit}`;
}

/** A long duration, in its two largest units. */
export function duration(seconds) {
  const units = [
    ["days", 86400],
    ["hours", 3600],
    ["minutes", 60],
    ["seconds", 1],
  ];
  const first = units.findIndex(([, size]) => seconds >= size);
  if (first < 0) return t("seconds", { n: 0 });
  let rest = Math.floor(seconds);
  const parts = units.slice(first, first + 2).map(([unit, size]) => {
    const n = Math.floor(rest / size);
    rest -= n * size;
    return n > 0 ? t(unit, { n }) : "";
  });
  return parts.filter(Boolean).join(" ");
}

export function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = Math.min(units.length - 1, number > 0 ? Math.floor(Math.log10(number) / 3) : 0);
  const value = number / 1000 ** power;
  return `${value.toLocaleString(language, { maximumSignificantDigits: 3 })} ${units[power]}`;
}

/** A false-positive rate, as one in N non-members. */
export function oneIn(fpr) {
  if (!(fpr > 1e-12)) return t("one-in-none");
  return t("one-in", { n: short(1 / fpr) });
}

export const clock = (unixSeconds) =>
  new Date(unixSeconds * 1000).toLocaleTimeString(language, { hourCycle: "h23" });

/** A time of day, with the date if it is not today, in the browser's zone or in `timeZone`. */
export function moment(unixSeconds, timeZone) {
  const date = new Date(unixSeconds * 1000);
  const dayOf = (date) =>
    date.toLocaleDateString(language, { month: "short", day: "numeric", timeZone });
  const time = date.toLocaleTimeString(language, { hourCycle: "h23", timeZone });
  return dayOf(date) === dayOf(new Date()) ? time : `${dayOf(date)} ${time}`;
}

export const list = (words) => new Intl.ListFormat(language, { type: "conjunction" }).format(words);
