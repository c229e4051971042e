import { ToolError, asError } from "./errors.js";
import { RESULT_CHARS, STRUCTURED_BYTES } from "./protocol.js";
const failed = (text) => ({ text, is_error: true });
export function answerOf(value) {
    let answer;
    try {
        answer = read(value);
        const structured = answer.structured === undefined ? "" : JSON.stringify(answer.structured);
        if (new TextEncoder().encode(structured).length > STRUCTURED_BYTES) {
            return failed(`The tool's structured result is too large: at most ${STRUCTURED_BYTES} bytes.`);
        }
    }
    catch (error) {
        return failed(`The tool's result is no JSON: ${asError(error).message}`);
    }
    if (answer.text.length > RESULT_CHARS && [...answer.text].length > RESULT_CHARS) {
        return failed(`The tool's result is too large: at most ${RESULT_CHARS} characters.`);
    }
    return answer;
}
function read(value) {
    if (value === undefined || value === null)
        return { text: "Done." };
    if (typeof value === "string")
        return { text: value };
    const { text, isError, structured } = value;
    if (typeof text !== "string")
        return { text: JSON.stringify(value) ?? String(value) };
    const answer = { text };
    if (isError)
        answer.is_error = true;
    if (structured !== undefined && structured !== null)
        answer.structured = structured;
    return answer;
}
export function answerToError(thrown) {
    const { message } = asError(thrown);
    const text = thrown instanceof ToolError ? message : `The tool failed: ${message}`;
    return failed(text.length > RESULT_CHARS ? text.slice(0, RESULT_CHARS) : text);
}
export const noSuchTool = (name) => failed(`This client has no tool ${name} any more.`);
export const refused = (why) => failed(`The tool's result was refused: ${why}`.slice(0, 2_000));
export function harmless(value) {
    if (value === null || typeof value !== "object")
        return value;
    if (Object.hasOwn(value, "__proto__"))
        delete value["__proto__"];
    for (const inner of Object.values(value))
        harmless(inner);
    return value;
}
