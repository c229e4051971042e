// The calls of one client: each is run once, however often it is delivered, and answered once. Owns what is remembered
// of a call; knows sockets only as something that may be asked.

import { answerOf, answerToError, harmless, noSuchTool, refused, type Answer } from "./answers.js";
import { ToolrelayError, asError, type ErrorCode } from "./errors.js";
import type { Link } from "./link.js";
import type { ClientToolDispatched, Json, WireTool } from "./protocol.js";

/** What a tool gets beside its arguments. */
export interface CallContext {
  readonly callId: string;
  /** The call's id: the same however often the call is delivered, also to another tab. */
  readonly idempotencyKey: string;
  readonly tool: string;
  /** 1, or more where the call was begun elsewhere before. */
  readonly attempt: number;
  /** Aborted once nobody waits for the answer any more; its reason is a `ToolrelayError`, or a `TimeoutError`. */
  readonly signal: AbortSignal;
  /** Milliseconds until the call fails by itself; it shrinks. */
  readonly remainingMs: number;
}

/** A tool. `parameters` is a JSON Schema. `idempotent`: another tab may run a call that this one had begun. */
export interface Tool<A = any> {
  description: string;
  parameters: object;
  timeoutMs?: number;
  idempotent?: boolean;
  /** Returns a text, `{text, isError?, structured?}`, or any JSON. What it throws becomes an error answer. */
  run(args: A, context: CallContext): unknown;
}

/** A call as a page may show it. */
export interface CallRecord {
  readonly callId: string;
  readonly tool: string;
  readonly args: Json;
  readonly state: "running" | "answered" | "failed" | "aborted";
  /** The answer, or why it was aborted. */
  readonly text?: string;
  /** Milliseconds since the epoch. */
  readonly since: number;
}

export function wireTool(name: string, tool: Tool): WireTool {
  const wire: WireTool = { name, description: tool.description, parameters: tool.parameters };
  if (tool.timeoutMs !== undefined) wire.timeout_ms = tool.timeoutMs;
  if (tool.idempotent) wire.idempotent = true;
  return wire;
}

/** What calls need of their client. `link` is null while no registration is held. */
export interface CallsHost {
  readonly link: Link | null;
  tool(name: string): Tool | undefined;
  /** Sends a changed list of tools now. */
  flush(): void;
  report(record: CallRecord): void;
}

interface Known {
  record: CallRecord;
  clientId: string;
  abort: AbortController;
  answer?: Answer;
  corrected?: boolean;
  over: boolean;
  timers: ReturnType<typeof setTimeout>[];
}

export const ACK_AFTER_MS = 50;
const RETRY_MS = 1_000;
const REMEMBERED = 1_000;

export class Calls {
  readonly #host: CallsHost;
  readonly #known = new Map<string, Known>();

  constructor(host: CallsHost) {
    this.#host = host;
  }

  /** A call was delivered: run it, or say again what it was answered with. */
  take(event: ClientToolDispatched): void {
    const known = this.#known.get(event.call_id);
    if (!known) return this.#start(event);
    known.clientId = event.client_id;
    if (known.over) return;
    if (known.answer) void this.#deliver(known);
    else this.#ack(known);
  }

