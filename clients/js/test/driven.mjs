// A client that a test drives: commands on stdin, what happens on stdout, a JSON object a line each.

import { createInterface } from "node:readline";

import { connect } from "@toolrelay/client";

// Node.js has a socket of its own from 22 on; an older one is handed the `ws` package's.
const handed = globalThis.WebSocket ? {} : { WebSocket: (await import("ws")).WebSocket };
if (process.argv.includes("own") && handed.WebSocket) throw new Error(`Node.js ${process.version} has no WebSocket`);

const say = (said, fields) => process.stdout.write(`${JSON.stringify({ said, ...fields })}\n`);
const open = new Map(); // call id -> resolve
let client;

function tool(name) {
  const run = (args, { callId, attempt, signal, remainingMs }) => {
    say("call", { call_id: callId, tool: name, args, attempt, remaining_ms: remainingMs });
    if (name.startsWith("hold")) {
      return new Promise((resolve, reject) => {
        open.set(callId, resolve);
        signal.addEventListener("abort", () => {
          say("aborted", { call_id: callId });
          reject(signal.reason);
        });
      });
    }
    if (name === "grow") {
      client.setTool("grown", tool("grown"));
      return "grown";
    }
    if (name === "large") return "x".repeat(70_000);
    if (name === "boom") throw new Error("on purpose");
    return JSON.stringify(args);
  };
  return { description: name, parameters: { type: "object" }, idempotent: name.endsWith("idempotent"), run };
}

const tools = (names) => Object.fromEntries(names.map((name) => [name, tool(name)]));

const commands = {
  connect({ url, session, token, key, ttl, tools: names, after_seq: afterSeq, registration }) {
    client = connect({
      url, session, token, name: "web", key, ttlSeconds: ttl, tools: tools(names), ...handed,
      ...(afterSeq === undefined ? {} : { afterSeq }),
      ...(registration === undefined ? {} : { registration }),
    });
    client.on("state", (state) => say("state", { state, code: client.error?.code }));
    client.on("error", ({ code }) => say("error", { code }));
    client.on("registration", (registration) => say("registration", registration ?? {}));
    client.on("event", ({ type, seq }) => say("event", { type, seq }));
  },
  finish({ call_id: id, text }) {
    open.get(id)(text);
  },
  set_tools({ tools: names }) {
    client.setTools(tools(names));
  },
  async send({ text, key }) {
    say("sent", await client.send(text, { idempotencyKey: key }));
  },
  async close({ leave }) {
    await client.close({ leave });
    say("bye", {});
    process.exit(0);
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { do: command, ...rest } = JSON.parse(line);
  void commands[command](rest);
}
