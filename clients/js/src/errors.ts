// What goes wrong, by name. Owns the codes that are not the gateway's own.

/** The gateway's codes, as in its error answers, and those of this library. */
export type ErrorCode =
  | "invalid_request" | "unauthorized" | "forbidden" | "not_found" | "conflict" | "too_many_requests" | "internal"
  /** The link was cut: whether it was done is not known. */
  | "connection_lost"
  /** The client was closed. */
  | "closed"
  /** This origin may not use the session. */
  | "origin_forbidden"
  /** The browser lets this page reach nothing on the local network or this machine; a person may allow it. */
  | "lna_denied"
  /** The address cannot be used from here (mixed content, a wrong scheme). */
  | "bad_url"
  /** The `token` function threw. */
  | "token_failed"
  | "token_expired" | "token_revoked"
  /** The session was deleted. */
  | "deleted"
  /** Another tab or worker has this one's place. */
  | "taken_over"
  /** A call's signal: it was answered or ended elsewhere; the gateway's reasons for its end. */
  | "settled" | "client_gone" | "ack_timeout" | "result_timeout" | "run_gone"
  /** There is no `navigator.locks` or no `WebSocket` here. */
  | "unsupported"
  | "too_large";

/** Every error of this library. `code` is stable; the message is for people. */
export class ToolrelayError extends Error {
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string) {
    super(message);
    this.name = "ToolrelayError";
    this.code = code;
  }
}

/** Thrown by a tool: its message goes to the agent as it is. */
export class ToolError extends Error {
  override name = "ToolError";
}

/** After these closes the gateway would refuse again. */
export const FINAL = new Map<number, ToolrelayError>([
  [4401, new ToolrelayError("unauthorized", "The gateway had no token in time.")],
  [4403, new ToolrelayError("origin_forbidden", "This origin may not use the session.")],
  [4404, new ToolrelayError("not_found", "There is no such session, or the token is not one of it.")],
]);

export const asError = (value: unknown): Error => (value instanceof Error ? value : new Error(String(value)));
