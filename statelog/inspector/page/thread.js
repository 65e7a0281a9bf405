// The screen of one thread: its versions on branches, a slider over all versions, and the selected version.

import { describeStore, get, isExport, live, post } from "./api.js";
import { since } from "./clock.js";
import { Conversations } from "./conversation.js";
import { changes } from "./diff.js";
import { count, counted, h, moment, notify, pausing, problem, put, sync } from "./dom.js";
import { draw, layout, ownerOf, ROW } from "./lanes.js";
import { calmly } from "./parts.js";
import { isCut, line, tree } from "./tree.js";

const PAGE = 50;
const BEYOND = 6; // The number of rows that are drawn above and below the visible rows.
const AHEAD = 2; // The number of versions that are requested before the person steps to them.
const AHEAD_MS = 2000; // An answer that was requested ahead may be shown for this time.
const TABS = [["messages", "Conversation"], ["state", "State"], ["changes", "Changes"]];

/** Draw the screen. */
export async function show(root, params) {
  const id = params.id;
  let branch = params.branch || null;
  let version = params.version === undefined ? null : Number(params.version);
  const [opened, store] = await Promise.all([get("thread/open", { id, branch, version, part: params.tab }), describeStore()]);
  const screen = new Screen(root, opened.thread, store.allow_writes && !isExport);
  screen.branch = branch ?? opened.thread.branch;
  screen.keep(opened.versions);
  screen.tab = (TABS.find(([name]) => name in opened.version) ?? TABS.find(([name]) => name === params.tab) ?? TABS[1])[0];
  screen.frame();
  screen.version = screen.shown = opened.version.version;
  screen.scrollTo(screen.version);
  screen.showVersion(opened.version);
  const refresh = calmly(() => screen.refresh());
  const stop = live((change) => (change.all || change.threads.includes(id) || change.types.includes("delete")) && refresh());
  return () => {
    stop();
    screen.end();
  };
}

class Screen {
  constructor(root, thread, canWrite) {
    this.root = root;
    this.thread = thread;
    this.canWrite = canWrite;
    this.rows = new Map(); // Rows of the branch by version. The row of an expired version is null.
    this.pages = new Set();
    this.against = null;
    this.isBusy = false;
    this.next = null;
    this.ahead = new Map(); // {answer, at} of versions that were requested ahead, by request.
    this.shown = 0; // The version that was requested last.
    this.showsInner = false;
    this.open = new Set(); // The parts of the state that the person has opened.
    this.drawn = new Map(); // {element, of} by version. `of` is the content of the element.
    this.view = { top: 0, height: 0 }; // The last known position of the list. Asking for it would force a layout.
    this.conversations = new Conversations();
    this.body = h("div", { class: "body", role: "tabpanel" });
    this.about = h("div", {});
    this.remember = pausing(() => this.isOver || history.replaceState(null, "", this.address()));
  }

  get head() {
    return this.branches.find((each) => each.name === this.branch)?.head ?? this.thread.version;
  }

  get branches() {
    return this.thread.branches.filter((each) => this.showsInner || !each.is_inner || each.name === this.branch);
  }

  /** The version in row 0: the head, or the version that LangGraph shows of the branch. */
  get top() {
    return this.branch === this.thread.branch ? Math.max(this.thread.version, 0) : this.head;
  }

  keep(rows) {
    for (const row of rows) this.rows.set(row.version, row);
    for (let at = 0; at + 1 < rows.length; at += 1)
      for (let gone = rows[at].version - 1; gone > rows[at + 1].version; gone -= 1) this.rows.set(gone, null);
  }

  // --- the frame -----------------------------------------------------------------------

