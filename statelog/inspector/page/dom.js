// Makes elements from data. Text is never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

// Control characters, bidirectional marks and overrides, invisible separators and tag characters: they could hide text
// or show it in another order. This list leaves out line breaks, tabs, and the joiners U+200C and U+200D, which scripts
// and emoji need.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\ufffb\ud800-\udfff]|[\u{e0000}-\u{e0fff}]/gu;

/** Return text in which invisible characters are escaped, such as \u202e. */
export function visible(text) {
  return String(text).replace(HIDDEN, (each) => {
    const code = each.codePointAt(0).toString(16);
    return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, "0")}`;
  });
}

/**
 * Return an element. Attributes: `on...` adds a listener, `style` takes an object, `true` sets an empty attribute, and
 * `null`, `undefined` and `false` do not set an attribute. Children: elements, texts, numbers, lists of these; `null`
 * is left out.
 */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Return an SVG element; see `h`. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : name === "title" || name === "aria-label" ? visible(value) : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : visible(child));
  }
}

/** Set the children of an element. Elements that are already its children stay in the document. */
export function sync(element, wanted) {
  const stays = new Set(wanted);
  for (const child of [...element.children]) if (!stays.has(child)) child.remove();
  wanted.forEach((child, at) => element.children[at] === child || element.insertBefore(child, element.children[at] ?? null));
}

/** Replace the children of an element. */
export function put(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/** Return a whole number with separators of thousands. `Intl` would load tables that take longer than the first screen. */
export function count(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ",");
}

const PAIR = /[\ud800-\udbff][\udc00-\udfff]/g;

/** Return the number of characters of a text as Python counts them. JavaScript counts an emoji as two. */
export function characters(text) {
  return text.length - (text.match(PAIR)?.length ?? 0);
}

/** Return "1 thread", "2 threads". */
export function counted(number, noun, nouns = `${noun}s`) {
  return `${count(number)} ${number === 1 ? noun : nouns}`;
}

/** Return a size in bytes, with three digits. */
export function size(bytes) {
  let value = bytes;
  for (const unit of ["B", "KB", "MB", "GB"]) {
    if (value < 1000 || unit === "GB") return `${unit === "B" ? value : value.toPrecision(3)} ${unit}`;
    value /= 1024;
  }
}

/** Return a time as text in the time zone of the reader. */
export function moment(iso) {
  const time = new Date(iso);
  const two = (number) => String(number).padStart(2, "0");
  const day = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  return `${day} ${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}.${String(time.getMilliseconds()).padStart(3, "0")}`;
}

/** Return a paragraph for an empty list. */
export function empty(title, ...more) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), more.length ? h("p", {}, ...more) : null);
}

const SEARCH_PAUSE_MS = 150;

/** Return a function that calls `work` after it was not called for a while. */
export function pausing(work) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, SEARCH_PAUSE_MS);
  };
}

/** Return a search field. It calls `changed` when the person has paused typing. */
export function searchField(placeholder, label, value, changed) {
  return h("input", { type: "search", placeholder, "aria-label": label, value, spellcheck: "false", oninput: pausing(changed) });
}

/** Show a short notice at the end of the page. */
export function notify(text) {
  const place = document.getElementById("notice");
  put(place, h("p", {}, text));
  clearTimeout(notify.timer);
  notify.timer = setTimeout(() => put(place), 5000);
}

/** Return an error of the server as an element: its class, message and facts. */
export function problem(error) {
  const facts = Object.entries(error.facts ?? {}).map(([name, value]) => `${name}: ${value}`);
  return h(
    "div",
    { class: "problem", role: "alert" },
    h("strong", {}, error.name || "Error"),
    h("p", {}, error.message),
    facts.length ? h("p", { class: "quiet" }, facts.join(" · ")) : null,
  );
}
