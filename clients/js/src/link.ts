// One socket of `toolrelay.v1` from its opening to its end: frames, answers by id, and whether it still lives.

import { ToolrelayError, type ErrorCode } from "./errors.js";
import { SOCKET_FRAME_BYTES, SUBPROTOCOL, type Answers, type Op, type Push } from "./protocol.js";

/** What is used of a `WebSocket`; the one of the `ws` package fits too. */
export interface Socket {
  readonly readyState: number;
  onopen: ((event: any) => void) | null;
  onmessage: ((event: any) => void) | null;
  onclose: ((event: any) => void) | null;
  onerror: ((event: any) => void) | null;
  send(text: string): void;
  close(code?: number, reason?: string): void;
}
export type SocketConstructor = new (url: string, protocols: string[]) => Socket;

type OpName = keyof Answers;
/** An op without what the link adds. */
export type Asked<K extends OpName> = Omit<Extract<Op, { op: K }>, "id" | "session_id"> & { op: K };

export const SILENCE_MS = 50_000; // the gateway says something every 20 s
export const PROBE_MS = 10_000;

interface Waiting {
  resolve(ok: unknown): void;
  reject(error: Error): void;
  done: ((ok: any) => void) | undefined;
}

export interface LinkEvents {
  open(): void;
  push(push: Push): void;
  lost(code: number, opened: boolean): void;
}

const hidden = (): boolean => globalThis.document?.visibilityState === "hidden";

export class Link {
  readonly #socket: Socket;
  readonly #session: string;
  readonly #on: LinkEvents;
  readonly #asked = new Map<number, Waiting>();
  #nextId = 1;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #opened = false;
  #over = false;

  /** Throws what the constructor throws. */
  constructor(Constructor: SocketConstructor, url: string, session: string, on: LinkEvents) {
    this.#session = session;
    this.#on = on;
    const socket = (this.#socket = new Constructor(url, [SUBPROTOCOL]));
    socket.onopen = () => {
      if (this.#over) return;
      this.#opened = true;
      this.watch();
      on.open();
    };
    socket.onmessage = ({ data }) => this.#over || this.#receive(JSON.parse(String(data)));
    socket.onclose = ({ code }) => this.end(code || 1006);
    socket.onerror = () => {}; // a close follows, which says more
  }

  /** Asks; `done` is called with the answer before any later frame is looked at. Rejects with a `ToolrelayError`. */
  ask<K extends OpName>(op: Asked<K>, done?: (ok: Answers[K]) => void): Promise<Answers[K]> {
    return new Promise((resolve, reject) => {
      if (this.#over) return reject(new ToolrelayError("connection_lost", "The socket is closed."));
      const id = this.#nextId++;
      const frame = JSON.stringify({ id, session_id: this.#session, ...op });
      if (frame.length * 3 > SOCKET_FRAME_BYTES && new TextEncoder().encode(frame).length > SOCKET_FRAME_BYTES) {
        return reject(new ToolrelayError("too_large", `A frame has at most ${SOCKET_FRAME_BYTES} bytes.`));
      }
      this.#asked.set(id, { resolve: resolve as (ok: unknown) => void, reject, done });
      this.#socket.send(frame);
    });
  }

  /** Ends it, once: what was asked is lost, and `lost` is told. */
  end(code: number): void {
    if (this.#over) return;
    this.#over = true;
    clearTimeout(this.#timer);
    if (this.#socket.readyState < 2) this.#socket.close(1000);
    for (const { reject } of this.#asked.values()) {
      reject(new ToolrelayError("connection_lost", `The socket was closed (${code}).`));
    }
    this.#asked.clear();
    this.#on.lost(code, this.#opened);
  }

  /** Looks out for silence from now on. A hidden page does not: its timers fire late, and the gateway's pings suffice. */
  watch(): void {
    clearTimeout(this.#timer);
    if (this.#over || !this.#opened || hidden()) return;
    this.#timer = setTimeout(() => this.probe(), SILENCE_MS);
  }

  /** Asks whether anybody is there; any frame is an answer. */
  probe(): void {
    clearTimeout(this.#timer);
    if (this.#over || !this.#opened) return;
    this.#timer = setTimeout(() => this.end(1006), PROBE_MS);
    this.ask({ op: "ping" }).catch(() => {}); // it was lost, which `lost` says
  }

  #receive(frame: any): void {
    this.watch();
    if (!("id" in frame)) return this.#on.push(frame);
    const waiting = this.#asked.get(frame.id);
    if (!waiting) return;
    this.#asked.delete(frame.id);
    if (frame.error) return waiting.reject(new ToolrelayError(frame.error.code as ErrorCode, frame.error.message));
    waiting.done?.(frame.ok);
    waiting.resolve(frame.ok);
  }
}
