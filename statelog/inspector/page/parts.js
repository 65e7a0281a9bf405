// Parts that several screens share.

import { get } from "./api.js";
import { h, notify, problem, put } from "./dom.js";
import { line, tree } from "./tree.js";

const PREVIEW_CHARACTERS_MAX = 160;
const ROWS_MIN = 50;
const ROWS_MAX = 500;

/** Return a value on one line, with the first members of a list or dict. */
export function preview(node) {
  const text = inside(node);
  return text.length > PREVIEW_CHARACTERS_MAX ? `${text.slice(0, PREVIEW_CHARACTERS_MAX - 1)}…` : text;
}

function inside(node) {
  if (!node.items?.length || node.t === "text" || node.t === "bytes") return line(node);
  const hasNames = node.t === "dict" || node.t === "object";
  const shown = node.items.map((item) => (hasNames ? `${item[0]}: ${line(item[1])}` : line(item)));
  if (node.size > node.items.length) shown.push("…");
  const [open, close] = hasNames ? "{}" : "[]";
  return `${open}${shown.join(", ")}${close}`;
}

/** Return the tree of a value. Requests to `path` return the rest of the value; see /api/…/value. */
export function valueTree(node, path, query) {
  return tree(node, path ? { open: 2, more: (at, start) => get(path, { ...query, path: at.join("."), start }) } : { open: 2 });
}

/** Return a section with a heading. */
export function card(title, ...children) {
  return h("section", { class: "card" }, h("h2", {}, title), ...children);
}

/** Return a list of names and facts. Facts that are null are left out. */
export function facts(...pairs) {
  const shown = pairs.filter(([name, fact]) => name && fact !== null && fact !== undefined && fact !== "");
  return h("dl", { class: "facts" }, shown.map(([name, fact]) => [h("dt", {}, name), h("dd", {}, fact)]));
}

/** Return the text for an empty list: what it would show, and the line of Python that creates such an item. */
export function nothing(title, text, python) {
  return h(
    "div",
    { class: "empty" },
    h("p", { class: "empty-title" }, title),
    text ? h("p", {}, text) : null,
    python ? h("pre", {}, python) : null,
  );
}

/** Return the head of a table. A bar separates a heading from its class: "size|number". */
export function columns(...names) {
  return h("thead", {}, h("tr", {}, names.map((each) => {
    const [name, kind] = each.split("|");
    return h("th", { scope: "col", class: kind ?? null }, name);
  })));
}

/**
 * Return {load, refresh, foot} for a list that is read page by page. `refresh` reads the shown pages again.
 *
 * @param ask(after, limit) returns a promise of a page. `after` is undefined for the first page, `limit` for the usual one.
 * @param draw(answer, isFirst) draws a page, and returns how many rows are then shown.
 * @param none() returns the element for an empty list.
 */
export function paged(ask, draw, none) {
  const foot = h("div", { class: "foot" });
  let asked = 0;
  let shown = 0;

  async function load(after, limit) {
    asked += after === undefined ? 1 : 0;
    const mine = asked;
    if (after !== undefined) put(foot, h("p", { class: "quiet" }, "Loading…"));
    try {
      const answer = await ask(after, limit);
      if (mine !== asked) return;
      const focused = document.activeElement?.getAttribute("href");
      shown = draw(answer, after === undefined);
      if (focused && document.activeElement === document.body)
        document.querySelector(`#screen a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
      const hasNext = answer.next !== null && answer.next !== undefined;
      if (hasNext) put(foot, h("button", { type: "button", onclick: () => load(answer.next) }, shown ? "Show more" : "Look further"));
      else put(foot, shown ? null : none());
    } catch (error) {
      if (mine === asked) put(foot, problem(error));
    }
  }

  return { load, foot, refresh: () => load(undefined, shown > ROWS_MIN ? Math.min(shown, ROWS_MAX) : undefined) };
}

/** Return a function that calls `work` at most once a second, and again if it was called meanwhile. */
export function calmly(work, pause = 1000) {
  let timer = null;
  let isWanted = false;
  return () => {
    isWanted = true;
    if (timer !== null) return;
    const run = async () => {
      timer = null;
      if (!isWanted || document.hidden) return;
      isWanted = false;
      timer = setTimeout(run, pause);
      try {
        await work();
      } catch {
        // The next change requests it again.
      }
    };
    timer = setTimeout(run, 0);
  };
}

/** Put filters into the address without drawing the screen again. Empty filters are left out. */
export function keepInAddress(screen, query) {
  const given = Object.entries(query).filter(([, value]) => value);
  const text = new URLSearchParams(given).toString();
  history.replaceState(null, "", `#/${screen}${text ? `?${text}` : ""}`);
}

/** Return tabs. The left and right keys move between them. */
export function tabs(names, current, choose) {
  const buttons = names.map(([name, title]) =>
    h("button", { type: "button", role: "tab", "data-tab": name, onclick: () => pick(name) }, title),
  );
  function pick(name) {
    for (const each of buttons) {
      each.setAttribute("aria-selected", String(each.dataset.tab === name));
      each.tabIndex = each.dataset.tab === name ? 0 : -1;
    }
    choose(name);
  }
  const bar = h("div", {
    class: "tabs",
    role: "tablist",
    onkeydown: (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      const at = buttons.indexOf(document.activeElement);
      const next = step && buttons[at + step];
      if (!next) return;
      event.preventDefault();
      next.focus();
      next.click();
    },
  }, buttons);
  pick(current);
  return bar;
}

/** Copy text to the clipboard, and show a notice. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    notify("Copied");
  } catch {
    notify("The browser does not allow this page to copy.");
  }
}
