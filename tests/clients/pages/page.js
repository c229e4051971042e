// A page that a test drives: what it does is told in its address (`#` and JSON), what happened stands in `seen`.

import { connect } from "/client/index.js";

const { options, tools: names } = JSON.parse(decodeURIComponent(location.hash.slice(1)));
const held = new Map();
const seen = { calls: [], states: [], shown: [], ticks: 0, at: performance.now(), longest: 0 };
let client;

function tool(name) {
  return {
    description: name,
    parameters: { type: "object" },
    idempotent: name.endsWith("idempotent"),
    run(args, { callId, attempt }) {
      seen.calls.push({ callId, name, attempt });
      if (name.startsWith("hold")) return new Promise((resolve) => held.set(callId, resolve));
      if (name === "navigate") {
        location.href = `/page.html?next${location.hash}`;
        return "on my way";
      }
      return JSON.stringify(args);
    },
  };
}

addEventListener("pageshow", ({ persisted }) => seen.shown.push(persisted));
setInterval(() => {
  const now = performance.now();
  seen.longest = Math.max(seen.longest, now - seen.at);
  seen.at = now;
  seen.ticks++;
}, 100);
client = connect({ ...options, tools: Object.fromEntries(names.map((name) => [name, tool(name)])) });
client.on("state", (state) => seen.states.push(state));
Object.assign(globalThis, { seen, client, finish: (id, text) => held.get(id)(text) });
