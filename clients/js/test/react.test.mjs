// The hooks, in a real React: a client lives as long as its component.

import assert from "node:assert/strict";
import { test } from "node:test";

globalThis.IS_REACT_ACT_ENVIRONMENT = true;
const { createElement, StrictMode } = await import("react");
const { act, create } = await import("react-test-renderer");
const { useTool, useToolrelay } = await import("../dist/react.js");
const { FakeSocket, SESSION, turns } = await import("./fake.mjs");

test("a component offers a tool, answers with its newest function, and leaves", async () => {
  FakeSocket.all.length = 0;
  let seen;
  const options = { url: "http://a", session: SESSION, key: "tab-1", WebSocket: FakeSocket };
  function Page({ row }) {
    seen = useToolrelay({ ...options, token: async () => "trs_1" });
    useTool(seen.client, "which", { description: "", parameters: {}, run: () => `row ${row}` });
    return null;
  }
  const page = (row) => createElement(StrictMode, null, createElement(Page, { row }));
  let root;
  await act(async () => (root = create(page(1))));
  await act(turns);
  const socket = FakeSocket.last.serve();
  await act(async () => {
    socket.open();
    await turns(60);
  });
  assert.equal(seen.state, "online");
  assert.deepEqual(socket.of("register")[0].tools.map((tool) => tool.name), ["which"]);
  await act(async () => root.update(page(2)));
  await act(async () => {
    socket.dispatch(11, "a", { tool: "which" });
    await turns();
  });
  assert.deepEqual(socket.of("result").map((frame) => frame.text), ["row 2"]);
  assert.equal(socket.of("tools").length, 0); // nothing of the list has changed
  assert.deepEqual(seen.running, []);
  await act(async () => {
    root.unmount();
    await turns();
  });
  assert.equal(socket.of("leave").length, 1);
});
