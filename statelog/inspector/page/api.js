// Requests of the page to the server. An exported thread has the answers in its file, and does not need a server.

const kept = JSON.parse(document.getElementById("answers").textContent);
const answers = read(kept);

/** True if the page is an exported file. Otherwise its HTML contains only the answers of the first screen. */
export const isExport = kept.is_whole;

/** Forget the answers of the first screen, so that other screens get new ones. */
export function forget() {
  if (!isExport) answers.clear();
}

/** Return the answers in the HTML, by request. A part that several answers share is stored only once. */
function read({ parts, answers: stored }) {
  const ready = []; // A part refers only to earlier parts.
  const whole = (value) => {
    if (Array.isArray(value)) return value.map(whole);
    if (value === null || typeof value !== "object") return value;
    if ("$part" in value) return ready[value.$part];
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, whole(each)]));
  };
  for (const part of parts) ready.push(whole(part));
  return new Map(stored.map(([asked, answer]) => [asked, whole(answer)]));
}

class Refused extends Error {
  constructor(answer, status) {
    super(answer.message);
    this.name = answer.error;
    this.facts = answer.facts;
    this.status = status;
  }
}

/** Return a query as pairs. The query is an object, or a list of pairs. Empty values are left out. */
function pairs(query) {
  const given = Array.isArray(query) ? query : Object.entries(query ?? {});
  return given.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => [name, String(value)]);
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new Refused({ error: "No answer", message: "The server does not answer. Is `statelog ui` still running?" }, 0);
  }
  const type = response.headers.get("content-type") ?? "";
  const answer = type.startsWith("application/json")
    ? await response.json()
    : { error: `Status ${response.status}`, message: await response.text(), facts: {} };
  if (!response.ok || !type.startsWith("application/json")) throw new Refused(answer, response.status);
  return answer;
}

/** Return the answer to a GET. `path` is below /api/. `query` is as for `pairs`. */
export async function get(path, query) {
  const asked = pairs(query);
  const key = JSON.stringify([path, ...asked.toSorted()]);
  const answer = answers.get(key);
  if (answer !== undefined) return answer;
  if (!isExport) return ask(`api/${path}${asked.length ? `?${new URLSearchParams(asked)}` : ""}`);
  throw new Refused({ error: "Not in this file", message: "The exported file does not have this part of the thread." }, 404);
}

let described = null;

/** Return {path, allow_writes} of the store. The page asks the server only once. */
export function describeStore() {
  described ??= get("store").catch((error) => {
    described = null;
    throw error;
  });
  return described;
}

/** Return the answer to a POST of an object. Throws the error of the store, with its facts. */
export async function post(path, body) {
  return ask(`api/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-statelog": "1" },
    body: JSON.stringify(body),
  });
}

const listeners = new Set();
const ALL = { lsn: 0, threads: [], keys: [], types: [], all: true };
let isListening = false;

/**
 * Call `listener` with {lsn, threads, keys, types, all} after changes of the store, at most a few times a second.
 * Return a function that ends these calls.
 */
export function live(listener) {
  if (isExport) return () => {};
  listeners.add(listener);
  if (!isListening) listen();
  isListening = true;
  return () => listeners.delete(listener);
}

/**
 * Listen to the changes that the server reports. A browser opens at most six connections to a server, and a stream
 * occupies one of them. So one tab reads the stream, and forwards it to the other tabs. If the reading tab is closed,
 * another tab takes over.
 */
function listen() {
  const tabs = new BroadcastChannel("live");
  let isLive = false;
  let isReader = false;
  let hasFollowed = false;

  function receive(news) {
    if (news.isLive !== undefined) {
      isLive = news.isLive;
      document.body.classList.toggle("is-live", isLive);
      const sign = document.querySelector("#bar .live");
      if (sign) sign.textContent = isLive ? "live" : "not live";
    }
    if (news.change) for (const each of [...listeners]) each(news.change);
  }

  function tell(news) {
    receive(news);
    tabs.postMessage(news);
  }

  function read(end) {
    const source = new EventSource("api/live");
    isReader = true;
    source.onmessage = (message) => {
      const change = JSON.parse(message.data);
      if (change.lsn) tell({ change });
    };
    source.onopen = () => tell({ isLive: true, change: hasFollowed ? ALL : undefined }); // A change may have been missed.
    source.onerror = () => {
      tell({ isLive: false });
      if (source.readyState !== EventSource.CLOSED) return; // The browser connects again by itself.
      isReader = false;
      end();
    };
  }

  tabs.onmessage = ({ data }) => {
    if (data.asks) {
      if (isReader) tabs.postMessage({ isLive });
    } else {
      hasFollowed = true;
      receive(data);
    }
  };
  tabs.postMessage({ asks: true });
  if (navigator.locks) navigator.locks.request("live", () => new Promise(read)).catch(() => {});
  else read(() => {}); // A page of another machine has locks only over HTTPS.
}