  frame() {
    this.slider = h("input", { type: "range", min: 0, max: this.top, value: this.top, "aria-label": "Version", oninput: () => this.select(Number(this.slider.value)) });
    this.where = h("output", { class: "where" });
    this.list = h("div", { class: "versions", tabindex: 0, role: "listbox", "aria-label": "Versions", onscroll: () => ((this.view.top = this.list.scrollTop), this.schedule()), onkeydown: (event) => this.move(event) });
    this.lines = h("div", { class: "rows" });
    this.inside = h("div", { class: "inside" }, this.lines);
    this.list.append(this.inside);
    this.detail = h("div", { class: "detail" }, this.about, this.body);
    this.resized = new ResizeObserver(([{ contentRect }]) => ((this.view.height = contentRect.height), this.schedule()));
    this.resized.observe(this.list);
    this.choice = h("span", { class: "branches" });
    put(
      this.root,
      h("div", { class: "head" }, isExport ? null : h("a", { class: "up", href: "#/threads" }, "Threads"), h("h1", { title: this.thread.id }, this.thread.id), this.choice),
      h("div", { class: "thread" }, h("section", { class: "timeline", "aria-label": "Timeline" }, h("div", { class: "slide" }, this.slider, this.where), this.list), this.detail),
    );
    this.plan();
    this.view.height = this.list.clientHeight;
  }

  end() {
    this.isOver = true;
    this.resized.disconnect();
  }

  plan() {
    this.lanes = layout(this.branches, this.branch);
    const inner = this.thread.branches.filter((each) => each.is_inner).length;
    const missing = this.thread.branches_total - this.thread.branches.length + this.lanes.hidden;
    put(
      this.choice,
      this.branches.length > 1
        ? h(
            "label",
            {},
            "branch ",
            h("select", { onchange: (event) => this.choose(event.target.value, null) }, this.branches.map((each) => h("option", { value: each.name, selected: each.name === this.branch }, each.name))),
          )
        : null,
      missing > 0 ? h("span", { class: "quiet" }, `${counted(missing, "more branch", "more branches")} ${missing === 1 ? "is" : "are"} not drawn`) : null,
      inner
        ? h("label", { class: "check", title: "Show the internal channels and branches of LangGraph" }, h("input", { type: "checkbox", checked: this.showsInner, onchange: (event) => ((this.showsInner = event.target.checked), this.plan(), this.draw()) }), "inner")
        : null,
    );
    this.slider.max = this.top;
    this.inside.style.setProperty("height", `${(this.top + 1) * ROW}px`);
  }

  // --- the list of versions ------------------------------------------------------------

  schedule() {
    if (!this.isScheduled) {
      this.isScheduled = true;
      requestAnimationFrame(() => {
        this.isScheduled = false;
        this.draw();
      });
    }
  }

  draw() {
    const first = Math.max(0, Math.floor(this.view.top / ROW) - BEYOND);
    const last = Math.min(this.top, Math.ceil((this.view.top + this.view.height) / ROW) + BEYOND);
    const drawn = new Map();
    for (let at = first; at <= last; at += 1) drawn.set(this.top - at, this.row(this.top - at, at));
    this.drawn = drawn;
    const lanes = draw(this.lanes, this.top, first, last, this.rows, this.version, (name, version) => this.choose(name, version));
    lanes.style.setProperty("top", `${first * ROW}px`);
    sync(this.lines, [...drawn.values()].map((each) => each.element));
    sync(this.inside, [lanes, this.lines]);
    this.list.setAttribute("aria-activedescendant", `v${this.version}`);
    this.load(this.top - last, this.top - first);
  }

  /** Return {element, of} of a version. If the drawn element has the same content, return that element. */
  row(version, at) {
    const row = this.rows.get(version);
    const of = [row, at, version === this.version, this.lanes.width, this.thread.tags];
    const former = this.drawn.get(version);
    if (former?.of.every((each, index) => each === of[index])) return former;
    const element = h("div", {
      id: `v${version}`,
      role: "option",
      "aria-selected": String(version === this.version),
      class: row === null ? "version is-gone" : "version",
      style: { top: `${at * ROW}px`, "padding-left": `${this.lanes.width}px` },
      onclick: row ? () => this.select(version) : null,
    });
    if (row === null) put(element, h("div", { class: "quiet" }, `${version} ${isExport ? "is not in this file" : "has expired"}`));
    else if (row === undefined) put(element, h("div", { class: "quiet" }, `${version}`));
    else if (row.problem) put(element, h("div", { class: "line" }, h("span", { class: "number" }, version), h("span", { class: "what damaged" }, `Not readable: ${row.problem.message}`)));
    else {
      const [title, under] = summary(row);
      const names = this.thread.tags.filter((tag) => tag.version === version && tag.branch === row.branch);
      put(
        element,
        h("div", { class: "line" }, h("span", { class: "number" }, version), h("span", { class: "what" }, title), names.map((tag) => h("span", { class: "tag" }, tag.name)), since(row.time)),
        h("div", { class: "under" }, under),
      );
    }
    return { element, of };
  }

