// The screen of one run: a waterfall of its calls, and the details of the selected call.

import { describeStore, get, live } from "./api.js";
import { length, serverNow, setClock, since, until } from "./clock.js";
import { count, counted, h, moment, problem, put } from "./dom.js";
import { answerForm, forkForm, runActions } from "./runforms.js";
import { calmly, card, copy, facts, preview, valueTree } from "./parts.js";
import { outcome, runLink, status } from "./runs.js";
import { threadLink } from "./threads.js";

const WAITS = ["gate", "recv", "sleep"];
const CALLS = ["step", "transact", "child"];
const GAP_SHARE = 0.5; // A wait that takes more than this share of the run is drawn shorter.
const GAP_WIDTH = 0.2;

/** Draw the screen. */
export async function show(root, params) {
  const id = params.id;
  const store = await describeStore();
  const head = h("div", { class: "run-head" });
  const waterfall = h("div", { class: "waterfall" });
  const detail = h("div", { class: "run-detail", id: "detail", "aria-live": "polite" });
  let run = null;
  let selected = null;
  let drawn = null;

  async function load() {
    const shown = run?.steps.rows.length ?? 0;
    const answer = await get("run", { id, limit: Math.min(Math.max(200, shown), 500) });
    setClock(answer.now);
    const text = JSON.stringify({ ...answer, now: null });
    if (text === drawn) return; // Nothing has changed, so keep what the person has opened.
    drawn = text;
    run = answer;
    draw();
  }

  function isFilledIn() {
    const fields = [...detail.querySelectorAll("form :is(input, textarea)")];
    return detail.querySelector("form.fork") !== null || fields.some((field) => field.value || field === document.activeElement);
  }

  async function more() {
    const answer = await get("run", { id, offset: run.steps.next });
    run.steps.rows.push(...answer.steps.rows);
    run.gates.push(...answer.gates);
    run.steps.next = answer.steps.next;
    drawWaterfall();
  }

  function draw() {
    put(
      head,
      h(
        "div",
        { class: "head" },
        h("a", { class: "up", href: "#/runs" }, "Runs"),
        h("h1", {}, run.id),
        status(run.status),
        runActions(run, store.allow_writes, load),
      ),
      h(
        "p",
        { class: "run-line" },
        h("span", {}, run.workflow),
        h("a", { href: threadLink(run.thread, run.branch === "main" ? {} : { branch: run.branch }) }, `thread ${run.thread}${run.branch === "main" ? "" : `, branch ${run.branch}`}`),
        h("span", {}, "began ", since(run.created)),
        run.ended ? h("span", {}, `took ${length(Date.parse(run.ended) - Date.parse(run.created))}`) : null,
        run.parent ? h("a", { href: runLink(run.parent) }, `child of ${run.parent}`) : null,
        run.forked_from
          ? [
              h("a", { href: runLink(run.forked_from) }, `forked from ${run.forked_from}${run.forked_at === null ? "" : ` at ${run.forked_at}`}`),
              h("a", { href: `#/compare/${encodeURIComponent(run.forked_from)}?with=${encodeURIComponent(run.id)}` }, "compare"),
            ]
          : null,
      ),
      run.problems.map((each) => problem({ name: `${each.what} cannot be read: ${each.error}`, message: each.message, facts: each.facts })),
    );
    drawWaterfall();
    if (!isFilledIn()) drawDetail();
  }

  function drawWaterfall() {
    const focused = document.activeElement?.closest?.(".call-row")?.dataset.key;
    put(waterfall, ...calls());
    if (focused) waterfall.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  function calls() {
    const rows = run.steps.rows;
    const whole = { key: "run", title: run.id, kind: "run", isRun: true };
    const scale = scaleOf(run);
    const drawn = [axis(scale), rowOf(whole, [bar("run", scale, Date.parse(run.created), run.ended ? Date.parse(run.ended) : serverNow())])];
    let before = run.steps.before ? Date.parse(run.steps.before) : Date.parse(run.created);
    let isUndoing = false;
    for (const step of rows) {
      if (step.is_compensation && !isUndoing) {
        isUndoing = true;
        drawn.push(h("div", { class: "waterfall-note" }, "Compensations, the last step first:"));
      }
      const ended = step.ended ? Date.parse(step.ended) : null;
      drawn.push(rowOf(callOf(step), marksOf(step, scale, before), step));
      before = Math.max(before, ended ?? before, Date.parse(step.began));
    }
    for (const each of run.parked) drawn.push(h("div", { class: "waterfall-note damaged" }, `Not undone: ${each}`));
    if (rows.length === 0) drawn.push(h("div", { class: "waterfall-note" }, run.problems.some((each) => each.what === "steps") ? "The calls cannot be read." : "No call is recorded yet. A call appears when it ends, or when it begins to wait."));
    if (run.steps.next !== null) drawn.push(h("div", { class: "foot" }, h("button", { type: "button", onclick: more }, `Show more (${count(rows.length)} of ${count(run.steps.total)})`)));
    return drawn;
  }

  function rowOf(call, marks, step) {
    const isSelected = selected === call.key || (selected === null && call.isRun);
    return h(
      "button",
      {
        type: "button",
        class: `call-row${call.isRun ? " is-run" : ""}${step?.is_compensation ? " is-undo" : ""}`,
        "data-key": call.key,
        "aria-pressed": String(isSelected),
        onclick: () => select(call.isRun ? null : call.key),
      },
      h("span", { class: "call-name" }, call.isRun ? null : h("span", { class: "place" }, step.place), h("span", { class: "what" }, call.title), call.isRun ? null : h("span", { class: "quiet kind" }, call.kind)),
      h("span", { class: "track" }, marks),
    );
  }

  function select(key) {
    selected = key;
    for (const each of waterfall.querySelectorAll(".call-row")) each.setAttribute("aria-pressed", String(each.dataset.key === (key ?? "run")));
    drawDetail();
  }

  function drawDetail() {
    const step = run.steps.rows.find((each) => callOf(each).key === selected);
    put(detail, step ? stepDetail(run, step, store.allow_writes, load) : runDetail(run));
  }

  waterfall.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const rows = [...waterfall.querySelectorAll(".call-row")];
    const next = step && rows[rows.indexOf(document.activeElement) + step];
    if (!next) return;
    event.preventDefault();
    next.focus();
    next.click();
  });
  put(root, head, h("div", { class: "run" }, waterfall, detail));
  await load();
  const refresh = calmly(load);
  return live((change) => {
    const isOurs = change.threads.includes(run.thread) || change.keys.some((key) => key.startsWith("durable/"));
    if (change.all || isOurs) refresh();
  });
}

