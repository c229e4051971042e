// @toolrelay/client/react: hooks. Owns that a client lives as long as its component, and no longer.

import { useEffect, useRef, useState } from "react";

import { connect, type CallRecord, type Client, type Options, type State, type Tool, type ToolrelayError } from "./index.js";

export interface Relay {
  client: Client | null;
  state: State;
  error: ToolrelayError | null;
  /** The calls that run here now. */
  running: CallRecord[];
}

const NOBODY: Relay = { client: null, state: "closed", error: null, running: [] };

/**
 * A client of a session while the component is there; null for none. It connects anew when `url`, `session`, `key` or
 * `name` are others; the token may be a new function each time. Tools are offered by `useTool`.
 */
export function useToolrelay(options: Options | null): Relay {
  const [relay, setRelay] = useState(NOBODY);
  const latest = useRef(options);
  latest.current = options;
  const identity = options && JSON.stringify([String(options.url), options.session, options.key, options.name]);
  useEffect(() => {
    if (!latest.current) return;
    const token = () => {
      const now = latest.current!.token;
      return typeof now === "function" ? now() : now;
    };
    const client = connect({ ...latest.current, token });
    const change = (part: Partial<Relay>) => setRelay((before) => (before.client === client ? { ...before, ...part } : before));
    setRelay({ client, state: client.state, error: null, running: [] });
    client.on("state", (state) => change({ state }));
    client.on("error", (error) => change({ error }));
    client.on("call", (call) =>
      setRelay((before) => {
        if (before.client !== client) return before;
        const others = before.running.filter((one) => one.callId !== call.callId);
        return { ...before, running: call.state === "running" ? [...others, call] : others };
      }),
    );
    return () => {
      setRelay(NOBODY);
      void client.close();
    };
  }, [identity]);
  return relay;
}

/** Offers a tool while the component is there. `run` may be another function each time: the newest is called. */
export function useTool<A>(client: Client | null, name: string, tool: Tool<A>): void {
  const latest = useRef(tool);
  latest.current = tool;
  const listed = JSON.stringify([tool.description, tool.parameters, tool.timeoutMs, tool.idempotent]);
  useEffect(() => {
    if (!client) return;
    client.setTool(name, { ...latest.current, run: (args, context) => latest.current.run(args, context) });
    return () => client.removeTool(name);
  }, [client, name, listed]);
}
