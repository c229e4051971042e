import { ToolrelayError } from "./errors.js";
import { SOCKET_FRAME_BYTES, SUBPROTOCOL } from "./protocol.js";
export const SILENCE_MS = 50_000;
export const PROBE_MS = 10_000;
const hidden = () => globalThis.document?.visibilityState === "hidden";
export class Link {
    #socket;
    #session;
    #on;
    #asked = new Map();
    #nextId = 1;
    #timer;
    #opened = false;
    #over = false;
    constructor(Constructor, url, session, on) {
        this.#session = session;
        this.#on = on;
        const socket = (this.#socket = new Constructor(url, [SUBPROTOCOL]));
        socket.onopen = () => {
            if (this.#over)
                return;
            this.#opened = true;
            this.watch();
            on.open();
        };
        socket.onmessage = ({ data }) => this.#over || this.#receive(JSON.parse(String(data)));
        socket.onclose = ({ code }) => this.end(code || 1006);
        socket.onerror = () => { };
    }
    ask(op, done) {
        return new Promise((resolve, reject) => {
            if (this.#over)
                return reject(new ToolrelayError("connection_lost", "The socket is closed."));
            const id = this.#nextId++;
            const frame = JSON.stringify({ id, session_id: this.#session, ...op });
            if (frame.length * 3 > SOCKET_FRAME_BYTES && new TextEncoder().encode(frame).length > SOCKET_FRAME_BYTES) {
                return reject(new ToolrelayError("too_large", `A frame has at most ${SOCKET_FRAME_BYTES} bytes.`));
            }
            this.#asked.set(id, { resolve: resolve, reject, done });
            this.#socket.send(frame);
        });
    }
    end(code) {
        if (this.#over)
            return;
        this.#over = true;
        clearTimeout(this.#timer);
        if (this.#socket.readyState < 2)
            this.#socket.close(1000);
        for (const { reject } of this.#asked.values()) {
            reject(new ToolrelayError("connection_lost", `The socket was closed (${code}).`));
        }
        this.#asked.clear();
        this.#on.lost(code, this.#opened);
    }
    watch() {
        clearTimeout(this.#timer);
        if (this.#over || !this.#opened || hidden())
            return;
        this.#timer = setTimeout(() => this.probe(), SILENCE_MS);
    }
    probe() {
        clearTimeout(this.#timer);
        if (this.#over || !this.#opened)
            return;
        this.#timer = setTimeout(() => this.end(1006), PROBE_MS);
        this.ask({ op: "ping" }).catch(() => { });
    }
    #receive(frame) {
        this.watch();
        if (!("id" in frame))
            return this.#on.push(frame);
        const waiting = this.#asked.get(frame.id);
        if (!waiting)
            return;
        this.#asked.delete(frame.id);
        if (frame.error)
            return waiting.reject(new ToolrelayError(frame.error.code, frame.error.message));
        waiting.done?.(frame.ok);
        waiting.resolve(frame.ok);
    }
}
