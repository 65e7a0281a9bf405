// The frame of the page: the bar, and the screen that the address names.

import { get, isExport, live } from "./api.js";
import { h, problem, put } from "./dom.js";
import * as threads from "./threads.js";

// Each screen: the first part of its address, its name in the bar (none: reached from another screen), its module. A
// module exports show(root, params): it draws into `root`, and returns a function that ends it, or nothing.
const SCREENS = [
  ["threads", "Threads", threads],
  ["board", "Board", later(() => import("./board.js"))],
  ["runs", "Runs", later(() => import("./runs.js"))],
  ["run", null, later(() => import("./run.js"))],
  ["compare", null, later(() => import("./compare.js"))],
  ["log", "Log", later(() => import("./log.js"))],
  ["health", "Health", later(() => import("./health.js"))],
];

/** Return a screen whose module is loaded when it is shown first: so the first screen does not wait for the others. */
function later(load) {
  return { show: async (root, params) => (await load()).show(root, params) };
}

let stop = null;

/** Return the parts of an address: #/thread/ID?version=3 gives {screen, id, version}. */
function parse(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [screen, ...rest] = path.split("/");
  let id = rest.join("/");
  try {
    id = decodeURIComponent(id);
  } catch {
    // a hand-written address: take it as it is
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
  const name = params.screen === "thread" ? "threads" : params.screen === "run" ? "runs" : params.screen;
  for (const link of document.querySelectorAll("#bar nav a")) {
    if (link.dataset.screen === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const shown = location.hash;
  try {
    const ended = await module.show(root, params);
    if (location.hash === shown) stop = ended ?? null;
    else ended?.();
  } catch (error) {
    if (location.hash === shown) put(root, problem(error));
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
    isExport ? null : h("nav", { "aria-label": "Screens" }, links),
    h("span", { class: "badge" }, store.allow_writes ? "can write" : isExport ? "exported" : "read-only"),
    isExport ? null : h("span", { class: "live", title: "Shows changes as they are committed" }, "live"),
  );
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
  const shown = show();
  try {
    drawBar(await get("store"));
    show.store = true;
  } catch (error) {
    put(document.getElementById("bar"), problem(error));
  }
  await shown;
  const current = parse(location.hash).screen;
  document.querySelector(`#bar nav a[data-screen="${CSS.escape(current)}"]`)?.setAttribute("aria-current", "page");
  live(() => {});
}

start();
