import { answerOf, answerToError, harmless, noSuchTool, refused } from "./answers.js";
import { ToolrelayError, asError } from "./errors.js";
export function wireTool(name, tool) {
    const wire = { name, description: tool.description, parameters: tool.parameters };
    if (tool.timeoutMs !== undefined)
        wire.timeout_ms = tool.timeoutMs;
    if (tool.idempotent)
        wire.idempotent = true;
    return wire;
}
export const ACK_AFTER_MS = 50;
const RETRY_MS = 1_000;
const REMEMBERED = 1_000;
export class Calls {
    #host;
    #known = new Map();
    constructor(host) {
        this.#host = host;
    }
    take(event) {
        const known = this.#known.get(event.call_id);
        if (!known)
            return this.#start(event);
        known.clientId = event.client_id;
        if (known.over)
            return;
        if (known.answer)
            void this.#deliver(known);
        else
            this.#ack(known);
    }
    resumed(events) {
        const open = new Set(events.map((event) => event.call_id));
        for (const id of this.#known.keys())
            if (!open.has(id))
                this.settle(id, "settled", "The call was settled meanwhile.");
        for (const event of events)
            this.take(event);
    }
    redeliver() {
        for (const known of this.#known.values())
            if (known.answer && !known.over)
                void this.#deliver(known);
    }
    settle(id, code, why) {
        const known = this.#known.get(id);
        if (!known || known.over)
            return;
        const { answer } = known;
        this.#forget(known);
        known.abort.abort(new ToolrelayError(code, why));
        if (!answer)
            this.#report(known, "aborted", why);
    }
    end(code, why) {
        for (const id of this.#known.keys())
            this.settle(id, code, why);
    }
    #start(event) {
        const { call_id: callId, tool: name, attempt = 1, remaining_ms: left = null } = event;
        const args = harmless(event.arguments);
        const abort = new AbortController();
        const record = { callId, tool: name, args, state: "running", since: Date.now() };
        const known = { record, clientId: event.client_id, abort, over: false, timers: [] };
        this.#remember(known);
        const until = performance.now() + (left ?? Infinity);
        if (left !== null)
            this.#later(known, Math.max(0, left), () => abort.abort(new DOMException("Too late.", "TimeoutError")));
        const context = {
            callId, idempotencyKey: callId, tool: name, attempt, signal: abort.signal,
            get remainingMs() { return Math.max(0, until - performance.now()); },
        };
        this.#host.report(record);
        const tool = this.#host.tool(name);
        if (!tool)
            return this.#answered(known, noSuchTool(name));
        if (globalThis.document?.visibilityState === "hidden")
            this.#ack(known);
        else
            this.#later(known, ACK_AFTER_MS, () => this.#ack(known));
        void (async () => {
            let answer;
            try {
                answer = answerOf(await tool.run(args, context));
            }
            catch (error) {
                answer = answerToError(error);
            }
            this.#answered(known, answer);
        })();
    }
    #answered(known, answer) {
        if (known.over)
            return;
        known.answer = answer;
        this.#stopTimers(known);
        this.#report(known, answer.is_error ? "failed" : "answered", answer.text);
        void this.#deliver(known);
    }
    #ack(known) {
        const { link } = this.#host;
        if (!link || known.answer || known.over)
            return;
        link.ask({ op: "ack", client_id: known.clientId, call_id: known.record.callId }).catch((error) => {
            if (["conflict", "not_found"].includes(error.code) && this.#host.link === link) {
                this.settle(known.record.callId, error.code, error.message);
            }
        });
    }
    async #deliver(known) {
        const { link } = this.#host;
        if (!link)
            return;
        this.#host.flush();
        try {
            await link.ask({ op: "result", client_id: known.clientId, call_id: known.record.callId, ...known.answer });
        }
        catch (thrown) {
            if (known.over || this.#host.link !== link)
                return;
            const { code, message } = thrown;
            if (code === "connection_lost")
                return;
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
    #report(known, state, text) {
        known.record = { ...known.record, state, text };
        this.#host.report(known.record);
    }
    #later(known, ms, act) {
        const timer = setTimeout(act, Math.min(ms, 2 ** 31 - 1));
        known.timers.push(timer);
        timer.unref?.();
    }
    #stopTimers(known) {
        known.timers.splice(0).forEach(clearTimeout);
    }
    #forget(known) {
        known.over = true;
        delete known.answer;
        this.#stopTimers(known);
    }
    #remember(known) {
        this.#known.set(known.record.callId, known);
        if (this.#known.size <= REMEMBERED)
            return;
        for (const [id, { over }] of this.#known) {
            if (over)
                return void this.#known.delete(id);
        }
    }
}
