// A value as a tree with foldable nodes. statelog/inspector/values.py describes the nodes.

import { characters, count, counted, h, problem, put, visible } from "./dom.js";

const SIGNS = { list: "[ ]", tuple: "( )", set: "{ }", frozenset: "{ }", dict: "{ }", object: "" };
const NOUNS = { dict: "key", object: "field" };
const BYTES_SHOWN = 32;

/** Return the number of characters or bytes of a node that an answer contains. */
function had(node) {
  return node.t === "bytes" ? node.v.length / 2 : characters(node.v);
}

/** Return true if an answer contains only a part of a text or of bytes. */
export function isCut(node) {
  return had(node) < node.size;
}

/**
 * Return the tree of a node.
 *
 * @param node the value.
 * @param options open: the number of levels that are open at first (1). more(path, start): returns a promise of the
 *     node at a path (a list of positions), with its items or text from `start` on; without `more`, cut values stay
 *     cut. edit(path): called when a person edits a value; without `edit`, rows do not have that button. marked(path):
 *     returns true if the name is shown as changed. opened: a Set of the opened paths, kept for the tree of
 *     another version.
 */
export function tree(node, options = {}) {
  const root = h("div", { class: "tree", role: "tree", onkeydown: move });
  put(root, branches(node, [], 0, { open: 1, ...options }));
  const first = root.querySelector("[role=treeitem]");
  if (first) first.tabIndex = 0;
  else put(root, row(node, null, [], 0, { open: 1, ...options }));
  return root;
}

/** Return the text of a node on one line. */
export function line(node) {
  switch (node.t) {
    case "null":
      return "null";
    case "bool":
    case "int":
    case "float":
      return String(node.v);
    case "text":
      return JSON.stringify(node.v) + (isCut(node) ? "…" : "");
    case "bytes":
      return `${counted(node.size, "byte")}${node.size ? ": " : ""}${node.v.slice(0, 2 * BYTES_SHOWN)}${node.size > BYTES_SHOWN ? "…" : ""}`;
    case "other":
      return node.v.includes(`${node.name}(`) ? node.v : `${node.name} ${node.v}`;
    case "quarantined":
      return `quarantined by ${node.check}: ${node.reason}`;
    default:
      return `${node.name ? `${node.name} ` : ""}${SIGNS[node.t] ?? ""} ${counted(node.size, NOUNS[node.t] ?? "item")}`.trim();
  }
}

/** Return the first members of a node on one line. Return an empty text if the answer does not contain them. */
function preview(node) {
  if (!node.items?.length || node.t === "text") return "";
  const parts = node.items.slice(0, 4).map((item) => {
    const [name, each] = Array.isArray(item) ? item : [null, item];
    const told = each.items !== undefined || each.size > 0 && each.v === undefined ? (SIGNS[each.t] || each.name) : line(each);
    return (name ? `${name}: ` : "") + (told.length > 40 ? `${told.slice(0, 39)}…` : told);
  });
  return parts.join(", ");
}

function branches(node, path, depth, options, start = 0, names = "") {
  const hasNames = node.t === "dict" || node.t === "object";
  return (node.items ?? []).map((item, at) =>
    row(hasNames ? item[1] : item, hasNames ? item[0] : start + at, [...path, start + at], depth, options, names),
  );
}

function row(node, name, path, depth, options, above = "") {
  const folds = node.size > 0 && node.t !== "text" && node.t !== "bytes";
  const names = `${above}/${JSON.stringify(name)}`;
  const isOpen = node.items !== undefined && (depth < options.open - 1 || options.opened?.has(names));
  const item = h("div", {
    role: "treeitem",
    tabindex: -1,
    "aria-level": depth + 1,
    "aria-expanded": folds ? String(Boolean(isOpen)) : null,
  });
  const group = folds ? h("div", { role: "group" }) : null;
  item.append(
    h(
      "div",
      { class: "row", onclick: folds ? (event) => toggle(event, item) : null },
      h("span", { class: "fold", "aria-hidden": "true" }),
      name === null ? null : h("span", { class: `key${typeof name === "number" ? " at" : ""}${options.marked?.(path) ? " is-changed" : ""}` }, name === "" ? '""' : name),
      value(node, path, options),
      options.edit ? h("button", { type: "button", class: "edit", tabindex: -1, "aria-label": `Edit ${name}`, onclick: () => options.edit(path) }, "edit") : null,
    ),
  );
  if (group) {
    item.append(group);
    item.fill = () => {
      item.fill = null;
      if (node.items === undefined) return void show(group, node, path, depth + 1, options, 0);
      put(group, branches(node, path, depth + 1, options, 0, names), rest(node, node.items.length, path, depth + 1, options));
    };
    item.keep = (isKept) => (isKept ? options.opened?.add(names) : options.opened?.delete(names));
    if (isOpen) item.fill();
  }
  return item;
}

