// Two runs side by side, with the first difference marked.

import { get } from "./api.js";
import { setClock } from "./clock.js";
import { count, counted, h } from "./dom.js";
import { card, nothing, paged, preview } from "./parts.js";
import { outcome, runLink, status } from "./runs.js";

const WHAT = { call: "another call", arguments: "other arguments", outcome: "another outcome", missing: "only one run has it" };

/** Draw the screen: #/compare/LEFT?with=RIGHT. */
export async function show(root, params) {
  const left = params.id;
  const right = params.with ?? "";
  if (!left || !right) {
    root.append(nothing("Two runs are compared here.", "Open a run, and name the other one under Facts.", 'durable.compare_runs(store, "run-1", "run-2")'));
    return;
  }
  const summary = h("div", {});
  const grid = h("div", { class: "sides-by-side", role: "table", "aria-label": "Calls of both runs" });
  let first = null;
  let shown = 0;
  const list = paged(
    (after) => get("runs/compare", { left, right, offset: after }),
    (answer, isFirst) => {
      setClock(answer.now);
      if (isFirst) {
        first = answer.first;
        shown = 0;
        grid.replaceChildren(header(answer.left), header(answer.right));
        summary.replaceChildren(verdict(answer));
      }
      for (const row of answer.rows) grid.append(...pair(row, shown++ === first));
      return shown;
    },
    () => nothing("Neither run has recorded a call."),
  );
  root.append(h("div", { class: "head" }, h("a", { class: "up", href: runLink(left) }, "Run"), h("h1", {}, "Two runs")), summary, grid, list.foot);
  await list.load();
}

function header(run) {
  return h(
    "div",
    { class: "side-head", role: "columnheader" },
    h("h2", {}, h("a", { href: runLink(run.id) }, run.id), " ", status(run.status)),
    h("p", { class: "quiet" }, `${run.workflow}(${[run.args, run.kwargs].filter((each) => each.size).map((each) => preview(each).slice(1, -1)).join(", ")})`),
    h("p", {}, outcome(run)),
  );
}

function verdict(answer) {
  if (answer.count === 0 && answer.runs.length === 0) return h("p", { class: "verdict" }, "The runs did the same.");
  const parts = [];
  if (answer.runs.length) parts.push(`The runs differ in ${answer.runs.join(" and ")}.`);
  if (answer.count) parts.push(`${counted(answer.count, "call")} of ${count(answer.total)} ${answer.count === 1 ? "differs" : "differ"}.`);
  else parts.push("Their recorded calls are the same.");
  const jump = h("button", { type: "button", onclick: () => document.getElementById("first-difference")?.scrollIntoView({ block: "center" }) }, "Go to the first difference");
  return h("p", { class: "verdict" }, parts.join(" "), " ", answer.first === null ? null : jump);
}

function pair(row, isFirst) {
  const kind = `side-cell${row.what ? " differs" : ""}${isFirst ? " is-first" : ""}`;
  const cells = [row.left, row.right].map((step) => h("div", { class: `${kind}${step ? "" : " is-missing"}`, role: "cell" }, step ? call(row, step) : h("span", { class: "quiet" }, "not called")));
  const note = row.what ? h("div", { class: `difference${isFirst ? " is-first" : ""}`, id: isFirst ? "first-difference" : null }, isFirst ? `First difference: ${WHAT[row.what]}` : WHAT[row.what]) : null;
  return note ? [note, ...cells] : cells;
}

function call(row, step) {
  return [
    h("div", { class: "call-name" }, h("span", { class: "place" }, `${row.is_compensation ? "undo " : ""}${row.place}`), h("span", { class: "what" }, step.name || step.kind), h("span", { class: "quiet kind" }, step.kind)),
    step.error ? h("p", { class: "damaged error-text" }, step.error) : h("p", { class: "preview" }, step.result ? preview(step.result) : step.status),
  ];
}