  /** Request the versions of rows that are not loaded yet. */
  async load(oldest, newest) {
    const branch = this.branch;
    for (let page = Math.floor(oldest / PAGE); page <= Math.floor(newest / PAGE); page += 1) {
      const low = page * PAGE;
      const high = Math.min(low + PAGE - 1, this.top);
      let isHere = true;
      for (let each = low; each <= high; each += 1) isHere &&= this.rows.has(each);
      if (isHere || this.pages.has(page)) continue;
      this.pages.add(page);
      try {
        const answer = await get("thread/versions", { id: this.thread.id, branch, before: high + 1, limit: PAGE });
        if (branch !== this.branch) return;
        this.keep(answer.versions.filter((row) => row.version >= low));
        for (let each = low; each <= high; each += 1) if (!this.rows.has(each)) this.rows.set(each, null);
        this.schedule();
      } catch (error) {
        if (!isExport) notify(error.message);
        for (let each = low; isExport && each <= high; each += 1) if (!this.rows.has(each)) this.rows.set(each, null);
        if (isExport) this.schedule();
      } finally {
        this.pages.delete(page);
      }
    }
  }

  scrollTo(version) {
    const at = (this.top - version) * ROW;
    const { top, height } = this.view;
    if (at < top || at + ROW > top + height) {
      this.list.scrollTop = at - height / 2;
      this.view.top = this.list.scrollTop;
    }
    this.draw();
  }

  move(event) {
    const step = { ArrowDown: -1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: Infinity, End: -Infinity }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    this.select(Math.max(0, Math.min(this.top, this.version + step)));
  }

  // --- selecting -----------------------------------------------------------------------

  /** Select a version of the branch. While a version is loading, only the last requested version is loaded next. */
  async select(version) {
    this.version = version;
    this.slider.value = version;
    this.scrollTo(version);
    if (this.isBusy) {
      this.next = version;
      return;
    }
    this.isBusy = true;
    try {
      do {
        this.next = null;
        await this.read();
      } while (this.next !== null);
    } finally {
      this.isBusy = false;
    }
  }

  async read() {
    const version = this.version;
    const ahead = this.ahead.get(this.requestOf(version));
    const isFresh = ahead !== undefined && performance.now() - ahead.at < AHEAD_MS;
    const answer = isFresh ? ahead.answer : this.fetchVersion(version);
    this.fetchAhead(version);
    try {
      this.showVersion(await answer);
    } catch (error) {
      this.showVersion({ version: this.version, problem: { error: error.name, message: error.message, facts: error.facts } });
    }
  }

  queryOf(version) {
    const against = this.tab === "changes" && this.against ? { against_branch: this.against.branch, against_version: this.against.version } : {};
    return { id: this.thread.id, branch: this.branch, version, part: this.tab, ...against };
  }

  requestOf(version) {
    return JSON.stringify(this.queryOf(version));
  }

  fetchVersion(version) {
    return get("thread/version", this.queryOf(version));
  }

  /** Request the next versions in the direction of the last step, so that a step does not wait for the server. */
  fetchAhead(version) {
    const distance = version - this.shown;
    this.shown = version;
    const wanted = new Map();
    if (!isExport && Math.abs(distance) === 1)
      for (let step = 1; step <= AHEAD; step += 1) {
        const next = version + distance * step;
        if (next < 0 || next > this.top) break;
        const request = this.requestOf(next);
        const known = this.ahead.get(request);
        if (known === undefined || performance.now() - known.at >= AHEAD_MS) {
          const answer = this.fetchVersion(next);
          answer.catch(() => null); // If the person steps there, `read` shows the error.
          wanted.set(request, { answer, at: performance.now() });
        } else wanted.set(request, known);
      }
    this.ahead = wanted;
  }