function callOf(step) {
  return { key: `${step.is_compensation ? "undo." : ""}${step.place}`, title: step.name || step.kind, kind: step.is_compensation ? `undo ${step.kind}` : step.kind };
}

// --- times -------------------------------------------------------------------------------

/** Return {at(time), times, gap, ms}. `at` is the position of a time, from 0 to 1. One long wait is drawn shorter. */
function scaleOf(run) {
  const begin = Date.parse(run.created);
  const end = Math.max(run.ended ? Date.parse(run.ended) : serverNow(), begin + 1);
  const times = [begin, end];
  for (const step of run.steps.rows) {
    for (const time of [step.began, step.ended, ...step.failed_attempts.flatMap((each) => [each.time, each.next])]) {
      if (time) times.push(Math.min(Math.max(Date.parse(time), begin), end));
    }
  }
  times.sort((a, b) => a - b);
  let gap = null;
  for (let at = 1; at < times.length; at += 1) {
    if (times[at] - times[at - 1] > (end - begin) * GAP_SHARE) gap = [times[at - 1], times[at]];
  }
  if (!gap || times.length < 4) return { begin, end, gap: null, at: (time) => (Math.min(Math.max(time, begin), end) - begin) / (end - begin) };
  const others = end - begin - (gap[1] - gap[0]);
  const width = others > 0 ? 1 - GAP_WIDTH : 0;
  const share = (ms) => (others > 0 ? (ms / others) * width : 0);
  return {
    begin,
    end,
    gap,
    at: (time) => {
      const inside = Math.min(Math.max(time, begin), end);
      if (inside <= gap[0]) return share(inside - begin);
      if (inside < gap[1]) return share(gap[0] - begin) + (GAP_WIDTH * (inside - gap[0])) / (gap[1] - gap[0]);
      return 1 - share(end - inside);
    },
  };
}

function axis(scale) {
  const marks = [h("span", { class: "tick", style: { left: "0%" } }, "0"), h("span", { class: "tick is-end", style: { right: "0" } }, length(scale.end - scale.begin))];
  if (scale.gap) {
    const [from, to] = scale.gap.map(scale.at);
    if (from > 0.2) marks.push(h("span", { class: "tick", style: { right: `max(${(1 - from) * 100}%, 88px)` } }, length(scale.gap[0] - scale.begin)));
    marks.push(h("span", { class: "tick is-gap", style: { left: `${from * 100}%`, width: `${(to - from) * 100}%` }, title: "This wait is drawn shorter." }, to > 0.85 ? "" : `⋯ ${length(scale.gap[1] - scale.gap[0])} ⋯`));
  } else marks.push(h("span", { class: "tick is-middle", style: { left: "50%" } }, length((scale.end - scale.begin) / 2)));
  return h("div", { class: "axis", "aria-hidden": "true" }, h("span", {}), h("span", { class: "track" }, marks));
}

