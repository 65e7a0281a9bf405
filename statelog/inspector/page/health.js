// The screen of the store's health: the file, verification, sizes, retention that is due, and the fleet.

import { get, live } from "./api.js";
import { length, setClock, since } from "./clock.js";
import { count, counted, h, problem, put, size } from "./dom.js";
import { calmly, card, columns, facts, nothing, paged } from "./parts.js";
import { threadLink } from "./threads.js";

const POLL_MS = 500;
const THREADS_SHOWN = 50;

/** Draw the screen. */
export async function show(root) {
  const file = h("div", {});
  const fleet = h("div", {});
  const verification = job("verify", "Verify", "Checks every invariant of the file: each record, the chain, the index, and every node that a version can reach. It only reads, and others keep writing.", verified);
  const counting = job("statistics", "Count", "Reads the sizes of records, threads and pages. In a large store they are estimated from an even sample, and say so.", counted_);
  const channels = channelSizes();
  const due = retention();
  put(
    root,
    h("div", { class: "head" }, h("h1", {}, "Health")),
    h("div", { class: "halves" }, file, fleet),
    card("Verification", verification.place),
    card("Sizes", counting.place),
    card("Sizes of channels", channels),
    card("Retention that is due", due.place),
  );

  async function load() {
    const answer = await get("health");
    setClock(answer.now);
    put(file, card("File", fileFacts(answer)));
    await get("health/fleet").then(
      (found) => put(fleet, card("Fleet", fleetFacts(found.fleet, found.is_copy))),
      (error) => put(fleet, card("Fleet", problem(error))),
    );
  }
  await load();
  verification.look();
  counting.look();
  due.list.load();
  const stop = live(calmly(load, 2000));
  return () => {
    stop();
    verification.stop();
    counting.stop();
  };
}

function fileFacts(answer) {
  return facts(
    ["path", h("code", {}, answer.path)],
    ["size", size(answer.size_bytes)],
    ["records", count(answer.last_lsn)],
    ["durability", answer.durability],
    ["opened", answer.read_only ? "for reading only" : "for writing"],
    ["fenced", answer.fenced ? "yes: nobody commits any more" : "no"],
  );
}

function fleetFacts(fleet, isCopy) {
  if (!fleet) return nothing(isCopy ? "This file is a fleet's copy of the store." : "This page knows no fleet of this store.", isCopy ? "To see who owns the store, and what the storage lacks, name the storage:" : "A fleet copies stores to a bucket, so that another machine can take them over. If the store belongs to a fleet, name its storage:", "statelog ui cache/agent.state --fleet s3://bucket/agents");
  const behind = fleet.last_lsn - fleet.shipped_lsn;
  return facts(
    ["this process", { owner: "owns the store, and ships it", reader: "reads a copy of the store", none: "reads the copy of this machine" }[fleet.role]],
    ["owner", fleet.owner],
    ["state", fleet.state],
    ["epoch of the owner", count(fleet.epoch)],
    ["shipped up to", count(fleet.shipped_lsn)],
    ["last record here", count(fleet.last_lsn)],
    ["lag", fleet.lag_s === undefined ? (behind > 0 ? counted(behind, "record") : behind < 0 ? `this copy lacks ${counted(-behind, "record")}` : "none") : `${fleet.lag_s} s, about ${size(fleet.lag_bytes)}`],
    ["parked", fleet.parked === undefined ? null : fleet.parked ? "yes: nobody wrote" : "no"],
    ["requests", fleet.requests === undefined ? null : count(fleet.requests)],
  );
}

// --- jobs ----------------------------------------------------------------------------------

