// The list of problems, and announcements to screen readers.

import { byId, el, keyed, pill } from "./dom.js";
import { list, t } from "./words.js";

/** Screen readers announce text in an element that was empty for this time. */
const PAUSE = 100;
const pending = [];

/** Shows problems, each with key, level, title, text and maybe a link. Changes are announced. */
export function showAlerts(problems) {
  const parent = byId("problems");
  const shown =
    problems.length > 0 ? problems : [{ key: "calm", level: "good", title: t("calm") }];
  keyed(
    parent,
    shown,
    ({ key }) => key,
    () => el("li"),
    (element, problem) => {
      const inside = problem.level === "good" ? pill("good", problem.title) : alert(problem);
      if (!element.firstChild?.isEqualNode(inside)) element.replaceChildren(inside);
    },
  );
  const before = parent.dataset.keys;
  parent.dataset.keys = shown.map(({ key }) => key).join("\n");
  if (before !== undefined && before !== parent.dataset.keys)
    announce(list(shown.map(({ title }) => title)));
}

function alert({ level, title, text, href }) {
  const heading = el("strong", {}, href ? el("a", { href }, title) : title);
  return el("div", { class: `notice ${level}` }, heading, el("p", {}, text));
}

/** Announces a text to screen readers, even if it equals the last one. */
export function announce(text) {
  pending.push(el("p", {}, text));
  if (pending.length > 1) return;
  byId("announce").replaceChildren();
  setTimeout(() => byId("announce").replaceChildren(...pending.splice(0)), PAUSE);
}
