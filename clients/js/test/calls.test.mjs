// A call is run once and answered once, whatever the link does.

import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

import { FakeSocket, held, online, turns } from "./fake.mjs";

beforeEach((t) => {
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout"] });
  mock.method(Math, "random", () => 0.5);
});

const texts = (socket) => socket.of("result").map((frame) => [frame.call_id, frame.text, frame.is_error ?? false]);

/** The next socket, after the current one was cut. */
async function again(answers = {}) {
  const before = FakeSocket.last;
  before.cut();
  await turns();
  mock.timers.tick(10_000);
  await turns();
  const socket = FakeSocket.last.serve(answers);
  assert.notEqual(socket, before);
  socket.open();
  await turns(60);
  return socket;
}

test("a call that is delivered twice runs once and gets what it may need", async () => {
  const { tool, calls } = held();
  const { socket, told } = await online({ tools: { echo: tool } });
  socket.dispatch(11, "a", { arguments: { row: 3 } });
  socket.dispatch(12, "a", { arguments: { row: 3 }, attempt: 2 });
  await turns();
  assert.equal(calls.length, 1);
  const { args, context } = calls[0];
  assert.deepEqual(args, { row: 3 });
  assert.deepEqual([context.callId, context.idempotencyKey, context.tool, context.attempt], ["a", "a", "echo", 1]);
  assert.ok(context.remainingMs > 59_000 && context.remainingMs <= 60_000);
  calls[0].resolve("done");
  await turns();
  socket.dispatch(13, "a");
  await turns();
  assert.deepEqual(texts(socket), [["a", "done", false]]);
  assert.deepEqual(told.calls.map((call) => call.state), ["running", "answered"]);
});

test("a call that comes before the answer to register is run, another client's is not", async () => {
  let registering;
  const { made, socket } = await (async () => {
    const { client } = await import("./fake.mjs");
    const { made } = client({ tools: { echo: { description: "", parameters: {}, run: () => "here" } } });
    await turns();
    const socket = FakeSocket.last.serve({ register: (frame) => void (registering = frame) });
    socket.open();
    await turns();
    return { made, socket };
  })();
  socket.dispatch(11, "mine");
  socket.dispatch(12, "theirs", { client_id: "c2" });
  socket.dispatch(13, "over");
  socket.event(14, "client_tool_failed", { client_id: "c1", call_id: "over", reason: "run_gone" });
  socket.ok(registering, { client_id: "c1", name: "web", expires_at: null, resume_key: "rk" });
  await made.ready();
  await turns();
  assert.deepEqual(texts(socket), [["mine", "here", false]]);
});

test("a list that a tool changed is sent before the tool's answer", async () => {
  const { made, socket } = await online();
  made.setTool("go", { description: "", parameters: {}, run: () => {
    made.setTools({ other: { description: "", parameters: {}, run: () => "" } });
    return "gone";
  } });
  await turns();
  socket.sent.length = 0;
  socket.dispatch(11, "a", { tool: "go" });
  await turns();
  assert.deepEqual(socket.sent.map((frame) => frame.op), ["tools", "result"]);
  assert.deepEqual(socket.sent[0].tools.map((tool) => tool.name), ["other"]);
});

test("changes of one turn are one list, and a list that is the same is not sent", async () => {
  const { made, socket } = await online();
  const tool = { description: "", parameters: {}, run: () => "" };
  made.setTool("one", tool);
  made.setTool("two", { ...tool, timeoutMs: 5_000, idempotent: true });
  made.removeTool("echo");
  await turns();
  assert.deepEqual(socket.of("tools").map((frame) => frame.tools), [[
    { name: "one", description: "", parameters: {} },
    { name: "two", description: "", parameters: {}, timeout_ms: 5_000, idempotent: true },
  ]]);
  made.setTool("one", { ...tool });
  await turns();
  assert.equal(socket.of("tools").length, 1);
});

