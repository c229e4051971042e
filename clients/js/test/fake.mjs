// A gateway made of plain objects: sockets that a test opens, answers and cuts.

import { connect } from "../dist/index.js";

export const SESSION = "00000000-0000-4000-8000-000000000001";
export const turns = async (count = 20) => {
  for (let left = count; left > 0; left--) await Promise.resolve();
};

export class FakeSocket {
  static all = [];
  static get last() {
    return FakeSocket.all.at(-1);
  }

  readyState = 0;
  sent = [];

  constructor(url, protocols) {
    Object.assign(this, { url, protocols });
    FakeSocket.all.push(this);
  }

  send(text) {
    this.sent.push(JSON.parse(text));
    this.onsend?.(this.sent.at(-1));
  }

  close() {
    this.readyState = 3;
  }

  open() {
    this.readyState = 1;
    this.onopen({});
  }

  say(frame) {
    this.onmessage({ data: JSON.stringify(frame) });
  }

  raw(data) {
    this.onmessage({ data });
  }

  event(seq, type, fields) {
    this.say({ session_id: SESSION, event: { seq, type, ...fields } });
  }

  dispatch(seq, callId, fields = {}) {
    const call = { client_id: "c1", call_id: callId, tool: "echo", arguments: {}, attempt: 1, remaining_ms: 60_000 };
    this.event(seq, "client_tool_dispatched", { ...call, ...fields });
  }

  cut(code = 1006) {
    this.readyState = 3;
    this.onclose({ code });
  }

  of(op) {
    return this.sent.filter((frame) => frame.op === op);
  }

  ok(frame, ok) {
    this.say({ id: frame.id, ok });
  }

  refuse(frame, code, message = "no") {
    this.say({ id: frame.id, error: { code, message } });
  }

  /** Answers the usual ops by itself; `answers` has others, by op: what `ok` holds, or a function of the frame. */
  serve(answers = {}) {
    const usual = {
      attach: (frame) => ({ seq: frame.after_seq ?? 10, status: "idle" }),
      register: { client_id: "c1", name: "web", expires_at: null, resume_key: "rk" },
      resume: { name: "web", expires_at: null, calls: [] },
      tools: {}, ack: {}, result: {}, leave: {}, ping: { time: "" },
      input: { outcome: "new_run", run_id: "r" },
      ...answers,
    };
    this.onsend = (frame) => {
      const answer = usual[frame.op];
      const ok = typeof answer === "function" ? answer(frame) : answer;
      if (ok) queueMicrotask(() => this.ok(frame, ok));
    };
    return this;
  }
}

/** A client and what it told. */
export function client(options = {}) {
  FakeSocket.all.length = 0;
  const made = connect({ url: "http://gateway.example", session: SESSION, token: "trs_1", key: "tab-1", WebSocket: FakeSocket, ...options });
  const told = { states: [], errors: [], calls: [], events: [] };
  made.on("state", (state) => told.states.push(state));
  made.on("error", (error) => told.errors.push(error.code));
  made.on("call", (record) => told.calls.push(record));
  made.on("event", (event) => told.events.push(event));
  return { made, told };
}

/** A client that is online. `socket` is its first. */
export async function online(options = {}, answers = {}) {
  const tools = { echo: { description: "", parameters: { type: "object" }, run: (args) => JSON.stringify(args) } };
  const { made, told } = client({ tools, ...options });
  await turns();
  const socket = FakeSocket.last.serve(answers);
  socket.open();
  await made.ready();
  return { made, told, socket };
}

/** A tool whose calls a test ends. */
export function held() {
  const calls = [];
  const tool = {
    description: "",
    parameters: { type: "object" },
    run: (args, context) => new Promise((resolve, reject) => calls.push({ args, context, resolve, reject })),
  };
  return { tool, calls };
}