  choose(branch, version) {
    if (branch === this.branch && version !== null) return this.select(version);
    const isOnLine = version !== null && ownerOf(this.lanes, version) === branch;
    if (isOnLine) return this.select(version);
    this.branch = branch;
    this.rows.clear();
    this.pages.clear();
    this.plan();
    return this.select(version ?? this.top);
  }

  async refresh() {
    this.ahead.clear();
    if (document.hidden) return;
    try {
      const isAtHead = this.version === this.top;
      const was = this.thread.branch;
      const newest = this.thread.version;
      this.thread = await get("thread", { id: this.thread.id });
      if (this.branch === was && isAtHead) this.branch = this.thread.branch;
      if (this.branch !== was || this.thread.version < newest) this.rows.clear(); // The thread may have been re-created.
      this.plan();
      this.showPlace();
      if (isAtHead && this.version !== this.top) this.select(this.top);
      else this.draw();
    } catch (error) {
      if (error.status === 404) this.showVersion({ version: this.version, problem: { error: error.name, message: error.message, facts: error.facts } });
      else notify(error.message);
    }
  }

  // --- the version ---------------------------------------------------------------------

  showPlace() {
    put(this.where, `version ${count(this.version)} of ${count(this.top)}`);
  }

  showVersion(found) {
    this.found = found;
    this.slider.value = this.version;
    this.showPlace();
    if (!isExport) this.remember();
    const focused = document.activeElement?.closest?.("[role=tab]")?.id;
    put(this.about, this.facts(found), this.actions(found), this.tabs());
    if (focused) document.getElementById(focused)?.focus();
    if (found.problem) put(this.body, this.tab === "changes" ? this.compare(null) : null, problem({ name: found.problem.error, ...found.problem }));
    else if (found.messages) {
      this.conversations.draw(found.messages, (before) => get("thread/messages", { id: this.thread.id, branch: this.branch, version: found.version, before }));
      sync(this.body, [this.conversations.element]);
    } else if (found.changes) put(this.body, this.compare(found.changes), changes(found.changes));
    else put(this.body, this.state(found));
  }

  address() {
    const query = new URLSearchParams({ branch: this.branch, version: this.version, tab: this.tab });
    return `#/thread/${encodeURIComponent(this.thread.id)}?${query}`;
  }

  facts(found) {
    if (!found.time) return h("div", { class: "about" }, h("h2", {}, `Version ${found.version}`));
    const names = this.thread.tags.filter((tag) => tag.version === found.version && tag.branch === found.branch);
    return h(
      "div",
      { class: "about" },
      h(
        "h2",
        {},
        `Version ${found.version}`,
        h("span", { class: "quiet" }, ` on ${found.branch}`),
        found.kind === "rollback" ? h("span", { class: "tag" }, `rollback to ${found.parent ? found.parent.version : "a version that has expired"}`) : null,
        found.schema_version ? h("span", { class: "quiet" }, `, schema version ${found.schema_version}`) : null,
        names.map((tag) => h("span", { class: "tag" }, tag.name, this.canWrite ? h("button", { type: "button", class: "remove", "aria-label": `Remove tag ${tag.name}`, onclick: () => this.write("untag", { name: tag.name }, `The tag ${tag.name} is removed.`) }, "×") : null)),
      ),
      h("p", { class: "quiet" }, moment(found.time), " · ", h("code", { class: "id" }, found.id)),
      found.metadata?.size ? h("details", { class: "metadata" }, h("summary", {}, h("span", { class: "quiet" }, "metadata "), found.metadata.items.map(([name, node]) => `${name}: ${line(node)}`).join(", ").slice(0, 200)), tree(found.metadata)) : null,
    );
  }

