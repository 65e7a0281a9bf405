// Messages as a conversation. Tool calls are folded, and show their result.

import { count, empty, h, problem, put } from "./dom.js";

const NAMES = { user: "user", assistant: "assistant", system: "system", tool: "tool", reasoning: "reasoning" };

/** Return the conversation of a channel; `more(before)` returns a promise of the messages before a position. */
export function conversation(answer, more) {
  if (!answer.channels.length) return empty("This version has no messages.", "Messages are shown if a channel is a list of them.");
  return h("div", { class: "conversations" }, answer.channels.map((each) => channel(each, answer.channels.length > 1, more)));
}

function channel(given, isNamed, more) {
  const results = new Map();
  const list = h("ol", { class: "conversation" });
  const earlier = h("button", { type: "button", class: "more" });
  let start = given.start;

  function items(messages) {
    for (const message of messages) for (const each of message.results) results.set(each.id, each.text);
    const called = new Set(messages.flatMap((message) => message.calls.map((call) => call.id)));
    return messages.map((message) => item(message, results, called)).filter(Boolean);
  }

  function label() {
    earlier.hidden = start === 0;
    put(earlier, `Show earlier messages (${count(start)} more)`);
  }

  earlier.onclick = async () => {
    try {
      const answer = await more(start);
      const found = answer.channels.find((each) => each.channel === given.channel);
      if (!found) return;
      start = found.start;
      list.prepend(...items(found.messages));
      label();
    } catch (error) {
      earlier.replaceWith(problem(error));
    }
  };
  list.append(...items(given.messages));
  label();
  return h("section", {}, isNamed ? h("h3", { class: "channel" }, given.channel) : null, earlier, list);
}

function item(message, results, called) {
  const answers = message.results.filter((each) => !called.has(each.id));
  if (!message.text && !message.calls.length && !answers.length && message.results.length) return null; // shown with its call
  const role = message.role in NAMES ? message.role : "other";
  return h(
    "li",
    { class: `message is-${role}` },
    h("div", { class: "who" }, message.role, message.name && message.name !== message.role ? ` · ${message.name}` : ""),
    message.text ? h("div", { class: "said" }, message.text, message.size > message.text.length ? h("span", { class: "quiet" }, ` … ${count(message.size - message.text.length)} more characters, in the state`) : null) : null,
    message.calls.map((call) => fold(call.name, call.arguments, results.get(call.id))),
    answers.map((each) => fold("result", null, each.text)),
  );
}

function fold(name, given, result) {
  const hint = (given ?? result ?? "").replace(/\s+/g, " ").slice(0, 80);
  return h(
    "details",
    { class: "call" },
    h("summary", {}, h("span", { class: "tool" }, name), h("span", { class: "quiet" }, hint)),
    given === null ? null : h("pre", {}, given),
    result === undefined ? h("p", { class: "quiet" }, "This version has no result of the call.") : h("pre", { class: "result" }, result),
  );
}
