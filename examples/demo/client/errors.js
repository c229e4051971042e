export class ToolrelayError extends Error {
    code;
    constructor(code, message) {
        super(message);
        this.name = "ToolrelayError";
        this.code = code;
    }
}
export class ToolError extends Error {
    name = "ToolError";
}
export const FINAL = new Map([
    [4401, new ToolrelayError("unauthorized", "The gateway had no token in time.")],
    [4403, new ToolrelayError("origin_forbidden", "This origin may not use the session.")],
    [4404, new ToolrelayError("not_found", "There is no such session, or the token is not one of it.")],
]);
export const asError = (value) => (value instanceof Error ? value : new Error(String(value)));