  actions(found) {
    if (isExport || !found.python) return null;
    const code = h("pre", {}, found.python);
    const copy = h("button", { type: "button", onclick: () => copyText(found.python) }, "Copy Python");
    const buttons = [copy];
    if (this.canWrite) {
      buttons.push(
        h("button", { type: "button", onclick: () => this.ask("Roll back", `The thread gets a new version with the state of version ${found.version}. Nothing is deleted: rolling back to version ${this.top} undoes it.`, [], () => this.write("rollback", { expected_version: this.top }, "The thread is rolled back.", true)) }, "Roll back to this"),
        h("button", { type: "button", onclick: () => this.ask("Fork", "A branch begins at this version. It shares everything up to here.", [["name", "Name of the branch"]], ({ name }) => this.write("fork", { name }, `Branch ${name} begins here.`, true)) }, "Fork from this"),
        h("button", { type: "button", onclick: () => this.ask("Tag", "A tag names this version. A tag that is in use moves here.", [["name", "Name of the tag"]], ({ name }) => this.write("tag", { name }, `The tag ${name} is set.`)) }, "Tag this"),
      );
    }
    this.panel = h("div", { class: "panel", hidden: true });
    return h("div", { class: "actions" }, buttons, h("details", { class: "python" }, h("summary", { class: "quiet" }, "show the code"), code), this.panel);
  }

  tabs() {
    const move = (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      const at = TABS.findIndex(([name]) => name === this.tab);
      this.tab = TABS[(at + step + TABS.length) % TABS.length][0];
      this.read().then(() => document.getElementById(`tab-${this.tab}`)?.focus());
    };
    return h(
      "div",
      { class: "tabs", role: "tablist", onkeydown: move },
      TABS.map(([name, title]) =>
        h("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-selected": String(name === this.tab), tabindex: name === this.tab ? 0 : -1, onclick: () => ((this.tab = name), this.read()) }, title),
      ),
    );
  }

  state(found) {
    const inner = new Set(found.state.inner);
    const shown = { ...found.state, items: found.state.items.filter(([name]) => this.showsInner || !inner.has(name)) };
    shown.size = shown.items.length;
    if (!shown.size) return h("p", { class: "quiet" }, inner.size ? "The version has no channels of the application itself." : "The state is empty.");
    const query = { id: this.thread.id, branch: this.branch, version: found.version };
    const written = new Set(found.state.written);
    const deltas = found.state.deltas.join(", ");
    return h("div", {}, deltas ? h("p", { class: "quiet" }, `Not stored in this checkpoint, but made from the writes of earlier steps: ${deltas}.`) : null, tree(shown, {
      open: 2,
      marked: (path) => path.length === 1 && written.has(shown.items[path[0]][0]),
      opened: this.open,
      more: ([channel, ...path], start) => get("thread/value", { ...query, channel: shown.items[channel][0], path: path.join("."), start }),
      edit: this.canWrite && !this.thread.is_graph ? (path) => this.edit(query, shown.items[path[0]][0], path.slice(1)) : null,
    }));
  }

  /** Return the choice of the version to compare with. `answer` has the changes, or is null if they cannot be read. */
  compare(answer) {
    const number = h("input", { type: "number", min: 0, value: (answer ? answer.old?.version : this.against?.version) ?? "", "aria-label": "Version to compare with", onchange: again });
    const branch = h("select", { "aria-label": "Branch to compare with", onchange: again }, this.branches.map((each) => h("option", { value: each.name, selected: each.name === (this.against?.branch ?? this.branch) }, each.name)));
    const screen = this;
    function again() {
      screen.against = number.value === "" ? null : { branch: branch.value, version: Number(number.value) };
      screen.read();
    }
    const parent = h("button", { type: "button", disabled: this.against === null, onclick: () => ((this.against = null), this.read()) }, "Parent");
    if (isExport) return null;
    return h("div", { class: "compare" }, h("span", { class: "quiet" }, "compared with version"), number, this.branches.length > 1 ? branch : null, parent, answer && h("span", { class: "quiet" }, counted(answer.total, "change")));
  }

  // --- writes --------------------------------------------------------------------------

  /** Ask the person for the input of an action. `fields` are [name, label, text]; texts with line breaks are large. */
  ask(title, text, fields, act) {
    const inputs = fields.map(([name, label, value]) => {
      const input = h(value === undefined ? "input" : "textarea", { id: `field-${name}`, value: value ?? "", required: true, spellcheck: "false", rows: 8 });
      return [name, h("label", {}, label, input), input];
    });
    const refused = h("div", {});
    const form = h(
      "form",
      {
        onsubmit: async (event) => {
          event.preventDefault();
          try {
            await act(Object.fromEntries(inputs.map(([name, , input]) => [name, input.value])));
          } catch (error) {
            put(refused, problem(error));
          }
        },
        onkeydown: (event) => event.key === "Escape" && (this.panel.hidden = true),
      },
      h("h3", {}, title),
      h("p", {}, text),
      inputs.map(([, label]) => label),
      refused,
      h("div", { class: "buttons" }, h("button", { class: "main" }, title), h("button", { type: "button", onclick: () => (this.panel.hidden = true) }, "Cancel")),
    );
    put(this.panel, form);
    this.panel.hidden = false;
    (inputs[0]?.[2] ?? form.querySelector("button.main")).focus();
    this.panel.scrollIntoView({ block: "nearest" });
  }

  async edit(query, channel, path) {
    try {
      const text = toJson(await get("thread/value", { ...query, channel, path: path.join("."), start: 0 }));
      this.ask("Fork with this edit", "A branch begins at this version. Its first commit has the value below, in JSON.", [["name", "Name of the branch"], ["json", `New value in ${channel}`, text]], ({ name, json }) =>
        this.write("fork", { name, edit: { channel, path, json } }, `Branch ${name} has the new value.`, true),
      );
    } catch (error) {
      notify(error.message);
    }
  }

  async write(act, given, done, goes = false) {
    const answer = await post(`thread/${act}`, { id: this.thread.id, branch: this.branch, version: this.found.version, ...given });
    notify(done);
    this.thread = await get("thread", { id: this.thread.id });
    this.rows.clear();
    if (goes && answer.branch) {
      this.branch = answer.branch;
      this.version = answer.version;
    }
    this.plan();
    await this.select(this.version);
  }
}

