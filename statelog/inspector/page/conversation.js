// Messages as a conversation. Tool calls are folded, and contain their results.

import { characters, count, empty, h, problem, put, sync } from "./dom.js";

const NAMES = { user: "user", assistant: "assistant", system: "system", tool: "tool", reasoning: "reasoning" };

/** Draws the conversation of one version after another. A message that both versions have stays in the document. */
export class Conversations {
  constructor() {
    this.inside = h("div", {});
    this.element = h("div", { class: "conversations", tabindex: 0, role: "region", "aria-label": "Conversation" }, this.inside);
    this.channels = new Map();
  }

  /** Draw the answer of a version. `more(before)` returns a promise of the messages before a position. */
  draw(answer, more) {
    const former = this.channels;
    this.channels = new Map(answer.channels.map((each) => [each.channel, former.get(each.channel) ?? new Channel(each.channel)]));
    const sections = answer.channels.map((each) => this.channels.get(each.channel).draw(each, answer.channels.length > 1, more));
    sync(this.inside, sections.length ? sections : [empty("This version has no messages.", "Messages are shown if a channel is a list of them.")]);
  }
}

class Channel {
  constructor(name) {
    this.name = name;
    this.title = h("h3", { class: "channel" }, name);
    this.earlier = h("button", { type: "button", class: "more" });
    this.list = h("ol", { class: "conversation" });
    this.section = h("section", {}, this.title, this.earlier, this.list);
    this.items = new Map(); // Elements by their whole content.
  }

  draw(given, isNamed, more) {
    this.title.hidden = !isNamed;
    this.results = new Map();
    this.show(given, new Map(), more);
    return this.section;
  }

  /** Show messages, and below them the items `after`. */
  show({ start, messages }, after, more) {
    for (const message of messages) for (const each of message.results) this.results.set(each.id, each.text);
    const called = new Set(messages.flatMap((message) => message.calls.map((call) => call.id)));
    const items = new Map();
    messages.forEach((message, at) => {
      const key = JSON.stringify([start + at, message, message.calls.map((call) => this.results.get(call.id)), message.results.map((each) => called.has(each.id))]);
      const element = this.items.get(key) ?? item(message, this.results, called);
      if (element) items.set(key, element);
    });
    this.items = new Map([...items, ...after]);
    sync(this.list, [...this.items.values()]);
    this.earlier.hidden = start === 0;
    put(this.earlier, `Show earlier messages (${count(start)} more)`);
    this.earlier.onclick = async () => {
      try {
        const found = (await more(start)).channels.find((each) => each.channel === this.name);
        if (found) this.show(found, this.items, more);
      } catch (error) {
        this.list.before(problem(error));
      }
    };
  }
}

function item(message, results, called) {
  const answers = message.results.filter((each) => !called.has(each.id));
  // The results are shown with their calls.
  if (!message.text && !message.calls.length && !answers.length && message.results.length) return null;
  const missing = message.size - characters(message.text);
  const role = message.role in NAMES ? message.role : "other";
  return h(
    "li",
    { class: `message is-${role}` },
    h("div", { class: "who" }, message.role, message.name && message.name !== message.role ? ` · ${message.name}` : ""),
    message.text ? h("div", { class: "said" }, message.text, missing > 0 ? h("span", { class: "quiet" }, ` … ${count(missing)} more characters, in the state`) : null) : null,
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
    result === undefined ? h("p", { class: "quiet" }, "This version does not have the result of this call.") : h("pre", { class: "result" }, result),
  );
}
