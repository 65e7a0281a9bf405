// The screen of the log, which shows its records, the newest first, and new records as they arrive.

import { get, live } from "./api.js";
import { since } from "./clock.js";
import { count, h, pausing, problem, put, searchField, size } from "./dom.js";
import { calmly, columns, facts, keepInAddress, nothing, preview, valueTree } from "./parts.js";
import { entryLink } from "./board.js";
import { threadLink } from "./threads.js";

const ROWS_MAX = 2000;
const TYPES = ["thread", "checkpoint", "rollback", "fork", "schema", "tag", "policy", "delete", "loan", "entry", "removal"];

/** Draw the screen. */
export async function show(root, params) {
  const body = h("tbody", {});
  const table = h("table", { class: "list", id: "log", hidden: true }, columns("record|number", "kind", "thread or key|fill", "contents|wide fill", "size|number wide", "when"), body);
  const foot = h("div", { class: "foot" });
  const news = h("div", { class: "news" });
  let asked = 0;
  let newest = 0;

  const changed = pausing(() => start());
  const number = (name, label) => h("input", { inputmode: "numeric", placeholder: label, "aria-label": label, size: 8, oninput: changed, value: params[name] ?? "", class: "lsn" });
  const type = h("select", { "aria-label": "Kind of record", onchange: start }, h("option", { value: "" }, "any kind"), TYPES.map((each) => h("option", { value: each }, each)));
  type.value = TYPES.includes(params.type) ? params.type : "";
  const thread = searchField("Thread or key has …", "Text of thread or key", params.thread ?? "", changed);
  const low = number("from", "from LSN");
  const high = number("to", "to LSN");
  const filter = () => ({ type: type.value, thread: thread.value, from: low.value.trim(), to: high.value.trim() });
  const isFiltered = () => Object.values(filter()).some(Boolean);

  function rows(records) {
    return records.map((record) => row(record));
  }

  function finish(answer) {
    table.hidden = body.childElementCount === 0;
    if (answer.next !== null) {
      const title = answer.records.length ? "Show older records" : `Look further back (${count(answer.read)} records had none)`;
      put(foot, h("button", { type: "button", onclick: () => older(answer.next) }, title));
    } else if (body.childElementCount) put(foot, h("p", { class: "quiet" }, "This is the beginning of the log."));
    else put(foot, isFiltered() ? nothing("No record fits these filters.") : nothing("The log has no records yet.", "Every commit appends one.", 'store.thread("ticket-42").commit({"step": 1})'));
  }

  async function older(before) {
    const mine = asked;
    put(foot, h("p", { class: "quiet" }, "Loading…"));
    try {
      const answer = await get("log", { ...filter(), before });
      if (mine !== asked) return;
      body.append(...rows(answer.records));
      finish(answer);
    } catch (error) {
      if (mine === asked) put(foot, problem(error));
    }
  }

  async function start() {
    asked += 1;
    const mine = asked;
    keepInAddress("log", filter());
    put(news);
    try {
      const answer = await get("log", filter());
      if (mine !== asked) return;
      newest = answer.last;
      put(body, rows(answer.records));
      finish(answer);
    } catch (error) {
      if (mine !== asked) return;
      put(body);
      table.hidden = true;
      put(foot, problem(error));
    }
  }

  async function grow() {
    if (high.value.trim()) return;
    const mine = asked;
    const answer = await get("log", { ...filter(), from: newest + 1, limit: 200 });
    if (mine !== asked || answer.last <= newest) return;
    const isGap = answer.next !== null;
    newest = answer.last;
    if (isGap) return void start(); // More records came than fit into one page, so load the first page again.
    body.prepend(...rows(answer.records));
    for (const each of [...body.children].slice(ROWS_MAX)) each.remove();
    if (answer.records.length) table.hidden = false;
  }

  put(
    root,
    h("div", { class: "head" }, h("h1", {}, "Log"), h("div", { class: "filters" }, h("div", { class: "search" }, thread, h("kbd", { "aria-hidden": "true" }, "/")), type, low, high)),
    news,
    table,
    foot,
  );
  await start();
  return live(calmly(grow, 400));
}

function row(record) {
  if (record.problem) {
    return h(
      "tr",
      { class: "is-damaged" },
      h("td", { class: "number" }, count(record.lsn)),
      h("td", { class: "damaged" }, "not readable"),
      h("td", { class: "damaged fill", colspan: 4 }, `${record.problem.error}: ${record.problem.message}`),
    );
  }
  const detail = h("tr", { class: "detail-row", hidden: true }, h("td", { colspan: 6 }));
  const button = h("button", { type: "button", class: "unfold", "aria-expanded": "false", "aria-label": `Record ${record.lsn}`, onclick: () => toggle(button, detail, record) }, count(record.lsn));
  const target = record.key !== null ? h("a", { href: entryLink(record.key) }, record.key) : record.thread !== null ? h("a", { href: threadLink(record.thread) }, record.thread) : h("span", { class: "quiet" }, record.type === "policy" ? "of the store" : "removed");
  return h(
    "tr",
    { "data-lsn": record.lsn },
    h("td", { class: "number" }, button),
    h("td", {}, record.type, record.continues ? h("span", { class: "quiet wide", title: "The record above belongs to the same transaction." }, " with ↑") : null),
    h("td", { class: "fill" }, target),
    h("td", { class: "wide preview fill" }, preview(record.body)),
    h("td", { class: "number wide" }, size(record.size_bytes)),
    h("td", {}, since(record.time)),
  );
}

function toggle(button, detail, record) {
  const isOpen = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", String(!isOpen));
  if (!detail.isConnected) {
    button.closest("tr").after(detail);
    put(
      detail.firstElementChild,
      facts(["time", record.time], ["size", size(record.size_bytes)], ["chain digest", h("code", {}, record.digest)], ["thread", record.thread]),
      valueTree(record.body, "log/body", { lsn: record.lsn }),
    );
  }
  detail.hidden = isOpen;
}