function summary(row) {
  if (row.graph) {
    const [node, said, step, source] = row.graph;
    return [node || source || "start", said || (step === "" ? "" : `step ${step}`)];
  }
  const told = (row.metadata?.items ?? []).map(([name, node]) => `${name}: ${line(node)}`).join(", ");
  const channels = row.channels.join(", ");
  if (row.kind === "rollback") return [`back to version ${row.parent?.version ?? "?"}`, told];
  return told ? [told, channels] : [channels || "an empty state", ""];
}

const NOT_JSON = { nan: "NaN", inf: "Infinity", "-inf": "-Infinity" }; // The server reads these, as Python's json does.

/** Return a node as JSON. Integers keep all their digits. */
function toJson(node, indent = "") {
  const inner = `${indent}  `;
  if (node.items?.length < node.size || (node.size > 0 && node.v === undefined && !node.items)) throw new Error("The value is too large to be edited here. Edit a part of it.");
  if (node.t === "text" && isCut(node)) throw new Error("The value is too large to be edited here.");
  if (node.t === "null") return "null";
  if (node.t === "text") return JSON.stringify(node.v);
  if (["int", "float", "bool"].includes(node.t)) return NOT_JSON[node.v] ?? String(node.v);
  if (node.t === "list") return node.size ? `[\n${node.items.map((each) => inner + toJson(each, inner)).join(",\n")}\n${indent}]` : "[]";
  if (node.has_other_keys) throw new Error("JSON has no keys that are not texts. Write the new value in Python.");
  if (node.t === "dict") return node.size ? `{\n${node.items.map(([name, each]) => `${inner}${JSON.stringify(name)}: ${toJson(each, inner)}`).join(",\n")}\n${indent}}` : "{}";
  throw new Error(`JSON has no ${node.name ?? node.t}. Write the new value in Python.`);
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    notify("The code is copied.");
  } catch {
    notify("The browser does not let this page copy. Use “show the code”.");
  }
}