function value(node, path, options) {
  const isBytes = node.t === "bytes" && node.size > BYTES_SHOWN;
  if (isBytes || (node.t === "text" && (node.v.includes("\n") || isCut(node) || node.v.length > 120))) return long(node, path, options);
  const short = preview(node);
  return h("span", { class: node.t }, node.t === "text" ? node.v || '""' : line(node), short ? h("span", { class: "preview" }, short) : null);
}

/** Return a long text, or bytes, with a button for the rest. */
function long(node, path, options) {
  const isBytes = node.t === "bytes";
  const noun = isBytes ? "bytes" : "characters";
  const start = isBytes && options.more ? node.v.slice(0, 2 * BYTES_SHOWN) : node.v;
  const text = h("span", { class: `${node.t} long` }, start);
  const block = h("span", { class: "block" }, text);
  let shown = had({ ...node, v: start });
  if (shown >= node.size) return block;
  if (!options.more) {
    block.append(h("span", { class: "quiet" }, `… ${count(node.size - shown)} more ${noun}`));
    return block;
  }
  const button = h("button", { type: "button", class: "more" }, `show all ${count(node.size)} ${noun}`);
  button.onclick = async (event) => {
    event.stopPropagation();
    try {
      const next = await options.more(path, shown);
      text.append(visible(next.v));
      shown += had(next);
      if (shown >= node.size) button.remove();
      else put(button, `show more (${count(shown)} of ${count(node.size)} ${noun})`);
    } catch (error) {
      block.append(problem(error));
    }
  };
  block.append(button);
  return block;
}

async function show(group, node, path, depth, options, start) {
  if (!options.more) return put(group, h("div", { class: "quiet" }, "The rest of the value is not in this answer."));
  const note = h("div", { class: "quiet" }, "Loading…");
  group.append(note);
  try {
    const answer = await options.more(path, start);
    note.remove();
    group.append(...branches(answer, path, depth, options, start));
    const button = rest(node, start + answer.items.length, path, depth, options);
    if (button) group.append(button);
  } catch (error) {
    note.replaceWith(problem(error));
  }
}

function rest(node, shown, path, depth, options) {
  if (shown >= node.size) return null;
  if (!options.more) return h("div", { class: "quiet" }, `${count(node.size - shown)} more`);
  const button = h("button", { type: "button", class: "more" }, `show more (${count(shown)} of ${count(node.size)})`);
  button.onclick = () => {
    const group = button.parentElement;
    button.remove();
    show(group, node, path, depth, options, shown);
  };
  return button;
}

function toggle(event, item) {
  if (event?.target instanceof Element && event.target.closest("button")) return;
  if (getSelection()?.toString()) return;
  const isOpen = item.getAttribute("aria-expanded") === "true";
  item.setAttribute("aria-expanded", String(!isOpen));
  item.keep?.(!isOpen);
  if (!isOpen) item.fill?.();
}

// The keys of a tree: up and down move, right opens, left closes or goes to the parent, Home and End go to the ends.
function move(event) {
  const item = event.target;
  if (!(item instanceof Element) || item.getAttribute("role") !== "treeitem") return;
  const isOpen = item.getAttribute("aria-expanded");
  const rows = [...event.currentTarget.querySelectorAll("[role=treeitem]")].filter((each) => each.offsetParent !== null);
  const at = rows.indexOf(item);
  let next = null;
  if (event.key === "ArrowDown") next = rows[at + 1];
  else if (event.key === "ArrowUp") next = rows[at - 1];
  else if (event.key === "Home") next = rows[0];
  else if (event.key === "End") next = rows.at(-1);
  else if (event.key === "ArrowRight" && isOpen === "false") toggle(null, item);
  else if (event.key === "ArrowRight" && isOpen === "true") next = rows[at + 1];
  else if (event.key === "ArrowLeft" && isOpen === "true") toggle(null, item);
  else if (event.key === "ArrowLeft") next = item.parentElement.closest("[role=treeitem]");
  else if ((event.key === "Enter" || event.key === " ") && isOpen !== null) toggle(null, item);
  else return;
  event.preventDefault();
  if (!next) return;
  item.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}