  /** All calls that are open after a resume: what else was begun is settled. */
  resumed(events: ClientToolDispatched[]): void {
    const open = new Set(events.map((event) => event.call_id));
    for (const id of this.#known.keys()) if (!open.has(id)) this.settle(id, "settled", "The call was settled meanwhile.");
    for (const event of events) this.take(event);
  }

  /** Says again what has not been taken. */
  redeliver(): void {
    for (const known of this.#known.values()) if (known.answer && !known.over) void this.#deliver(known);
  }

  /** Nobody waits for this call any more. */
  settle(id: string, code: ErrorCode, why: string): void {
    const known = this.#known.get(id);
    if (!known || known.over) return;
    const { answer } = known;
    this.#forget(known);
    known.abort.abort(new ToolrelayError(code, why));
    if (!answer) this.#report(known, "aborted", why);
  }

  /** Ends all of them. */
  end(code: ErrorCode, why: string): void {
    for (const id of this.#known.keys()) this.settle(id, code, why);
  }

  #start(event: ClientToolDispatched): void {
    const { call_id: callId, tool: name, attempt = 1, remaining_ms: left = null } = event;
    const args = harmless(event.arguments);
    const abort = new AbortController();
    const record: CallRecord = { callId, tool: name, args, state: "running", since: Date.now() };
    const known: Known = { record, clientId: event.client_id, abort, over: false, timers: [] };
    this.#remember(known);
    const until = performance.now() + (left ?? Infinity);
    if (left !== null) this.#later(known, Math.max(0, left), () => abort.abort(new DOMException("Too late.", "TimeoutError")));
    const context: CallContext = {
      callId, idempotencyKey: callId, tool: name, attempt, signal: abort.signal,
      get remainingMs() { return Math.max(0, until - performance.now()); },
    };
    this.#host.report(record);
    const tool = this.#host.tool(name);
    if (!tool) return this.#answered(known, noSuchTool(name));
    // A hidden page's timers fire late, perhaps later than the ack is waited for.
    if (globalThis.document?.visibilityState === "hidden") this.#ack(known);
    else this.#later(known, ACK_AFTER_MS, () => this.#ack(known));
    void (async () => {
      let answer: Answer;
      try {
        answer = answerOf(await tool.run(args, context));
      } catch (error) {
        answer = answerToError(error);
      }
      this.#answered(known, answer);
    })();
  }

  #answered(known: Known, answer: Answer): void {
    if (known.over) return;
    known.answer = answer;
    this.#stopTimers(known);
    this.#report(known, answer.is_error ? "failed" : "answered", answer.text);
    void this.#deliver(known);
  }

  #ack(known: Known): void {
    const { link } = this.#host;
    if (!link || known.answer || known.over) return;
    link.ask({ op: "ack", client_id: known.clientId, call_id: known.record.callId }).catch((error) => {
      // Settled, in a way that was not heard of here.
      if (["conflict", "not_found"].includes(error.code) && this.#host.link === link) {
        this.settle(known.record.callId, error.code, error.message);
      }
    });
  }

  async #deliver(known: Known): Promise<void> {
    const { link } = this.#host;
    if (!link) return; // the next resume brings the call again if it is still open
    this.#host.flush();
    try {
      await link.ask({ op: "result", client_id: known.clientId, call_id: known.record.callId, ...known.answer! });
    } catch (thrown) {
      if (known.over || this.#host.link !== link) return;
      const { code, message } = thrown as ToolrelayError;
      if (code === "connection_lost") return;
      if (["internal", "too_many_requests"].includes(code)) {
        this.#later(known, RETRY_MS, () => void this.#deliver(known));
        return;
      }
      if (["invalid_request", "too_large"].includes(code) && !known.corrected) {
        known.corrected = true;
        known.answer = refused(asError(thrown).message);
        this.#report(known, "failed", message);
        return this.#deliver(known);
      }
    }
    this.#forget(known);
  }

  #report(known: Known, state: CallRecord["state"], text: string): void {
    known.record = { ...known.record, state, text };
    this.#host.report(known.record);
  }

  #later(known: Known, ms: number, act: () => void): void {
    const timer = setTimeout(act, Math.min(ms, 2 ** 31 - 1));
    known.timers.push(timer);
    (timer as { unref?: () => void }).unref?.();
  }

  #stopTimers(known: Known): void {
    known.timers.splice(0).forEach(clearTimeout);
  }

  // Its id stays, so that it is never run again.
  #forget(known: Known): void {
    known.over = true;
    delete known.answer;
    this.#stopTimers(known);
  }

  #remember(known: Known): void {
    this.#known.set(known.record.callId, known);
    if (this.#known.size <= REMEMBERED) return;
    for (const [id, { over }] of this.#known) {
      if (over) return void this.#known.delete(id);
    }
  }
}