test("only what takes long is acked; a hidden page acks at once", async () => {
  const { tool, calls } = held();
  const { socket } = await online({ tools: { echo: tool } });
  socket.dispatch(11, "quick");
  await turns();
  calls[0].resolve("");
  await turns();
  mock.timers.tick(1_000);
  assert.equal(socket.of("ack").length, 0);
  socket.dispatch(12, "slow");
  mock.timers.tick(49);
  assert.equal(socket.of("ack").length, 0);
  mock.timers.tick(1);
  assert.deepEqual(socket.of("ack").map((frame) => frame.call_id), ["slow"]);
  globalThis.document = { visibilityState: "hidden" };
  try {
    socket.dispatch(13, "hidden");
    assert.deepEqual(socket.of("ack").map((frame) => frame.call_id), ["slow", "hidden"]);
  } finally {
    delete globalThis.document;
  }
});

test("a call that is over is aborted and not answered", async () => {
  const { tool, calls } = held();
  const { socket, told } = await online({ tools: { echo: tool } });
  socket.dispatch(11, "failed");
  socket.dispatch(12, "elsewhere");
  socket.dispatch(13, "late", { remaining_ms: 500 });
  await turns();
  socket.event(14, "client_tool_failed", { client_id: "c1", call_id: "failed", reason: "run_gone" });
  socket.event(15, "tool_result", { call_id: "elsewhere", content: [], is_error: false });
  mock.timers.tick(500);
  assert.deepEqual(calls.map(({ context }) => [context.signal.aborted, context.signal.reason.code]), [
    [true, "run_gone"], [true, "settled"], [true, DOMException.TIMEOUT_ERR],
  ]);
  calls[0].resolve("x");
  calls[1].resolve("x");
  await turns();
  assert.equal(socket.of("result").length, 0);
  assert.deepEqual(told.calls.filter((call) => call.state === "aborted").map((call) => call.callId), ["failed", "elsewhere"]);
});

test("a running call outlives a cut: its answer goes over the next socket, once", async () => {
  const { tool, calls } = held();
  await online({ tools: { echo: tool } });
  FakeSocket.last.dispatch(11, "during");
  FakeSocket.last.dispatch(12, "after");
  FakeSocket.last.dispatch(13, "settled");
  await turns();
  FakeSocket.last.onsend = null; // answers nothing more
  const first = FakeSocket.last;
  calls[0].resolve("one");
  await turns();
  assert.equal(first.of("result").length, 1); // and nobody knows whether it came through
  const open = ["during", "after"].map((id, at) => ({ seq: 11 + at, type: "client_tool_dispatched", client_id: "c1", call_id: id, tool: "echo", arguments: {}, attempt: 1, remaining_ms: 9_000 }));
  const second = await again({ attach: (frame) => ({ seq: frame.after_seq ?? 20, status: "active" }), resume: { name: "web", expires_at: null, calls: open } });
  assert.deepEqual(second.of("resume").map((frame) => [frame.client_id, frame.resume_key]), [["c1", "rk"]]);
  assert.equal(second.of("register").length, 0);
  assert.deepEqual(texts(second), [["during", "one", false]]);
  assert.equal(calls[2].context.signal.reason.code, "settled");
  second.dispatch(11, "during"); // the replay of what was before
  calls[1].resolve("two");
  await turns();
  assert.deepEqual(texts(second), [["during", "one", false], ["after", "two", false]]);
  assert.equal(calls.length, 3);
});

test("calls of the log's past are run only where resume says that they are open", async () => {
  const ran = [];
  const tools = { echo: { description: "", parameters: {}, run: (_, { callId }) => void ran.push(callId) } };
  const { told } = await online({ tools });
  const call = (seq, id) => ({ seq, type: "client_tool_dispatched", client_id: "c1", call_id: id, tool: "echo", arguments: {}, attempt: 1, remaining_ms: 9_000 });
  const socket = await again({ attach: (frame) => ({ seq: frame.after_seq ?? 13, status: "active" }), resume: { name: "web", expires_at: null, calls: [call(12, "open")] } });
  assert.deepEqual(socket.of("attach").map((frame) => frame.after_seq), [undefined, 10]);
  for (const [seq, id] of [[11, "over"], [12, "open"], [14, "new"]]) socket.dispatch(seq, id);
  await turns();
  assert.deepEqual(ran, ["open", "new"]);
  assert.deepEqual(told.events.map((event) => event.seq), [11, 12, 14]);
});

