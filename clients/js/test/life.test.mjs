// Connecting, coming back and ending: by close codes, tokens, silence, pages and locks.

import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

import { connect } from "../dist/index.js";
import { FakeSocket, SESSION, client, held, online, turns } from "./fake.mjs";

beforeEach(() => {
  mock.timers.reset();
  mock.restoreAll();
  mock.timers.enable({ apis: ["setTimeout"] });
  mock.method(Math, "random", () => 0.5);
});

const started = () => FakeSocket.all.length;

for (const [given, expected] of [
  ["http://a.example", "ws://a.example/v1/ws"],
  ["https://a.example/base/", "wss://a.example/base/v1/ws"],
  ["wss://a.example/v1/ws", "wss://a.example/v1/ws"],
  ["ws://a.example:81/?token=x#y", "ws://a.example:81/v1/ws"],
]) {
  test(`the address ${given}`, async () => {
    client({ url: given });
    await turns();
    assert.equal(FakeSocket.last.url, expected);
    assert.deepEqual(FakeSocket.last.protocols, ["toolrelay.v1"]);
  });
}

for (const url of ["ftp://a.example", "/relative", "::"]) {
  test(`${url} is no address`, () => assert.throws(() => client({ url }), { code: "bad_url" }));
}

test("it attaches, then offers its tools, and tells its registration", async () => {
  const registrations = [];
  const { made, told } = client({ tools: { echo: { description: "Says it.", parameters: {}, run: () => "" } }, name: "page", ttlSeconds: Infinity });
  made.on("registration", (one) => registrations.push(one));
  await turns();
  const socket = FakeSocket.last.serve();
  socket.open();
  await made.ready();
  const [attach, register] = socket.sent;
  assert.deepEqual({ ...attach, id: 0 }, { id: 0, session_id: SESSION, op: "attach", token: "trs_1" });
  assert.deepEqual({ ...register, id: 0 }, {
    id: 0, session_id: SESSION, op: "register", name: "page", key: "tab-1", lifetime: { type: "never" },
    tools: [{ name: "echo", description: "Says it.", parameters: {} }],
  });
  assert.deepEqual(registrations, [{ client_id: "c1", resume_key: "rk" }]);
  assert.deepEqual(told.states, ["online"]);
});

test("without tools it reads, and offers one that comes later", async () => {
  const { made, socket } = await online({ tools: undefined });
  assert.equal(socket.of("register").length, 0);
  made.setTool("late", { description: "", parameters: {}, run: () => "yes" });
  await turns();
  assert.deepEqual(socket.of("register")[0].tools.map((tool) => tool.name), ["late"]);
  socket.dispatch(11, "a", { tool: "late" });
  await turns();
  assert.equal(socket.of("result")[0].text, "yes");
});

for (const [code, name] of [[4401, "unauthorized"], [4403, "origin_forbidden"], [4404, "not_found"]]) {
  test(`${code} is final`, async () => {
    const { made, told, socket } = await online();
    socket.cut(code);
    mock.timers.tick(60_000);
    await turns();
    assert.equal(made.state, "closed");
    assert.equal(made.error.code, name);
    assert.deepEqual(told.errors, [name]);
    assert.equal(started(), 1);
    await assert.rejects(made.send("x"), { code: name });
  });
}

for (const code of [1006, 1001, 4400, 4408, 4413, 4429]) {
  test(`${code} is tried again, with full jitter that grows and is bounded`, async () => {
    const { socket, told } = await online();
    socket.cut(code);
    assert.deepEqual(told.states, ["online", "waiting"]);
    for (const most of [250, 500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000]) {
      const before = started();
      mock.timers.tick(most / 2 - 1);
      await turns();
      assert.equal(started(), before);
      mock.timers.tick(1);
      await turns();
      assert.equal(started(), before + 1);
      FakeSocket.last.cut(code);
    }
  });
}

test("1012 is tried again at once, but not in a circle", async () => {
  let now = 0;
  mock.method(performance, "now", () => now);
  const { socket } = await online();
  now = 6_000;
  socket.cut(1012);
  mock.timers.tick(0);
  await turns();
  assert.equal(started(), 2);
  FakeSocket.last.serve().open();
  await turns(60);
  FakeSocket.last.cut(1012); // it was online for no time at all
  mock.timers.tick(0);
  await turns();
  assert.equal(started(), 2);
});

