// The frame of an exported thread, which has one screen. The answers for the screen are in the file.

import { describeStore } from "./api.js";
import { h, problem, put } from "./dom.js";
import { show } from "./thread.js";

async function start() {
  const root = document.getElementById("screen");
  try {
    const { path, thread } = await describeStore();
    put(document.getElementById("bar"), h("span", { class: "brand" }, "statelog"), h("span", { class: "file" }, path), h("span", { class: "spread" }), h("span", { class: "badge" }, "exported"));
    document.title = `${thread} · statelog`;
    await show(root, { id: thread });
  } catch (error) {
    put(root, problem(error));
  }
}

start();