test("what is remembered of calls is bounded, and running ones stay", async () => {
  const { tool, calls } = held();
  const ran = [];
  const { socket } = await online({ tools: { held: tool, echo: { description: "", parameters: {}, run: (_, { callId }) => void ran.push(callId) } } });
  socket.dispatch(11, "running", { tool: "held" });
  for (let at = 0; at < 1_500; at++) {
    socket.dispatch(12 + at, `call-${at}`);
    await turns(8);
  }
  assert.equal(ran.length, 1_500);
  socket.dispatch(2_000, "running", { tool: "held" });
  socket.dispatch(2_001, "call-1499");
  await turns();
  assert.equal(calls.length, 1);
  assert.equal(ran.length, 1_500);
  socket.dispatch(2_002, "call-0"); // long forgotten
  await turns();
  assert.equal(ran.length, 1_501);
});

test("a lapsed registration is made anew; what is dispatched again is not run again", async () => {
  const { tool, calls } = held();
  await online({ tools: { echo: tool } });
  FakeSocket.last.dispatch(11, "a");
  await turns();
  const second = await again({ resume: () => null, register: { client_id: "c2", name: "web", expires_at: null, resume_key: "rk2" } });
  second.refuse(second.of("resume")[0], "not_found");
  await turns(40);
  assert.equal(second.of("register")[0].key, "tab-1");
  second.dispatch(30, "a", { client_id: "c2", attempt: 2 });
  calls[0].resolve("once");
  await turns();
  assert.equal(calls.length, 1);
  assert.deepEqual(second.of("result").map((frame) => [frame.client_id, frame.text]), [["c2", "once"]]);
});

test("a refused answer becomes an error answer, once", async () => {
  const { socket, told } = await online({}, { result: () => null });
  socket.dispatch(11, "a");
  await turns();
  socket.refuse(socket.of("result")[0], "invalid_request", "structured: too deep");
  await turns();
  assert.equal(socket.of("result").length, 2);
  assert.deepEqual([socket.of("result")[1].is_error, socket.of("result")[1].text], [true, "The tool's result was refused: structured: too deep"]);
  socket.refuse(socket.of("result")[1], "invalid_request");
  await turns();
  assert.equal(socket.of("result").length, 2);
  assert.equal(told.calls.at(-1).state, "failed");
});

test("an answer that the gateway could not take now is sent again", async () => {
  const { socket } = await online({}, { result: () => null });
  socket.dispatch(11, "a");
  await turns();
  socket.refuse(socket.of("result")[0], "internal");
  await turns();
  assert.equal(socket.of("result").length, 1);
  mock.timers.tick(1_000);
  await turns();
  assert.equal(socket.of("result").length, 2);
});

test("names and arguments cannot reach a prototype", async () => {
  const seen = [];
  const { socket } = await online({ tools: { echo: { description: "", parameters: {}, run: (args) => void seen.push(Object.assign({}, args)) } } });
  socket.raw('{"event":{"seq":11,"type":"client_tool_dispatched","client_id":"c1","call_id":"a","tool":"echo","arguments":{"__proto__":{"admin":true},"in":[{"\\u005f_proto__":1}]}}}');
  for (const [at, tool] of ["__proto__", "constructor", "toString"].entries()) socket.dispatch(12 + at, tool, { tool });
  await turns();
  assert.equal(seen[0].admin, undefined);
  assert.deepEqual(Object.getOwnPropertyNames(seen[0].in[0]), []);
  assert.deepEqual(socket.of("result").map((frame) => frame.is_error ?? false), [true, true, true, false]);
  assert.equal({}.admin, undefined);
});
