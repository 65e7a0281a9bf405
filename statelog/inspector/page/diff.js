// The changes between two versions.

import { characters, count, counted, empty, h } from "./dom.js";
import { isCut, line, tree } from "./tree.js";

const SIGNS = { added: "+", removed: "−", changed: "~" };
const LINES_MAX = 400;

/** Return the elements for the changes in an answer of /api/thread/diff. */
export function changes(answer) {
  if (!answer.total) return empty("Nothing changed.", answer.old ? "Both versions have the same state." : "The state is empty.");
  const more = answer.total - answer.changes.length;
  return h(
    "div",
    { class: "changes" },
    answer.changes.map(change),
    more > 0 ? h("p", { class: "quiet" }, `${counted(more, "more change")}: compare versions that are nearer to each other.`) : null,
  );
}

function change(given) {
  const path = given.path.map((step, at) => (typeof step === "number" ? `[${step}]` : at ? `.${step}` : step)).join("");
  return h(
    "section",
    { class: `change is-${given.kind}` },
    h("h3", {}, h("span", { class: "sign", "aria-label": given.kind }, SIGNS[given.kind]), h("span", { class: "path" }, path)),
    body(given),
  );
}

function body({ old, new: now }) {
  if (old && now && isWhole(old) && isWhole(now)) return texts(old.v, now.v);
  return h("div", { class: "sides" }, side(old, "was"), side(now, "is"));
}

function isWhole(node) {
  return node.t === "text" && !isCut(node);
}

function side(node, name) {
  if (!node) return null;
  return h("div", { class: `side ${name}` }, node.size > 0 && node.items ? tree(node, { open: 2 }) : node.t === "text" ? h("pre", {}, node.v + (isCut(node) ? ` … ${count(node.size - characters(node.v))} more` : "")) : h("code", {}, line(node)));
}

/** Return the difference of two texts: the differing lines, or for texts of one line the differing part. */
function texts(old, now) {
  const before = old.split("\n");
  const after = now.split("\n");
  if (before.length === 1 && after.length === 1) {
    const [start, end] = common([...old], [...now]);
    return h("div", { class: "sides" }, h("pre", { class: "side was" }, marked([...old], start, end)), h("pre", { class: "side is" }, marked([...now], start, end)));
  }
  const [start, end] = common(before, after);
  const rows = [...around(before.slice(0, start), true)];
  for (const [sign, text] of lines(before.slice(start, before.length - end), after.slice(start, after.length - end))) rows.push(h("div", { class: sign === " " ? "same" : sign === "+" ? "is" : "was" }, `${sign} ${text}`));
  rows.push(...around(end ? before.slice(-end) : [], false));
  return h("pre", { class: "lines" }, rows);
}

function around(same, isAbove) {
  const shown = isAbove ? same.slice(-2) : same.slice(0, 2);
  const rest = same.length - shown.length;
  const note = rest ? [h("div", { class: "quiet" }, `  … ${counted(rest, "equal line")}`)] : [];
  const rows = shown.map((text) => h("div", { class: "same" }, `  ${text}`));
  return isAbove ? [...note, ...rows] : [...rows, ...note];
}

function common(old, now) {
  const most = Math.min(old.length, now.length);
  let start = 0;
  while (start < most && old[start] === now[start]) start += 1;
  let end = 0;
  while (end < most - start && old[old.length - 1 - end] === now[now.length - 1 - end]) end += 1;
  return [start, end];
}

function marked(letters, start, end) {
  return [letters.slice(0, start).join(""), h("mark", {}, letters.slice(start, letters.length - end).join("")), letters.slice(letters.length - end).join("")];
}

/** Yield [sign, line] by the longest common subsequence. For long texts, yield all old lines, then all new lines. */
function* lines(old, now) {
  if (old.length > LINES_MAX || now.length > LINES_MAX) {
    for (const text of old) yield ["-", text];
    for (const text of now) yield ["+", text];
    return;
  }
  const width = now.length + 1;
  const lengths = new Uint32Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i -= 1)
    for (let j = now.length - 1; j >= 0; j -= 1)
      lengths[i * width + j] = old[i] === now[j] ? lengths[(i + 1) * width + j + 1] + 1 : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
  let i = 0;
  let j = 0;
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      yield [" ", old[i]];
      i += 1;
      j += 1;
    } else if (j >= now.length || (i < old.length && lengths[(i + 1) * width + j] >= lengths[i * width + j + 1])) yield ["-", old[i++]];
    else yield ["+", now[j++]];
  }
}