function bar(kind, scale, from, to, title) {
  const left = scale.at(from);
  const width = Math.max(scale.at(to) - left, 0);
  return h("span", { class: `bar is-${kind}`, title, style: { left: `${left * 100}%`, width: `${width * 100}%` } });
}

function marksOf(step, scale, before) {
  const began = Date.parse(step.began);
  const ended = step.ended ? Date.parse(step.ended) : null;
  const kind = step.is_compensation ? "undo" : step.status === "failed" ? "failed" : WAITS.includes(step.kind) ? "wait" : "step";
  const marks = [];
  let from = before;
  for (const each of step.failed_attempts) {
    const time = Date.parse(each.time);
    marks.push(bar("guess", scale, Math.min(from, time), time, `attempt ${each.number}`), point("failed", scale, time, `attempt ${each.number}: ${each.error}`));
    from = Date.parse(each.next);
    marks.push(bar("pause", scale, time, Math.min(from, scale.end), "waits for the next attempt"));
  }
  const to = ended ?? (["begun", "tried"].includes(step.status) ? scale.end : began);
  if (step.failed_attempts.length) marks.push(bar(`${kind}${ended ? "" : " is-open"}`, scale, Math.min(from, to), to, "the last attempt"));
  else if (to > began) marks.push(bar(`${kind}${ended ? "" : " is-open"}`, scale, began, to, `${moment(step.began)}, ${length(to - began)}`));
  else if (CALLS.includes(step.kind)) marks.push(bar("guess", scale, Math.min(before, to), to, "Only the end is recorded. The bar begins at the record before."));
  marks.push(point(step.status === "failed" ? "failed" : kind, scale, to, step.status));
  return marks;
}

function point(kind, scale, time, title) {
  return h("span", { class: `point is-${kind}`, title, style: { left: `${scale.at(time) * 100}%` } });
}

// --- detail --------------------------------------------------------------------------------

function runDetail(run) {
  const here = (part) => ({ id: run.id, part });
  return [
    run.error ? card("Error", h("p", { class: "damaged error-text" }, run.error), run.traceback ? h("details", {}, h("summary", {}, "Traceback"), h("pre", { class: "traceback" }, run.traceback)) : null) : null,
    run.value && run.status === "completed" ? card("Result", valueTree(run.value, "run/value", here("value"))) : null,
    !run.error && !run.ended ? card("Now", h("p", {}, outcome(run) || run.status), run.status === "running" ? null : workerNote(run)) : null,
    card("Arguments", run.args.size ? valueTree(run.args, "run/value", here("args")) : null, run.kwargs.size ? valueTree(run.kwargs, "run/value", here("kwargs")) : null, run.args.size + run.kwargs.size ? null : h("p", { class: "quiet" }, "none")),
    run.replaced.length ? card("Replaced results", facts(...run.replaced.map(([place, node]) => [`call ${place}`, preview(node)]))) : null,
    pages(run, "events", "Events", h("dl", { class: "facts" }), named),
    pages(run, "mail", "Unread mail", h("dl", { class: "facts" }), named),
    pages(run, "chunks", "Stream", h("ol", { class: "chunks" }), (each) => [h("li", {}, h("span", { class: "quiet" }, `call ${each.step.slice(each.step.lastIndexOf("/") + 1)}${each.attempt > 1 ? `, attempt ${each.attempt}` : ""}`), " ", preview(each.value))]),
    card(
      "Facts",
      facts(["workflow", run.workflow], ["queue", run.queue], ["priority", run.priority ? String(run.priority) : null], ["began", moment(run.created)], ["ended", run.ended && moment(run.ended)], ["taken up", run.attempts ? counted(run.attempts, "time") : null]),
      h("details", { class: "python" }, h("summary", {}, "Python"), h("pre", {}, python(run)), h("button", { type: "button", onclick: () => copy(python(run)) }, "Copy")),
      h("form", { class: "compare-form", onsubmit: compareWith(run) }, h("label", {}, "Compare with run ", h("input", { name: "other", required: true, spellcheck: "false" })), h("button", {}, "Compare")),
    ),
  ];
}

function named(each) {
  return [h("dt", {}, each.name), h("dd", {}, preview(each.value))];
}

