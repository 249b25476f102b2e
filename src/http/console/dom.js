// DOM helpers. Elements are created once and changed only where needed, so that focus, selection
// and screen readers keep their position.

export const byId = (id) => document.getElementById(id);

/** An element. `class` and names with a dash are attributes. Text is never markup. */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (
      name === "class" ||
      name === "role" ||
      name === "scope" ||
      name === "lang" ||
      name.includes("-")
    ) {
      element.setAttribute(name, value);
    } else {
      element[name] = value;
    }
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

/** An SVG element. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const made = new WeakMap();

/**
 * Makes the children of `parent` match `items`, in order. Elements with the same key are kept and
 * updated. Items with equal keys have one element each.
 */
export function keyed(parent, items, keyOf, make, update) {
  const before = made.get(parent) ?? new Map();
  const after = new Map();
  let next = parent.firstElementChild;
  for (const item of items) {
    let key = keyOf(item);
    while (after.has(key)) key = `${key} again`;
    const element = before.get(key) ?? make(item);
    after.set(key, element);
    if (next === element) next = next.nextElementSibling;
    else parent.insertBefore(element, next);
    update(element, item);
  }
  for (const [key, element] of before) if (!after.has(key)) element.remove();
  made.set(parent, after);
}

/**
 * The rows of a table. A cell is a text or a node; the first one is the row's header. Each cell
 * knows the name of its column, for screens without room for columns.
 */
export function rows(body, items, keyOf, cellsOf) {
  const heads = body.parentElement.tHead.rows[0].cells;
  keyed(
    body,
    items,
    keyOf,
    () => el("tr"),
    (row, item) => {
      cellsOf(item).forEach((cell, column) => {
        let element = row.children[column];
        if (!element) {
          element = column === 0 ? el("th", { scope: "row" }) : el("td");
          row.append(element);
        }
        const label = heads[column].textContent;
        if (element.dataset.label !== label) element.dataset.label = label;
        if (typeof cell === "string") setText(element, cell);
        else if (!element.firstChild?.isEqualNode(cell)) element.replaceChildren(cell);
      });
    },
  );
}

/** A table in a box that scrolls on narrow screens. */
export function table(caption, heads, body) {
  const head = el("tr", {}, ...heads.map((text) => el("th", { scope: "col" }, text)));
  const inside = el(
    "table",
    {},
    el("caption", { class: "unseen" }, caption),
    el("thead", {}, head),
    body,
  );
  return el("div", { class: "scroll", tabIndex: 0, role: "group", "aria-label": caption }, inside);
}

/** A box with a title. */
export function card(title, ...inside) {
  return el("article", { class: "card" }, el("h3", {}, title), ...inside);
}

/** A word with a sign, so that its meaning does not depend on color alone. */
export function pill(level, text) {
  const sign = { good: "✓", warn: "!", bad: "✕", calm: "•", no: "✕", in: "●", out: "○" }[level];
  return el(
    "span",
    { class: `pill ${level}` },
    el("span", { "aria-hidden": "true" }, `${sign} `),
    text,
  );
}

/** Names with values. `small` is additional text after the value. */
export function facts(list) {
  const one = ([name, value, small]) =>
    el(
      "div",
      {},
      el("dt", {}, name),
      el("dd", {}, value, small ? el("small", {}, ` ${small}`) : undefined),
    );
  return el("dl", { class: "facts" }, ...list.filter(Boolean).map(one));
}
