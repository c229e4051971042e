// @toolrelay/client: what is public.

export { Client, connect } from "./client.js";
export type { Events, Options, Registration, State } from "./options.js";
export type { CallContext, CallRecord, Tool } from "./calls.js";
export { ToolError, ToolrelayError, type ErrorCode } from "./errors.js";
export type { Socket, SocketConstructor } from "./link.js";
export type * from "./protocol.js";
