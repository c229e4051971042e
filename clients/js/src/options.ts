// What a client is made of and what it tells: options, states, events. Owns how a gateway's address is read.

import type { CallRecord, Tool } from "./calls.js";
import { ToolrelayError } from "./errors.js";
import type { SocketConstructor } from "./link.js";
import type { DeltaData, SessionEvent } from "./protocol.js";

/** Where a client is. `standby`: another tab leads; `yielded`: another has its place, this one reads on. */
export type State = "connecting" | "online" | "waiting" | "paused" | "standby" | "yielded" | "closed";

/** What takes a registration up again, in another page or worker too. A secret. */
export interface Registration {
  client_id: string;
  resume_key: string;
}

export interface Options {
  /** The gateway: `http(s)` or `ws(s)`, with or without `/v1/ws`; relative to the page. */
  url: string | URL;
  session: string;
  /** A session's token, or what fetches one: it is called for every connection, and when one expires. */
  token: string | (() => string | Promise<string>);
  /** What the agent's names for the tools hold: `[a-z0-9-]{1,32}`. */
  name?: string;
  /** The app's own name of this tab or worker (2 to 64 characters): whoever comes later with it takes the place. */
  key?: string;
  /** Seconds that the registration outlives its socket: 5 to 3600, or Infinity. */
  ttlSeconds?: number;
  /** Tools by name. Without it nothing is offered, until `setTool`. */
  tools?: Record<string, Tool>;
  /** Read the log from behind this event; from now on when left out. */
  afterSeq?: number;
  /** A registration of before, to be resumed (see the event `registration`). */
  registration?: Registration;
  /** One tab of this origin at a time is connected, by Web Locks. A text names what is led. */
  leader?: boolean | string;
  /** Needed where there is no global `WebSocket`. */
  WebSocket?: SocketConstructor;
}

export interface Events {
  state: State;
  /** What went wrong; the client goes on by itself unless its state is `closed`. */
  error: ToolrelayError;
  event: SessionEvent;
  delta: DeltaData;
  /** Events up to this one were left out: they are read over HTTP. */
  reset: { seq: number };
  /** A call began or ended here. */
  call: CallRecord;
  registration: Registration | null;
}

/** Listeners by event. One that throws hurts no other. */
export class Emitter {
  readonly #listeners = new Map<string, Set<(value: any) => void>>();

  /** Calls `listener` from now on. Returns what ends that. */
  on<K extends keyof Events>(type: K, listener: (value: Events[K]) => void): () => void {
    const all = this.#listeners.get(type) ?? new Set();
    this.#listeners.set(type, all.add(listener));
    return () => void all.delete(listener);
  }

  protected emit<K extends keyof Events>(type: K, value: Events[K]): void {
    for (const listener of [...(this.#listeners.get(type) ?? [])]) {
      try {
        listener(value);
      } catch (thrown) {
        console.error("toolrelay: a listener threw:", thrown);
      }
    }
  }
}

export const randomId = (): string => 
  [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

export function socketUrl(given: string | URL): string {
  let url: URL;
  try {
    url = new URL(given, globalThis.location?.href);
  } catch {
    throw new ToolrelayError("bad_url", "The gateway's address is no URL.");
  }
  url.protocol = url.protocol.replace(/^http/, "ws");
  if (!/^wss?:$/.test(url.protocol)) throw new ToolrelayError("bad_url", "The gateway's address is not http(s) or ws(s).");
  if (!url.pathname.endsWith("/v1/ws")) url.pathname = `${url.pathname.replace(/\/$/, "")}/v1/ws`;
  url.search = url.hash = "";
  return url.href;
}

const TOKEN_MS = 15_000;

/** The token, within some seconds. */
export function fetchToken(token: Options["token"]): Promise<string> {
  return new Promise((resolve, reject) => {
    if (typeof token === "string") return resolve(token);
    const late = setTimeout(() => reject(new Error("The token did not come in time.")), TOKEN_MS);
    Promise.resolve(token()).then(resolve, reject).finally(() => clearTimeout(late));
  });
}