function job(path, title, text, draw) {
  const place = h("div", {});
  let timer = null;

  async function look(start) {
    clearTimeout(timer);
    let status;
    try {
      status = await get(`health/${path}`, start ? { start: 1 } : {});
    } catch (error) {
      return put(place, problem(error));
    }
    setClock(status.now);
    const button = h("button", { type: "button", onclick: () => look(true), disabled: status.state === "running" }, status.state === "idle" ? title : status.state === "running" ? "Running…" : `${title} again`);
    put(place, h("div", { class: "job" }, h("p", { class: "quiet" }, text), button), h("div", { role: "status" }, body(status)));
    if (status.state === "running") timer = setTimeout(look, POLL_MS);
  }

  function body(status) {
    if (status.state === "running") {
      const share = status.all ? status.done / status.all : 0;
      return [h("progress", { max: "1", value: String(share), "aria-label": title }), h("p", { class: "quiet" }, status.all ? `${count(status.done)} of ${count(status.all)}` : "begins")];
    }
    if (status.state === "failed") return problem({ name: status.problem.error, ...status.problem });
    if (status.state !== "done") return null;
    return [draw(status.result), h("p", { class: "quiet" }, `Began `, since(status.began), `, took ${length(status.duration_s * 1000)}.`)];
  }

  return { place, look, stop: () => clearTimeout(timer) };
}

function verified(result) {
  const read = `${counted(result.records, "record")}, ${counted(result.nodes, "node")}, ${size(result.bytes)}`;
  if (result.ok) return h("p", { class: "verdict is-good" }, `Sound: every invariant holds. ${read}.`);
  return [
    h("p", { class: "verdict is-bad" }, `Damaged: ${counted(result.problem_count, "problem")} in ${read}.`),
    h("p", { class: "quiet" }, "Other records stay readable. ", h("code", {}, "statelog salvage"), " writes what is readable to a new store."),
    h("div", { class: "scroll" }, h("table", { class: "list", id: "problems" }, columns("record|number", "invariant", "what|fill"), h("tbody", {}, result.problems.map((each) => h("tr", {}, h("td", { class: "number" }, count(each.lsn)), h("td", {}, each.invariant), h("td", { class: "fill damaged" }, each.message)))))),
    result.problem_count > result.problems.length ? h("p", { class: "quiet" }, `The first ${count(result.problems.length)} are shown.`) : null,
  ];
}

function counted_(result) {
  const about = result.records_are_estimated ? "about " : "";
  const guess = result.snapshots_are_estimated ? "about " : "";
  let shown = THREADS_SHOWN;
  const body = h("tbody", {});
  const foot = h("div", { class: "foot" });
  const drawThreads = () => {
    put(body, result.threads.slice(0, shown).map((each) => h("tr", {}, h("td", { class: "name" }, each.id.startsWith("statelog:") ? each.id : h("a", { href: threadLink(each.id) }, each.id)), h("td", { class: "number" }, `${about}${size(each.records_size_bytes)}`), h("td", { class: "number wide" }, count(each.checkpoints)), h("td", { class: "number wide" }, count(each.records)), h("td", { class: "number wide" }, each.lent_size_bytes ? size(each.lent_size_bytes) : ""))));
    const more = h("button", { type: "button", onclick: () => { shown += THREADS_SHOWN; drawThreads(); } }, "Show more");
    put(foot, result.threads.length > shown ? more : null, h("span", { class: "quiet" }, `${counted(result.thread_count, "thread")}${result.threads.length < result.thread_count ? `; the largest ${count(result.threads.length)} are listed` : ""}`));
  };
  drawThreads();
  return [
    facts(
      ["file", `${size(result.file_size_bytes)} of at most ${size(result.map_size_bytes)}`],
      ["after compaction", `about ${size(result.compacted_size_bytes)}`],
      ["records", `${about}${size(result.records_size_bytes)} in ${counted(result.last_lsn, "record")}, ${about}${counted(result.nodes, "node")}`],
      ["without sharing", `${guess}${size(result.snapshots_size_bytes)} if every state were stored whole`],
      ["of no thread", result.unowned_size_bytes ? `${about}${size(result.unowned_size_bytes)}` : null],
      ["contents", `${counted(result.thread_count, "thread")}, ${counted(result.branch_count, "branch", "branches")}, ${counted(result.checkpoint_count, "checkpoint")}`],
      ["pages", `${count(result.pages_used + result.pages_free)} of ${size(result.page_size_bytes)}, ${count(result.pages_free)} free`],
      ["readers", count(result.readers)],
      ["policies", result.policies.length ? result.policies.map((each) => `${each.pattern ?? `id ${each.id_digest}`}: ${policyText(each.policy)}`).join("; ") : null],
    ),
    h("table", { class: "list", id: "sizes" }, columns("thread", "records|number", "checkpoints|number wide", "of records|number wide", "lent|number wide"), body),
    foot,
  ];
}

