import { ToolrelayError } from "./errors.js";
const WAITING = 32;
export class Outbox {
    #said = new Map();
    add(text, key, link) {
        return new Promise((resolve, reject) => {
            if (this.#said.size >= WAITING)
                throw new ToolrelayError("too_many_requests", `${WAITING} inputs wait already.`);
            const said = { text, resolve, reject };
            this.#said.set(key, said);
            if (link)
                this.#submit(key, said, link);
        });
    }
    flush(link) {
        for (const [key, said] of this.#said)
            this.#submit(key, said, link);
    }
    end(error) {
        for (const { reject } of this.#said.values())
            reject(error);
        this.#said.clear();
    }
    #submit(key, said, link) {
        link.ask({ op: "input", text: said.text, idempotency_key: key }).then((taken) => {
            this.#said.delete(key);
            said.resolve(taken);
        }, (error) => {
            if (error.code === "connection_lost")
                return;
            this.#said.delete(key);
            said.reject(error);
        });
    }
}
