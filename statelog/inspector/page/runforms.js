// The actions of a person on a run: answer a gate, cancel, retry, resume, and run again from a call.
// The inspector does not run code of workflows. Each answer names the worker that must continue the run.

import { get, post } from "./api.js";
import { h, notify, problem, put } from "./dom.js";
import { card } from "./parts.js";
import { runLink } from "./runs.js";

function readOnly(python) {
  return h("p", { class: "quiet" }, "The store is open for reading. Start ", h("code", {}, "statelog ui --allow-writes"), ", or write: ", h("code", {}, python));
}

/** Throw an error that names the field if a text is not JSON. An empty text is allowed. */
function check(field) {
  try {
    if (field.value.trim()) JSON.parse(field.value);
  } catch (error) {
    field.focus();
    const label = field.closest("label").firstChild.textContent;
    throw Object.assign(new Error(error.message), { name: `Not JSON: ${label}` });
  }
}

function said(changed) {
  return changed.worker ? `Recorded. A worker takes the run up: ${changed.worker}` : `The run has ${changed.run.status}.`;
}

/** Return the buttons that the state of a run allows. */
export function runActions(run, allowWrites, reload) {
  const place = h("span", { class: "actions-place" });
  const act = (path, question) => async () => {
    if (question && !confirm(question)) return;
    try {
      notify(said(await post(`run/${path}`, { run: run.id })));
      await reload();
    } catch (error) {
      put(place, problem(error));
    }
  };
  const button = (title, path, question) => h("button", { type: "button", disabled: !allowWrites, title: allowWrites ? null : "The store is open for reading. Start statelog ui --allow-writes to act.", onclick: act(path, question) }, title);
  const isOpen = !["completed", "failed", "cancelled"].includes(run.status);
  return h(
    "span",
    { class: "run-actions" },
    isOpen ? button("Cancel", "cancel", `Cancel run ${run.id}? A worker undoes its steps.`) : null,
    run.status === "failed" ? button("Retry", "retry", null) : null,
    ["parked", "suspended"].includes(run.status) ? button("Resume", "resume", null) : null,
    place,
  );
}

/** Return the form that answers a gate. */
export function answerForm(gate, allowWrites, reload) {
  const python = `durable.answer(store, ${JSON.stringify(gate.id)}, approved=True, by="ann")`;
  if (!allowWrites) return readOnly(python);
  const failure = h("div", {});
  const by = h("input", { name: "by", spellcheck: "false" });
  const payload = h("textarea", { name: "payload", rows: 2, spellcheck: "false", placeholder: "null" });
  const send = (approved) => async (event) => {
    event.preventDefault();
    put(failure);
    try {
      check(payload);
      notify(said(await post("run/answer", { gate: gate.id, approved, by: by.value, payload: payload.value })));
      form.remove();
      await reload();
    } catch (error) {
      put(failure, problem(error));
    }
  };
  const form = h(
    "form",
    { class: "answer", onsubmit: (event) => event.preventDefault() },
    h("label", {}, "Your name", by),
    h("label", {}, "Payload, as JSON (may be empty)", payload),
    h("div", { class: "buttons" }, h("button", { type: "button", class: "main", onclick: send(true) }, "Approve"), h("button", { type: "button", onclick: send(false) }, "Reject")),
    failure,
  );
  return form;
}

const REPLACEABLE = ["step", "child", "recv"];

/** Return the card that begins another run from a call: unchanged, with another result, or with other arguments. */
export function forkForm(run, step, allowWrites) {
  const id = JSON.stringify(run.id);
  if (!allowWrites) return card("Run again from here", readOnly(`durable.fork(store, ${id}, at=${JSON.stringify(step.place)}, id="…")`));
  const open = h("button", { type: "button", onclick: () => open.replaceWith(form(run, step)) }, "Run again from here…");
  return card("Run again from here", h("p", { class: "quiet" }, "A new run begins with what was recorded before this call, in a branch of the thread. This run stays as it is."), open);
}

function form(run, step) {
  const failure = h("div", {});
  const editors = h("div", {});
  const name = h("input", { name: "id", value: `${run.id}-again`, required: true, spellcheck: "false" });
  const area = (label, what) => {
    const text = h("textarea", { name: what, rows: 5, spellcheck: "false" });
    const note = h("span", { class: "quiet" }, "Loading the recorded value…");
    get("run/text", { id: run.id, part: what === "result" ? `result ${step.place}` : what }).then(
      (answer) => {
        if (!text.value && answer.json !== null) text.value = answer.json;
        put(note, answer.why);
      },
      (error) => put(note, error.message),
    );
    return h("label", {}, label, text, note);
  };
  const choices = [
    ["same", "as it was: the call is made again"],
    ...(REPLACEABLE.includes(step.kind) ? [["result", "with another result of this call: the call is not made"]] : []),
    ["arguments", "with other arguments of the workflow"],
  ];
  const choose = (choice) => {
    if (choice === "result") put(editors, area("Result, as JSON", "result"));
    else if (choice === "arguments") put(editors, area("Arguments, a JSON list", "args"), area("Arguments by name, a JSON object", "kwargs"));
    else put(editors);
  };
  const radios = choices.map(([value, title], at) => {
    const radio = h("input", { type: "radio", name: "how", value, onchange: () => choose(value) });
    radio.checked = at === 0;
    return h("label", { class: "check" }, radio, title);
  });
  const drawn = h(
    "form",
    {
      class: "fork",
      onsubmit: async (event) => {
        event.preventDefault();
        put(failure);
        const fields = drawn.elements;
        const how = fields.how.value;
        const body = { run: run.id, at: step.place, id: name.value.trim() };
        if (how === "result") body.replace = { [step.place]: fields.result.value };
        if (how === "arguments") Object.assign(body, { args: fields.args.value, kwargs: fields.kwargs.value });
        try {
          drawn.querySelectorAll("textarea").forEach(check);
          const changed = await post("run/fork", body);
          put(
            drawn,
            h("p", {}, "Run ", h("a", { href: runLink(changed.run.id) }, changed.run.id), " waits for a worker. This page has no code of workflows. A process that has the code takes it up:"),
            h("pre", {}, changed.worker),
            h("p", {}, h("a", { href: `#/compare/${encodeURIComponent(run.id)}?with=${encodeURIComponent(changed.run.id)}` }, "Compare the two runs")),
          );
        } catch (error) {
          put(failure, problem(error));
        }
      },
    },
    h("fieldset", {}, h("legend", {}, `Run again from ${step.name || step.kind} (place ${step.place})`), radios),
    editors,
    h("label", {}, "Id of the new run", name),
    h("div", { class: "buttons" }, h("button", { class: "main" }, "Begin the run")),
    failure,
  );
  return drawn;
}
