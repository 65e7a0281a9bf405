// What the page asks the server. An exported thread has the answers in the file, and asks no server.

const kept = JSON.parse(document.getElementById("answers").textContent);
const answers = read(kept);

/** Whether the page is an exported file. Otherwise its HTML has the answers of the first screen only. */
export const isExport = kept.is_whole;

/** Forget the answers of the first screen, so that other screens get new ones. */
export function forget() {
  if (!isExport) answers.clear();
}

/** Return the answers in the HTML by request. A part that several answers share is stored once. */
function read({ parts, answers: stored }) {
  const ready = []; // a part refers to earlier parts only
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

/** Return a query as pairs: an object, or pairs already; empty values are left out. */
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

/** Return the answer to a GET. `path` is below /api/, `query` an object or pairs; empty values are left out. */
export async function get(path, query) {
  const asked = pairs(query);
  const key = JSON.stringify([path, ...asked.toSorted()]);
  const answer = answers.get(key);
  if (answer !== undefined) return answer;
  if (!isExport) return ask(`api/${path}${asked.length ? `?${new URLSearchParams(asked)}` : ""}`);
  throw new Refused({ error: "Not in this file", message: "The exported file does not have this part of the thread." }, 404);
}

let described = null;

/** Return {path, allow_writes} of the store. The server is asked once. */
export function describeStore() {
  described ??= get("store").catch((error) => {
    described = null;
    throw error;
  });
  return described;
}

/** Return the answer to a POST of an object. Raises what the store refused, with its facts. */
export async function post(path, body) {
  return ask(`api/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-statelog": "1" },
    body: JSON.stringify(body),
  });
}

const listeners = new Set();
let source = null;

/**
 * Call `listener` with {lsn, threads, keys, types, all} when the store has changed, a few times a second at most.
 * Return a function that stops it.
 */
export function live(listener) {
  if (isExport) return () => {};
  listeners.add(listener);
  if (source === null) {
    source = new EventSource("api/live");
    source.onmessage = (message) => {
      const change = JSON.parse(message.data);
      if (change.lsn) for (const each of [...listeners]) each(change);
    };
    const tell = (isLive) => {
      document.body.classList.toggle("is-live", isLive);
      const sign = document.querySelector("#bar .live");
      if (sign) sign.textContent = isLive ? "live" : "not live";
    };
    source.onopen = () => tell(true);
    source.onerror = () => tell(false);
  }
  return () => listeners.delete(listener);
}
