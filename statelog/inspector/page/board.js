// The screen of the board: entries by prefix, one entry with its history, claims and leases.

import { get, live } from "./api.js";
import { setClock, since, until } from "./clock.js";
import { count, counted, empty, h, problem, put, searchField } from "./dom.js";
import { calmly, card, columns, facts, keepInAddress, nothing, paged, preview, tabs, valueTree } from "./parts.js";

const HOW = {
  entries: 'store.board(agent="planner").set("tasks/open/1", {"title": "Book a flight"})',
  claims: 'claim = store.board(agent="worker").claim("tasks/open/*", lease_s=60)',
  leases: 'with store.board(agent="worker").lease("deploy", ttl_s=30): ...',
};

/** Return the address of an entry. */
export function entryLink(key) {
  return `#/board/${encodeURIComponent(key)}`;
}

/** Draw the screen: an entry if the address names a key, otherwise the lists. */
export function show(root, params) {
  return params.id ? showEntry(root, params.id) : showLists(root, params);
}

// --- lists ---------------------------------------------------------------------------

function showLists(root, params) {
  const place = h("div", {});
  let tab = ["claims", "leases"].includes(params.tab) ? params.tab : "entries";
  let list = null;
  const search = searchField("Prefix, or a pattern: tasks/*/done", "Prefix or pattern of keys", params.prefix ?? "", () => draw());
  const filters = h(
    "div",
    { class: "filters" },
    h("div", { class: "search" }, search, h("kbd", { "aria-hidden": "true" }, "/")),
    h("button", { type: "button", title: "Durable runs keep entries below durable/", onclick: () => { search.value = "durable/"; draw(); } }, "Entries of runs"),
  );
  function draw() {
    keepInAddress("board", { tab: tab === "entries" ? "" : tab, prefix: search.value });
    filters.hidden = tab !== "entries";
    if (tab === "entries") list = entries(place, () => ({ prefix: search.value }));
    else list = tab === "claims" ? claims(place) : leases(place);
    list.load();
  }
  const bar = tabs([["entries", "Entries"], ["claims", "Claims"], ["leases", "Leases"]], tab, (name) => {
    tab = name;
    draw();
  });
  put(root, h("div", { class: "head" }, h("h1", {}, "Board"), filters), bar, place);
  const refresh = calmly(() => list.refresh());
  return live((change) => {
    const prefix = tab === "entries" && !/[*?]/.test(search.value) ? search.value : "";
    if (change.all || change.keys.some((key) => key.startsWith(prefix))) refresh();
  });
}

function table(place, id, head, row, ask, none) {
  const body = h("tbody", {});
  const drawn = h("table", { class: "list", id }, head, body);
  const list = paged(
    ask,
    (answer, isFirst) => {
      setClock(answer.now);
      const rows = answer[id];
      if (isFirst) body.replaceChildren();
      body.append(...rows.map(row));
      drawn.hidden = body.childElementCount === 0;
      return body.childElementCount;
    },
    none,
  );
  put(place, drawn, list.foot);
  drawn.hidden = true;
  return list;
}

function entries(place, filter) {
  const { prefix } = filter();
  return table(
    place,
    "entries",
    columns("key", "value|wide", "by|wide", "version|number", "changed"),
    (entry) =>
      entry.problem
        ? h("tr", {}, h("td", { class: "name" }, h("a", { href: entryLink(entry.key) }, entry.key)), h("td", { colspan: 4, class: "damaged" }, `Not readable: ${entry.problem.message}`))
        : h(
            "tr",
            {},
            h("td", { class: "name" }, h("a", { href: entryLink(entry.key) }, entry.key), marks(entry), h("div", { class: "under narrow" }, preview(entry.value))),
            h("td", { class: "wide preview" }, preview(entry.value)),
            h("td", { class: "wide agent" }, entry.agent ?? ""),
            h("td", { class: "number" }, count(entry.version)),
            h("td", {}, since(entry.time)),
          ),
    (after, limit) => get("board", { ...filter(), after, limit }),
    () =>
      prefix
        ? nothing("No key begins with this.", "A prefix is compared letter by letter. A pattern has * for a part of a segment, and ** for any number of segments.")
        : nothing("The board has no entries yet.", "Agents share entries by key. The first one appears here.", HOW.entries),
  );
}

function marks(entry) {
  return [
    entry.claim ? h("span", { class: "mark is-claimed" }, "claimed") : null,
    entry.error ? h("span", { class: "mark is-failed" }, "failed") : null,
    entry.expires ? h("span", { class: "mark" }, "expires") : null,
  ];
}