test("a token is fetched for each connection, and when one expires", async () => {
  let count = 0;
  const { socket, made } = await online({ token: async () => `trs_${++count}` });
  const { tool, calls } = held();
  made.setTool("held", tool);
  socket.dispatch(11, "a", { tool: "held" });
  await turns();
  socket.onsend = null;
  socket.say({ session_id: SESSION, closed: { reason: "token_expired" } });
  calls[0].resolve("late"); // held back: this socket is attached to nothing now
  await turns();
  assert.deepEqual(socket.of("attach").map((frame) => frame.token), ["trs_1", "trs_2"]);
  assert.equal(socket.of("result").length, 0);
  socket.serve();
  socket.ok(socket.of("attach")[1], { seq: 12, status: "active" });
  await turns();
  assert.deepEqual(socket.of("result").map((frame) => frame.text), ["late"]);
  socket.cut();
  mock.timers.tick(10_000);
  await turns();
  FakeSocket.last.serve().open();
  await turns();
  assert.equal(FakeSocket.last.of("attach")[0].token, "trs_3");
});

test("a token that is a text and expires is the end; one that cannot be fetched is tried again", async () => {
  const first = await online();
  first.socket.say({ session_id: SESSION, closed: { reason: "token_revoked" } });
  assert.equal(first.made.error.code, "token_revoked");

  let fails = true;
  const { told } = client({ token: () => { if (fails) throw new Error("offline"); return "trs_2"; } });
  await turns();
  assert.deepEqual(told.errors, ["token_failed"]);
  assert.equal(started(), 0);
  fails = false;
  mock.timers.tick(10_000);
  await turns();
  assert.equal(started(), 1);
});

test("whoever has lost its place reads on, does not take it back by itself, and may", async () => {
  const { tool, calls } = held();
  const { made, socket, told } = await online({ tools: { echo: tool } });
  socket.dispatch(11, "a");
  await turns();
  socket.say({ session_id: SESSION, closed: { reason: "taken_over", client_id: "c1" } });
  assert.equal(calls[0].context.signal.reason.code, "taken_over");
  assert.equal(made.state, "yielded");
  socket.event(12, "run_completed", { run_id: "r" });
  assert.equal(told.events.at(-1).seq, 12);
  socket.cut();
  mock.timers.tick(10_000);
  await turns();
  FakeSocket.last.serve().open();
  await turns(60);
  assert.equal(made.state, "yielded");
  assert.equal(FakeSocket.last.of("register").length, 0);
  made.reclaim();
  await turns();
  FakeSocket.last.serve().open();
  await turns(60);
  assert.equal(made.state, "online");
  assert.equal(FakeSocket.last.of("register").length, 1);
});

test("silence is asked about, and an answer of any kind is enough", async () => {
  const { socket } = await online({}, { ping: () => null });
  mock.timers.tick(49_000);
  socket.say({ keepalive: "now" });
  mock.timers.tick(49_000);
  assert.equal(socket.of("ping").length, 0);
  mock.timers.tick(1_000);
  assert.equal(socket.of("ping").length, 1);
  socket.say({ keepalive: "now" });
  mock.timers.tick(49_000);
  assert.equal(socket.readyState, 1);
  mock.timers.tick(1_000);
  mock.timers.tick(9_999);
  assert.equal(socket.readyState, 1);
  mock.timers.tick(1);
  assert.equal(socket.readyState, 3);
});

test("a hidden page has no timer for silence", async () => {
  const listeners = new Map();
  globalThis.document = { visibilityState: "hidden", addEventListener: (type, act) => listeners.set(type, act) };
  try {
    const { socket } = await online();
    socket.say({ keepalive: "now" });
    mock.timers.tick(3_600_000);
    assert.equal(socket.of("ping").length, 0);
    assert.equal(socket.readyState, 1);
  } finally {
    delete globalThis.document;
  }
});

test("a gateway that does not answer is left after a while", async () => {
  client();
  await turns();
  const [socket] = FakeSocket.all;
  socket.open();
  mock.timers.tick(15_000);
  assert.equal(socket.readyState, 3);
});

