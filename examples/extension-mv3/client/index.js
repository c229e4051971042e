export { Client, connect } from "./client.js";
export { ToolError, ToolrelayError } from "./errors.js";
