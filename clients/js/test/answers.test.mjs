// What a tool returns or throws, as it is sent.

import assert from "node:assert/strict";
import { test } from "node:test";

import { answerOf, answerToError } from "../dist/answers.js";
import { ToolError } from "../dist/index.js";

const cyclic = {};
cyclic.self = cyclic;

for (const [what, value, expected] of [
  ["a text", "hello", { text: "hello" }],
  ["nothing", undefined, { text: "Done." }],
  ["an answer", { text: "a", isError: true, structured: { n: 1 } }, { text: "a", is_error: true, structured: { n: 1 } }],
  ["an object", { rows: [1, 2] }, { text: '{"rows":[1,2]}' }],
  ["a number", 7, { text: "7" }],
  ["false", false, { text: "false" }],
]) {
  test(`${what} is an answer`, () => assert.deepEqual(answerOf(value), expected));
}

for (const [what, value, pattern] of [
  ["a text of too many characters", "x".repeat(65_537), /too large: at most 65536 characters/],
  ["a structured result of too many bytes", { text: "", structured: "é".repeat(32_768) }, /too large: at most 65536 bytes/],
  ["a cycle", cyclic, /no JSON/],
  ["a BigInt", { n: 1n }, /no JSON/],
]) {
  test(`${what} is an error answer`, () => {
    const answer = answerOf(value);
    assert.equal(answer.is_error, true);
    assert.match(answer.text, pattern);
  });
}

test("a character is a code point", () => assert.equal(answerOf("😀".repeat(65_536)).is_error, undefined));

test("what is thrown is an error answer; a ToolError's text is the tool's own", () => {
  assert.deepEqual(answerToError(new Error("boom")), { text: "The tool failed: boom", is_error: true });
  assert.deepEqual(answerToError(new ToolError("No row 9.")), { text: "No row 9.", is_error: true });
  assert.deepEqual(answerToError("text"), { text: "The tool failed: text", is_error: true });
});
