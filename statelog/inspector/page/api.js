// What the page asks the server. An exported thread has the answers in the file, and asks no server.

const kept = document.getElementById("answers");
const answers = kept ? JSON.parse(kept.textContent) : null;

/** Whether the page is an exported file. */
export const isExport = answers !== null;

class Refused extends Error {
  constructor(answer, status) {
    super(answer.message);
    this.name = answer.error;
    this.facts = answer.facts;
    this.status = status;
  }
}

function address(path, query) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(given).toString();
  return `api/${path}${text ? `?${text}` : ""}`;
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

/** Return the answer to a GET. `path` is below /api/, `query` an object; empty values are left out. */
export async function get(path, query) {
  const asked = address(path, query);
  if (!isExport) return ask(asked);
  if (asked in answers) return answers[asked];
  throw new Refused({ error: "Not in this file", message: "The exported file does not have this part of the thread." }, 404);
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
    source.onopen = () => document.body.classList.add("is-live");
    source.onerror = () => document.body.classList.remove("is-live");
  }
  return () => listeners.delete(listener);
}
