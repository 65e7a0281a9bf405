// The screen of the search in the texts of threads, the board, and durable runs.

import { get } from "./api.js";
import { entryLink } from "./board.js";
import { since } from "./clock.js";
import { count, h, pausing, problem, put, searchField } from "./dom.js";
import { columns, keepInAddress, nothing } from "./parts.js";
import { runLink } from "./runs.js";
import { threadLink } from "./threads.js";

const HITS_SHOWN = 50;
const HITS_MAX = 500;
const ROLES = ["user", "assistant", "system", "tool"];

/** Draw the screen. */
export async function show(root, params) {
  const body = h("tbody", {});
  const table = h("table", { class: "list", id: "hits", hidden: true }, columns("where|fill", "role", "text|fill", "when"), body);
  const foot = h("div", { class: "foot" });
  let asked = 0;

  const query = searchField("Words, or \"a phrase\" …", "Query", params.query ?? "", () => start());
  const threads = h("input", { placeholder: "threads: chat-*", "aria-label": "Pattern of thread ids", size: 14, value: params.threads ?? "", oninput: pausing(() => start()) });
  const role = h("select", { "aria-label": "Role", onchange: () => start() }, h("option", { value: "" }, "any role"), ROLES.map((each) => h("option", { value: each }, each)));
  role.value = ROLES.includes(params.role) ? params.role : "";
  const past = h("input", { type: "checkbox", onchange: () => start() });
  past.checked = params.history === "yes";
  const filter = () => ({ query: query.value.trim(), threads: threads.value.trim(), role: role.value, history: past.checked ? "yes" : "" });

  async function start(limit = HITS_SHOWN) {
    asked += 1;
    const mine = asked;
    keepInAddress("search", filter());
    if (!filter().query) return draw([], nothing("Search what was said and stored.", "All words have to be in a text. * behind a word stands for its rest.", 'store.search("refund policy")'));
    put(foot, h("p", { class: "quiet" }, "Searching…"));
    try {
      const answer = await get("search", { ...filter(), limit });
      if (mine !== asked) return;
      const notes = answer.notes.map((each) => h("p", { class: "quiet" }, `${each}.`));
      const last = answer.hits.length < limit ? null : limit < HITS_MAX ? h("button", { type: "button", onclick: () => start(HITS_MAX) }, "Show more") : h("p", { class: "quiet" }, `Only the ${count(limit)} texts that fit best are shown. Add a word, or name threads.`);
      draw(answer.hits, [last, answer.hits.length ? null : nothing("No text has these words."), notes]);
    } catch (error) {
      if (mine === asked) draw([], problem(error));
    }
  }

  function draw(hits, below) {
    put(body, hits.map(row));
    table.hidden = hits.length === 0;
    put(foot, below);
  }

  put(root, h("div", { class: "head" }, h("h1", {}, "Search"), h("div", { class: "filters" }, h("div", { class: "search" }, query, h("kbd", { "aria-hidden": "true" }, "/")), threads, role, h("label", { class: "check" }, past, "all versions"))), table, foot);
  await start();
}

function row(hit) {
  return h("tr", {}, h("td", { class: "fill" }, place(hit)), h("td", {}, hit.role), h("td", { class: "fill", title: hit.text.slice(0, 2000) }, hit.snippet), h("td", {}, since(hit.time)));
}

function place(hit) {
  const path = h("span", { class: "quiet" }, ` ${hit.path.join(".")}`);
  if (hit.kind === "entry") return [h("a", { href: entryLink(hit.key) }, hit.key), path];
  if (hit.kind === "run") return [h("a", { href: runLink(hit.run) }, hit.run), path];
  if (hit.kind === "item") return [`${hit.namespace} ${hit.key}`, path];
  return [h("a", { href: threadLink(hit.thread, { branch: hit.branch, version: hit.version }) }, `${hit.thread} ${hit.version}`), path];
}
