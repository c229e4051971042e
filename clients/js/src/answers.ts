// What a tool returned, as the gateway takes it. Owns the bounds of an answer; knows no socket.

import { ToolError, asError } from "./errors.js";
import { RESULT_CHARS, STRUCTURED_BYTES, type Json } from "./protocol.js";

/** A result's fields on the wire. */
export interface Answer {
  text: string;
  is_error?: boolean;
  structured?: Json;
}

const failed = (text: string): Answer => ({ text, is_error: true });

/** The answer for what a tool returned: a text; `{text, isError?, structured?}`; any other value as JSON. */
export function answerOf(value: unknown): Answer {
  let answer: Answer;
  try {
    answer = read(value);
    const structured = answer.structured === undefined ? "" : JSON.stringify(answer.structured);
    if (new TextEncoder().encode(structured).length > STRUCTURED_BYTES) {
      return failed(`The tool's structured result is too large: at most ${STRUCTURED_BYTES} bytes.`);
    }
  } catch (error) {
    return failed(`The tool's result is no JSON: ${asError(error).message}`);
  }
  // A code point has at most two units, so most texts need not be counted.
  if (answer.text.length > RESULT_CHARS && [...answer.text].length > RESULT_CHARS) {
    return failed(`The tool's result is too large: at most ${RESULT_CHARS} characters.`);
  }
  return answer;
}

function read(value: unknown): Answer {
  if (value === undefined || value === null) return { text: "Done." };
  if (typeof value === "string") return { text: value };
  const { text, isError, structured } = value as { text?: unknown; isError?: unknown; structured?: Json };
  if (typeof text !== "string") return { text: JSON.stringify(value) ?? String(value) };
  const answer: Answer = { text };
  if (isError) answer.is_error = true;
  if (structured !== undefined && structured !== null) answer.structured = structured;
  return answer;
}

/** The answer for what a tool threw. */
export function answerToError(thrown: unknown): Answer {
  const { message } = asError(thrown);
  const text = thrown instanceof ToolError ? message : `The tool failed: ${message}`;
  return failed(text.length > RESULT_CHARS ? text.slice(0, RESULT_CHARS) : text);
}

export const noSuchTool = (name: string): Answer => failed(`This client has no tool ${name} any more.`);

export const refused = (why: string): Answer => failed(`The tool's result was refused: ${why}`.slice(0, 2_000));

/** Arguments without any own `__proto__`, which a handler's `Object.assign` would make a prototype of. In place. */
export function harmless<T>(value: T): T {
  if (value === null || typeof value !== "object") return value;
  if (Object.hasOwn(value, "__proto__")) delete (value as Record<string, unknown>)["__proto__"];
  for (const inner of Object.values(value)) harmless(inner);
  return value;
}