function claims(place) {
  return table(
    place,
    "claims",
    columns("key", "holder", "deadline", "attempt|number wide", "token|number wide"),
    (entry) =>
      h(
        "tr",
        {},
        h("td", { class: "name" }, h("a", { href: entryLink(entry.key) }, entry.key)),
        h("td", { class: "agent" }, entry.claim.holder ?? h("span", { class: "quiet" }, "without a name")),
        h("td", {}, until(entry.claim.expires)),
        h("td", { class: "number wide" }, count(entry.attempts)),
        h("td", { class: "number wide" }, count(entry.claim.token)),
      ),
    (after, limit) => get("board/claims", { after, limit }),
    () => nothing("Nobody has claimed an entry.", "A claim is the exclusive right to an entry, until its deadline.", HOW.claims),
  );
}

function leases(place) {
  return table(
    place,
    "leases",
    columns("name", "holder", "deadline", "acquired|wide", "token|number wide"),
    (lease) =>
      h(
        "tr",
        {},
        h("td", { class: "name" }, lease.name),
        h("td", { class: "agent" }, lease.holder ?? h("span", { class: "quiet" }, "without a name")),
        h("td", {}, until(lease.expires)),
        h("td", { class: "wide" }, since(lease.acquired)),
        h("td", { class: "number wide" }, count(lease.token)),
      ),
    (after, limit) => get("board/leases", { after, limit }),
    () => nothing("Nobody holds a lease.", "A lease is the exclusive right to a name, renewed until its block ends.", HOW.leases),
  );
}

// --- one entry -----------------------------------------------------------------------

async function showEntry(root, key) {
  const about = h("div", {});
  const body = h("tbody", {});
  let isDamaged = false;
  const history = h("table", { class: "list", id: "history" }, columns("version|number", "what", "by|wide", "value|fill", "when"), body);
  const list = paged(
    async (after, limit) => {
      const answer = await get("board/entry", { key, offset: after, limit });
      setClock(answer.now);
      return answer;
    },
    (answer, isFirst) => {
      if (isFirst) {
        isDamaged = answer.problems.length > 0;
        body.replaceChildren();
        drawEntry(about, key, answer);
      }
      body.append(...answer.history.map((record) => historyRow(key, record)));
      history.hidden = body.childElementCount === 0;
      return body.childElementCount;
    },
    () => (isDamaged ? empty("The history is not readable.") : empty("This key has no history.", "Either it was never set, or retention has removed its records.")),
  );
  put(
    root,
    h("div", { class: "head" }, h("a", { class: "up", href: "#/board" }, "Board"), h("h1", {}, key)),
    about,
    card("History", h("div", { class: "scroll" }, history), list.foot),
  );
  await list.load();
  const refresh = calmly(() => list.refresh());
  return live((change) => {
    if (change.all || change.keys.includes(key)) refresh();
  });
}

function drawEntry(about, key, answer) {
  const { entry } = answer;
  const problems = answer.problems.map((each) => problem({ name: each.error, ...each }));
  if (!entry) {
    const wasRead = answer.problems.length === 0;
    put(about, problems, wasRead ? card("Value", h("p", { class: "quiet" }, answer.history.length ? "The entry was deleted, has expired, or was completed. Its history is below." : "There is no entry of this key.")) : null);
    return;
  }
  const claim = entry.claim;
  put(
    about,
    problems,
    h(
      "div",
      { class: "halves" },
      card("Value", valueTree(entry.value, "board/value", { key, version: entry.version })),
      card(
        "Facts",
        facts(
          ["version", count(entry.version)],
          ["changed", since(entry.time)],
          ["by", entry.agent],
          ["created", since(entry.created)],
          ["claimed by", claim && (claim.holder ?? "a handle without a name")],
          ["deadline", claim && until(claim.expires)],
          ["token", claim && count(claim.token)],
          ["attempts", entry.attempts ? count(entry.attempts) : null],
          ["last error", entry.error],
          ["priority", entry.priority ? String(entry.priority) : null],
          ["schema version", entry.schema_version && count(entry.schema_version)],
          ["claimable from", entry.ready && since(entry.ready)],
          ["expires", entry.expires && until(entry.expires)],
        ),
        h("pre", {}, `store.board().get(${JSON.stringify(key)})`),
      ),
    ),
  );
}

const ENDS = ["delete", "expire", "complete", "dead"];

function historyRow(key, record) {
  return h(
    "tr",
    {},
    h("td", { class: "number" }, count(record.version)),
    h("td", {}, record.kind, record.attempts ? h("span", { class: "quiet" }, ` · ${counted(record.attempts, "attempt")}`) : null),
    h("td", { class: "wide agent" }, record.agent ?? ""),
    h("td", { class: "preview fill" }, record.error ? h("div", { class: "damaged" }, record.error) : null, ENDS.includes(record.kind) ? "" : preview(record.value)),
    h("td", {}, since(record.time)),
  );
}