// --- sizes of channels -------------------------------------------------------------------------

function channelSizes() {
  const place = h("div", { role: "status" });
  const thread = h("input", { name: "thread", required: true, placeholder: "Thread", "aria-label": "Thread", spellcheck: "false" });
  const branch = h("input", { name: "branch", placeholder: "main", "aria-label": "Branch", spellcheck: "false" });
  const measure = async (event) => {
    event.preventDefault();
    put(place, h("p", { class: "quiet" }, "Measuring…"));
    try {
      const answer = await get("health/channels", { thread: thread.value, branch: branch.value });
      const most = Math.max(1, ...answer.channels.map((each) => each.size_bytes));
      put(
        place,
        answer.channels.length === 0 ? nothing("The branch has no channels.") : null,
        h("table", { class: "list", id: "channels", hidden: answer.channels.length === 0 }, columns("channel", "size as CBOR|number", "shared|number wide", "items|number", "|wide"), h("tbody", {}, answer.channels.map((each) => h("tr", {}, h("td", { class: "name" }, each.name), h("td", { class: "number" }, size(each.size_bytes)), h("td", { class: "number wide" }, each.shared_size_bytes ? size(each.shared_size_bytes) : ""), h("td", { class: "number" }, count(each.items)), h("td", { class: "wide" }, h("span", { class: "meter", style: { width: `${Math.round((each.size_bytes / most) * 120)}px` } })))))),
        answer.count > answer.channels.length ? h("p", { class: "quiet" }, `${count(answer.channels.length)} of ${counted(answer.count, "channel")} are shown.`) : null,
      );
    } catch (error) {
      put(place, problem(error));
    }
  };
  return [h("form", { class: "measure", onsubmit: measure }, thread, branch, h("button", {}, "Measure")), place];
}

// --- retention ---------------------------------------------------------------------------------

function policyText(policy) {
  const rules = [];
  if (policy.keep_last !== null && policy.keep_last !== undefined) rules.push(`the last ${count(policy.keep_last)}`);
  if (policy.max_age_s !== null && policy.max_age_s !== undefined) rules.push(`younger than ${length(policy.max_age_s * 1000)}`);
  if (rules.length === 0) return "keeps all versions";
  return `keeps ${rules.join(", and those ")}${policy.keep_tags ? ", and tagged ones" : ""}`;
}

function retention() {
  const body = h("tbody", {});
  const table = h("table", { class: "list", id: "due", hidden: true }, columns("thread", "policy|fill", "versions|number wide", "due|number"), body);
  let looked = 0;
  const note = h("p", { class: "quiet" });
  const list = paged(
    (after) => get("health/retention", { offset: after, limit: 200 }),
    (answer, isFirst) => {
      if (isFirst) {
        body.replaceChildren();
        looked = 0;
      }
      looked += answer.looked_at;
      body.append(...answer.threads.map((each) => h("tr", {}, h("td", { class: "name" }, h("a", { href: threadLink(each.id) }, each.id)), h("td", { class: "fill" }, policyText(each.policy)), h("td", { class: "number wide" }, count(each.versions)), h("td", { class: "number" }, each.problem ? h("span", { class: "damaged" }, `not readable: ${each.problem.message}`) : `${count(each.due)}${each.is_more ? " or more" : ""}`))));
      table.hidden = body.childElementCount === 0;
      put(note, table.hidden ? null : `Of ${counted(looked, "thread")}. A policy removes what is due as its thread commits, every 64 versions, or when store.prune() is called.`);
      return body.childElementCount;
    },
    () => nothing("No thread has a retention policy.", "Without a policy, all versions stay.", 'store.set_retention(keep_last=100, threads="ticket-*")'),
  );
  return { place: h("div", {}, table, note, list.foot), list };
}
