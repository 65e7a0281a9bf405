// Times by the server's clock, because deadlines use that clock, and a browser's clock may be wrong.

import { h, moment } from "./dom.js";

let offset = null;

/** Set the clock to the time `now` of an answer. */
export function setClock(now) {
  offset = Date.parse(now) - performance.now();
}

/** Return the time of the server in milliseconds. */
export function serverNow() {
  return offset === null ? Date.now() : offset + performance.now();
}

const UNITS = [[86_400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

/** Return a duration in two units: "3 h 20 min", "4 min 03 s", "0.25 s". */
export function length(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const at = UNITS.findIndex(([step]) => seconds >= step);
  const [step, unit] = UNITS[at];
  const whole = Math.floor(seconds / step);
  if (at === UNITS.length - 1) return `${whole} s`;
  const [small, below] = UNITS[at + 1];
  return `${whole} ${unit} ${String(Math.floor((seconds % step) / small)).padStart(2, "0")} ${below}`;
}

function text(element) {
  const left = Date.parse(element.dateTime) - serverNow();
  const whole = length(Math.max(1000, Math.abs(left))).replace(/\.\d/, "");
  const [number, unit] = whole.split(" ");
  if (element.dataset.clock === "since") return left > 1000 ? `in ${number} ${unit}` : `${number} ${unit} ago`;
  element.classList.toggle("is-over", left <= 0);
  return left > 0 ? `${whole} left` : `overdue by ${whole}`;
}

function ticking(kind, iso) {
  const element = h("time", { datetime: iso, title: moment(iso), "data-clock": kind });
  element.textContent = text(element);
  return element;
}

/** Return a <time> that counts down to a deadline. */
export function until(iso) {
  return ticking("until", iso);
}

/** Return a <time> that shows how long ago a time was, or how soon it will be. */
export function since(iso) {
  return ticking("since", iso);
}

setInterval(() => {
  if (document.hidden) return;
  for (const element of document.querySelectorAll("time[data-clock]")) {
    const shown = text(element);
    if (element.textContent !== shown) element.textContent = shown;
  }
}, 1000);