test("what was said survives a cut under its key and is refused by name", async () => {
  const { made, socket } = await online({}, { input: () => null });
  const said = made.send("hello");
  const bad = made.send("bad", { idempotencyKey: "k" });
  assert.deepEqual(socket.of("input").map((frame) => frame.text), ["hello", "bad"]);
  socket.refuse(socket.of("input")[1], "too_many_requests");
  await assert.rejects(bad, { code: "too_many_requests" });
  socket.cut();
  mock.timers.tick(10_000);
  await turns();
  const next = FakeSocket.last.serve();
  next.open();
  assert.deepEqual(await said, { outcome: "new_run", run_id: "r" });
  assert.deepEqual(next.of("input").map((frame) => frame.idempotency_key), [socket.of("input")[0].idempotency_key]);
});

test("inputs that wait are bounded, and end with the client", async () => {
  const { made } = client();
  const waiting = Array.from({ length: 32 }, (_, at) => made.send(`${at}`));
  await assert.rejects(made.send("one more"), { code: "too_many_requests" });
  await made.close();
  for (const one of waiting) await assert.rejects(one, { code: "closed" });
});

test("closing leaves, or keeps the registration asleep", async () => {
  const first = await online();
  await first.made.close();
  assert.deepEqual(first.socket.of("leave").map((frame) => frame.client_id), ["c1"]);
  assert.equal(first.socket.readyState, 3);
  const second = await online();
  await second.made.close({ leave: false });
  assert.equal(second.socket.of("leave").length, 0);
  await assert.rejects(second.made.ready(), { code: "closed" });
});

test("a registration of before is resumed", async () => {
  const { socket } = await online({ registration: { client_id: "c1", resume_key: "old" }, afterSeq: 4 });
  assert.deepEqual(socket.of("attach").map((frame) => frame.after_seq), [undefined, 4]);
  assert.deepEqual(socket.of("resume").map((frame) => frame.resume_key), ["old"]);
  assert.equal(socket.of("tools").length, 1); // what it has now may be another list
});

test("a list that is refused is told, and the client goes on", async () => {
  const { made, socket, told } = await online({}, { tools: () => null });
  made.setTool("bad name", { description: "", parameters: {}, run: () => "" });
  await turns();
  socket.refuse(socket.of("tools")[0], "invalid_request");
  await turns();
  assert.deepEqual(told.errors, ["invalid_request"]);
  assert.equal(made.state, "online");
});

test("a place that is no longer kept is told", async () => {
  const resets = [];
  const { made, socket } = await online();
  made.on("reset", (reset) => resets.push(reset.seq));
  socket.say({ session_id: SESSION, reset: { seq: 50 } });
  socket.event(50, "run_started", { run_id: "r" });
  socket.event(51, "run_completed", { run_id: "r" });
  assert.deepEqual([resets, made.seq], [[50], 51]);
});

test("a listener that throws hurts no other", async () => {
  mock.method(console, "error", () => {});
  const { made, socket, told } = await online();
  made.on("event", () => { throw new Error("mine"); });
  const seen = [];
  made.on("event", (event) => seen.push(event.seq));
  socket.event(11, "run_started", { run_id: "r" });
  assert.deepEqual([seen, told.events.length, console.error.mock.callCount()], [[11], 1, 1]);
});

test("one leads, the next one follows; without locks that is refused", async () => {
  const real = Object.getOwnPropertyDescriptor(globalThis, "navigator");
  Object.defineProperty(globalThis, "navigator", { value: {}, configurable: true });
  assert.throws(() => client({ leader: true }), { code: "unsupported" });
  let tail = Promise.resolve();
  const request = (name, { signal }, hold) => (tail = tail.then(() => !signal.aborted && hold()));
  globalThis.navigator.locks = { request };
  try {
    FakeSocket.all.length = 0;
    const options = { url: "ws://a", session: SESSION, token: "t", leader: true, WebSocket: FakeSocket };
    const [first, second] = [connect(options), connect(options)];
    await turns();
    assert.deepEqual([started(), first.state, second.state], [1, "connecting", "standby"]);
    first.pause();
    await turns();
    assert.deepEqual([started(), first.state, second.state], [2, "paused", "connecting"]);
    first.open();
    await turns();
    assert.equal(first.state, "standby");
  } finally {
    if (real) Object.defineProperty(globalThis, "navigator", real);
    else delete globalThis.navigator;
  }
});

test("an error of the constructor ends it", async () => {
  const { made } = client({ WebSocket: class { constructor() { throw new Error("mixed content"); } } });
  await assert.rejects(made.ready(), { code: "bad_url", message: "mixed content" });
});
