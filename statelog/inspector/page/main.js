// The frame of the page: the bar, and the screen that the address names.

import { describeStore, forget, live } from "./api.js";
import * as board from "./board.js";
import * as compare from "./compare.js";
import { h, problem, put } from "./dom.js";
import * as health from "./health.js";
import * as log from "./log.js";
import * as run from "./run.js";
import * as runs from "./runs.js";
import * as search from "./search.js";
import * as thread from "./thread.js";
import * as threads from "./threads.js";

// Each screen has the first part of its address, its name in the bar (if it is in the bar), and its module. A module
// exports show(root, params), which draws into `root`, and returns nothing or a function that ends the screen.
const SCREENS = [
  ["threads", "Threads", threads],
  ["thread", null, thread],
  ["board", "Board", board],
  ["runs", "Runs", runs],
  ["run", null, run],
  ["compare", null, compare],
  ["search", "Search", search],
  ["log", "Log", log],
  ["health", "Health", health],
];

let stop = null;
let shown = 0; // The number of screens so far. A screen that loads too late is not drawn.

/** Return the parts of an address: #/thread/ID?version=3 gives {screen, id, version}. */
function parse(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [screen, ...rest] = path.split("/");
  let id = rest.join("/");
  try {
    id = decodeURIComponent(id);
  } catch {
    // The address was typed by hand, so use it unchanged.
  }
  return { ...Object.fromEntries(new URLSearchParams(query ?? "")), screen: screen || "threads", id };
}

async function show() {
  const params = parse(location.hash);
  const root = document.getElementById("screen");
  const [, , module] = SCREENS.find(([name]) => name === params.screen) ?? SCREENS[0];
  stop?.();
  stop = null;
  root.replaceChildren();
  markCurrent();
  const mine = (shown += 1);
  try {
    const ended = await module.show(root, params);
    if (mine === shown) stop = ended ?? null;
    else ended?.();
  } catch (error) {
    if (mine === shown) put(root, problem(error));
  }
}

/** Mark the current screen in the bar. The screen of a thread counts as threads, and the screen of a run as runs. */
function markCurrent() {
  const { screen } = parse(location.hash);
  for (const link of document.querySelectorAll("#bar nav a")) {
    if ([screen, `${screen}s`, screen === "compare" ? "runs" : null].includes(link.dataset.screen)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function drawBar(store) {
  const links = SCREENS.filter(([, title]) => title).map(([name, title]) =>
    h("a", { href: `#/${name}`, "data-screen": name }, title),
  );
  const file = store.path.slice(store.path.lastIndexOf("/") + 1);
  put(
    document.getElementById("bar"),
    h("a", { class: "brand", href: "#/threads" }, "statelog"),
    h("span", { class: "file", title: store.path }, file),
    h("nav", { "aria-label": "Screens" }, links),
    h("span", { class: "badge" }, store.allow_writes ? "can write" : "read-only"),
    h("span", { class: "live", title: "Shows changes as they are committed" }, "live"),
  );
  markCurrent();
  document.title = `${file} · statelog`;
}

function focusSearch(event) {
  const isTyping = event.target instanceof Element && event.target.matches("input, textarea, select");
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || isTyping) return;
  const search = document.querySelector("#screen input[type=search]");
  if (search) {
    event.preventDefault();
    search.focus();
    search.select();
  }
}

async function start() {
  addEventListener("hashchange", show);
  addEventListener("keydown", focusSearch);
  const first = show();
  try {
    drawBar(await describeStore());
  } catch (error) {
    put(document.getElementById("bar"), problem(error));
  }
  await first;
  forget();
  live(() => {});
}

start();
