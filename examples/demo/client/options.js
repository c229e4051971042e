import { ToolrelayError } from "./errors.js";
export class Emitter {
    #listeners = new Map();
    on(type, listener) {
        const all = this.#listeners.get(type) ?? new Set();
        this.#listeners.set(type, all.add(listener));
        return () => void all.delete(listener);
    }
    emit(type, value) {
        for (const listener of [...(this.#listeners.get(type) ?? [])]) {
            try {
                listener(value);
            }
            catch (thrown) {
                console.error("toolrelay: a listener threw:", thrown);
            }
        }
    }
}
export const randomId = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
export function socketUrl(given) {
    let url;
    try {
        url = new URL(given, globalThis.location?.href);
    }
    catch {
        throw new ToolrelayError("bad_url", "The gateway's address is no URL.");
    }
    url.protocol = url.protocol.replace(/^http/, "ws");
    if (!/^wss?:$/.test(url.protocol))
        throw new ToolrelayError("bad_url", "The gateway's address is not http(s) or ws(s).");
    if (!url.pathname.endsWith("/v1/ws"))
        url.pathname = `${url.pathname.replace(/\/$/, "")}/v1/ws`;
    url.search = url.hash = "";
    return url.href;
}
const TOKEN_MS = 15_000;
export function fetchToken(token) {
    return new Promise((resolve, reject) => {
        if (typeof token === "string")
            return resolve(token);
        const late = setTimeout(() => reject(new Error("The token did not come in time.")), TOKEN_MS);
        Promise.resolve(token()).then(resolve, reject).finally(() => clearTimeout(late));
    });
}
