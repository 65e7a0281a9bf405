// The list of runs, the newest first.

import { get, live } from "./api.js";
import { length, setClock, since, until } from "./clock.js";
import { h, pausing, searchField } from "./dom.js";
import { calmly, columns, keepInAddress, nothing, paged, preview } from "./parts.js";

const STATUSES = ["queued", "running", "suspended", "parked", "completed", "failed", "cancelled"];
const AGES = [["", "any age"], ["newer 3600", "last hour"], ["newer 86400", "last day"], ["newer 604800", "last week"], ["older 3600", "older than an hour"], ["older 86400", "older than a day"]];
const HOW = `@durable.workflow
def order(run, amount):
    return run.step(charge, amount)

durable.run(store, order, 840, id="order-1")`;

/** Return the address of a run's screen. */
export function runLink(id) {
  return `#/run/${encodeURIComponent(id)}`;
}

/** Return a badge with the state of a run. */
export function status(text) {
  return h("span", { class: `status is-${text}` }, text);
}

/** Return the outcome of a run, or the event that it waits for. */
export function outcome(run) {
  if (run.error) return h("span", { class: "damaged" }, run.error);
  if (run.status === "completed" && run.value) return preview(run.value);
  if (run.waiting_for?.length) return h("span", {}, `waits for ${run.waiting_for.join(", ")}`, run.due ? [" · ", until(run.due)] : null);
  if (run.due) return h("span", {}, "not before: ", until(run.due));
  if (run.status === "queued") return "waits for a worker";
  return "";
}

/** Draw the screen. */
export async function show(root, params) {
  const body = h("tbody", {});
  const table = h("table", { class: "list", id: "runs", hidden: true }, columns("run", "state", "workflow|wide", "queue|wide", "began", "took|wide number"), body);
  const workflows = h("datalist", { id: "workflows" });
  const queues = h("datalist", { id: "queues" });
  const known = { workflows: new Set(), queues: new Set() };
  const changed = pausing(() => start());
  const state = h("select", { "aria-label": "State", onchange: start }, h("option", { value: "" }, "any state"), STATUSES.map((each) => h("option", { value: each }, each)));
  const age = h("select", { "aria-label": "Age", onchange: start }, AGES.map(([value, title]) => h("option", { value }, title)));
  const workflow = h("input", { list: "workflows", placeholder: "any workflow", "aria-label": "Workflow", oninput: changed, spellcheck: "false" });
  const queue = h("input", { list: "queues", placeholder: "any queue", "aria-label": "Queue", oninput: changed, spellcheck: "false" });
  const error = searchField("error has …", "Text of the error", params.error ?? "", changed);
  state.value = STATUSES.includes(params.status) ? params.status : "";
  age.value = AGES.some(([each]) => each === params.age) ? params.age : "";
  workflow.value = params.workflow ?? "";
  queue.value = params.queue ?? "";

  const isFiltered = () => [state, age, workflow, queue, error].some((each) => each.value);
  const list = paged(
    (after, limit) => {
      const [kind, seconds] = age.value.split(" ");
      return get("runs", { status: state.value, workflow: workflow.value, queue: queue.value, error: error.value, [`${kind || "newer"}_s`]: seconds, after, limit });
    },
    (answer, isFirst) => {
      setClock(answer.now);
      if (isFirst) body.replaceChildren();
      body.append(...answer.runs.map(row));
      for (const run of answer.runs) {
        learn(known.workflows, workflows, run.workflow);
        learn(known.queues, queues, run.queue);
      }
      table.hidden = body.childElementCount === 0;
      return body.childElementCount;
    },
    () =>
      isFiltered()
        ? nothing("No run fits these filters.", "A filter of workflow and queue compares the whole name.")
        : nothing("The store has no runs yet.", "A run is a durable execution of a workflow. The first one appears here.", HOW),
  );

  function start() {
    keepInAddress("runs", { status: state.value, age: age.value, workflow: workflow.value, queue: queue.value, error: error.value });
    return list.load();
  }

  root.append(
    h("div", { class: "head" }, h("h1", {}, "Runs"), h("div", { class: "filters" }, state, workflow, queue, age, error, workflows, queues)),
    table,
    list.foot,
  );
  await start();
  const refresh = calmly(list.refresh);
  return live((change) => {
    if (change.all || change.keys.some((key) => key.startsWith("durable/"))) refresh();
  });
}

function learn(known, place, name) {
  if (!name || known.has(name) || known.size >= 100) return;
  known.add(name);
  place.append(h("option", { value: name }));
}

function row(run) {
  const name = h("td", { class: "name" }, h("a", { href: runLink(run.id) }, run.id));
  if (run.problem) return h("tr", {}, name, h("td", { colspan: 5, class: "damaged" }, `Not readable: ${run.problem.message}`));
  name.append(h("div", { class: "under" }, outcome(run)));
  return h(
    "tr",
    {},
    name,
    h("td", {}, status(run.status)),
    h("td", { class: "wide agent" }, run.workflow),
    h("td", { class: "wide agent" }, run.queue),
    h("td", {}, since(run.created)),
    h("td", { class: "wide number" }, run.ended ? length(Date.parse(run.ended) - Date.parse(run.created)) : ""),
  );
}