/** Return a card with a list of a run, which is read page by page. The answer for the run has the first page. */
function pages(run, of, title, place, drawn) {
  if (!run[of].rows.length) return null;
  const foot = h("div", { class: "foot" });
  const show = (page) => {
    place.append(...page.rows.flatMap(drawn));
    put(foot, page.next === null ? null : h("button", { type: "button", onclick: () => more(page.next) }, "Show more"));
  };
  const more = (after) => get("run/list", { id: run.id, of, after }).then(show, (error) => put(foot, problem(error)));
  show(run[of]);
  return card(title, place, foot);
}

function compareWith(run) {
  return (event) => {
    event.preventDefault();
    const other = event.target.elements.other.value.trim();
    if (other) location.hash = `#/compare/${encodeURIComponent(run.id)}?with=${encodeURIComponent(other)}`;
  };
}

function python(run) {
  return `info = durable.get_run(store, ${JSON.stringify(run.id)})\nsteps = durable.steps(store, ${JSON.stringify(run.id)})`;
}

function workerNote(run) {
  if (run.status === "parked") return h("p", { class: "quiet" }, "A compensation failed for good. The run goes on when somebody calls durable.resume.");
  const answered = run.gates.filter((each) => each.status !== "pending").map((each) => `gate ${each.id}`);
  const isOpen = run.status === "suspended" && run.waiting_for.some((each) => each.startsWith("gate ") && !answered.includes(each));
  return [isOpen ? h("p", { class: "quiet" }, "Select the gate in the list of calls to see it, and to answer it.") : null, h("p", { class: "quiet" }, `This page does not run workflows. A process that has the code takes the run up${isOpen ? " once the gate is answered" : ""}:`), h("pre", {}, `durable.run_worker(store, [${run.workflow}])`)];
}

function stepDetail(run, step, allowWrites, reload) {
  const gate = step.kind === "gate" ? run.gates.find((each) => each.place === step.place) : null;
  const part = { id: run.id, part: `${step.is_compensation ? "undo" : "result"} ${step.place}` };
  const hasStart = step.ended !== step.began;
  return [
    card(
      step.name || step.kind,
      facts(
        ["state", h("span", {}, status(step.status === "begun" && WAITS.includes(step.kind) ? "waits" : step.status), step.status === "closed" ? " the run ended while the call waited" : step.status === "cut" ? " the workflow cancelled the call" : step.status === "tried" ? " failed, and is tried again" : null)],
        ["call", `${step.is_compensation ? "compensation, " : ""}${step.kind} at ${step.place}`],
        [hasStart ? "first record" : null, moment(step.began)],
        ["ended", step.ended && moment(step.ended)],
        ["attempts", step.attempts > 1 ? count(step.attempts) : null],
      ),
      CALLS.includes(step.kind) ? h("p", { class: "quiet" }, "A run records results. Of the arguments of a call it records a fingerprint only.") : null,
    ),
    step.error ? card("Error", h("p", { class: "damaged error-text" }, step.error)) : null,
    step.failed_attempts.length
      ? card("Failed attempts", h("ol", { class: "attempts" }, step.failed_attempts.map((each) => h("li", {}, h("p", { class: "damaged error-text" }, each.error), h("p", { class: "quiet" }, `${moment(each.time)}, next attempt ${length(Date.parse(each.next) - Date.parse(each.time))} later`)))))
      : null,
    step.result && step.status === "done" ? card("Result", valueTree(step.result, "run/value", part)) : null,
    step.child
      ? card("Child", step.child.problem ? problem({ name: step.child.problem.error, ...step.child.problem }) : [h("p", {}, h("a", { href: runLink(step.child.id) }, step.child.id), " ", status(step.child.status)), h("p", {}, outcome(step.child))])
      : null,
    gate ? gateCard(gate, allowWrites, reload) : null,
    step.is_compensation ? null : forkForm(run, step, allowWrites),
  ];
}

function gateCard(gate, allowWrites, reload) {
  return card(
    "Gate",
    facts(
      ["id", h("code", {}, gate.id)],
      ["state", gate.status],
      ["opened", since(gate.opened)],
      ["deadline", gate.due && gate.status === "pending" ? until(gate.due) : gate.due && moment(gate.due)],
      ["answer", gate.approved === null ? null : gate.approved ? "approved" : "rejected"],
      ["by", gate.by],
    ),
    valueTree(gate.payload, "run/value", { id: gate.id.slice(0, gate.id.lastIndexOf("/")), part: `gate ${gate.id}` }),
    gate.status === "pending" ? answerForm(gate, allowWrites, reload) : null,
  );
}
