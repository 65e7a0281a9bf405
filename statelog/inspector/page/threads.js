// The list of threads. Threads that changed last come first.

import { get, live } from "./api.js";
import { since } from "./clock.js";
import { count, counted, empty, h, problem, put, searchField, size } from "./dom.js";

/** Return the address of a thread's screen. */
export function threadLink(id, query) {
  const text = new URLSearchParams(query ?? {}).toString();
  return `#/thread/${encodeURIComponent(id)}${text ? `?${text}` : ""}`;
}

function row(thread, isNew) {
  const name = h("td", { class: "name" }, h("a", { href: threadLink(thread.id) }, thread.id));
  if (thread.problem) return h("tr", { "data-id": thread.id }, name, h("td", { colspan: 4, class: "damaged" }, `Not readable: ${thread.problem.message}`));
  return h(
    "tr",
    { "data-id": thread.id, class: isNew ? "is-new" : null },
    name,
    h("td", {}, thread.changed ? since(thread.changed) : ""),
    h("td", { class: "number" }, count(thread.versions)),
    h("td", { class: "number wide" }, count(thread.branches)),
    h("td", { class: "number size wide" }),
  );
}

/** Draw the screen. */
export async function show(root, params) {
  const body = h("tbody", {});
  const foot = h("div", { class: "foot" });
  const search = searchField("Search ids", "Search threads by id", params.q ?? "", () => restart());
  const table = h(
    "table",
    { class: "list", id: "threads" },
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("th", { scope: "col" }, "thread"),
        h("th", { scope: "col" }, "changed"),
        h("th", { scope: "col", class: "number" }, "versions"),
        h("th", { scope: "col", class: "number wide" }, "branches"),
        h("th", { scope: "col", class: "number wide", title: "The size of the state of the last version" }, "state size"),
      ),
    ),
    body,
  );
  put(
    root,
    h("div", { class: "head" }, h("h1", {}, "Threads"), h("div", { class: "search" }, search, h("kbd", { "aria-hidden": "true" }, "/"))),
    table,
    foot,
  );

  let asked = 0;
  const ids = new Set();

  async function more(after) {
    const mine = asked;
    put(foot, h("p", { class: "quiet" }, "Loading…"));
    try {
      const answer = await get("threads", { containing: search.value, after });
      if (mine !== asked) return;
      const rows = answer.threads.filter((thread) => !ids.has(thread.id));
      for (const thread of rows) ids.add(thread.id);
      body.append(...rows.map((thread) => row(thread)));
      finish(answer);
      weigh(rows.map((thread) => thread.id)).catch(() => {});
    } catch (error) {
      if (mine === asked) put(foot, problem(error));
    }
  }

  /** Fill in the sizes of states, which the server returns later than the rows. */
  async function weigh(asked) {
    const pending = [...asked];
    while (pending.length) {
      const { sizes } = await get("threads/sizes", pending.map((id) => ["id", id]));
      const found = Object.entries(sizes);
      if (!found.length) return;
      for (const [id, bytes] of found) {
        const cell = body.querySelector(`tr[data-id="${CSS.escape(id)}"] .size`);
        if (cell && bytes !== null) put(cell, size(bytes));
      }
      pending.splice(0, found.length);
    }
  }

  function finish(answer) {
    if (answer.next && ids.size < 50) return void more(answer.next);
    const of = answer.total ? ` of ${count(answer.total)}` : "";
    table.hidden = ids.size === 0;
    if (ids.size === 0) {
      put(
        foot,
        search.value
          ? empty("No thread has this text in its id.", "The search compares ids only, letter by letter.")
          : empty("The store has no threads yet.", "A thread begins with its first commit, and then appears here."),
      );
    } else if (answer.next) {
      put(
        foot,
        h("button", { type: "button", onclick: () => more(answer.next) }, "Show more"),
        h("span", { class: "quiet" }, `${count(ids.size)}${of} shown`),
      );
    } else put(foot, h("p", { class: "quiet" }, counted(ids.size, "thread")));
  }

  function restart() {
    asked += 1;
    ids.clear();
    body.replaceChildren();
    return more();
  }

  async function refresh(change) {
    if (search.value || document.hidden) return;
    if (change.types.includes("delete")) return void (await restart());
    if (!change.all && !change.threads.length) return;
    const answer = await get("threads", {});
    const found = answer.threads.filter((thread) => change.all || change.threads.includes(thread.id));
    for (const thread of found.reverse()) {
      body.querySelector(`tr[data-id="${CSS.escape(thread.id)}"]`)?.remove();
      ids.add(thread.id);
      body.prepend(row(thread, true));
    }
    weigh(found.map((thread) => thread.id)).catch(() => {});
    if (ids.size) {
      table.hidden = false;
      if (!foot.querySelector("button")) put(foot, h("p", { class: "quiet" }, counted(ids.size, "thread")));
    }
  }

  await restart();
  return live((change) => refresh(change).catch(() => {}));
}
