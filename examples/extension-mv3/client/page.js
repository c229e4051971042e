import { ToolrelayError } from "./errors.js";
export function watchPage(on) {
    const stop = new AbortController();
    const { signal } = stop;
    const { document } = globalThis;
    const listen = (target, type, act) => target.addEventListener(type, act, { signal });
    if (typeof globalThis.addEventListener === "function" && globalThis.location) {
        listen(globalThis, "online", () => on.awake());
        if (document) {
            listen(globalThis, "pagehide", () => on.leave());
            listen(globalThis, "pageshow", (event) => event.persisted && on.back());
            listen(document, "visibilitychange", () => {
                on.turned();
                if (document.visibilityState === "visible")
                    on.awake();
            });
        }
    }
    return () => stop.abort();
}
export class Leader {
    #name;
    #leads = false;
    #stop = null;
    constructor(name) {
        this.#name = name;
        if (name && !globalThis.navigator?.locks)
            throw new ToolrelayError("unsupported", "There are no Web Locks here.");
    }
    wait(then) {
        if (!this.#name || this.#leads)
            return true;
        if (this.#stop)
            return false;
        const { signal } = (this.#stop = new AbortController());
        const hold = () => new Promise((release) => {
            if (signal.aborted)
                return release();
            signal.addEventListener("abort", () => release());
            this.#leads = true;
            then();
        });
        navigator.locks.request(this.#name, { signal }, hold).catch(() => { });
        return false;
    }
    giveUp() {
        this.#stop?.abort();
        this.#stop = null;
        this.#leads = false;
    }
}
const LOCAL = /^(localhost|.*\.(localhost|local)|127\..*|10\..*|192\.168\..*|172\.(1[6-9]|2\d|3[01])\..*|\[(::1|f[cd].*|fe80.*)\])$/;
export async function localNetworkDenied(url) {
    if (!LOCAL.test(new URL(url).hostname))
        return false;
    for (const name of ["loopback-network", "local-network", "local-network-access"]) {
        try {
            const { state } = await globalThis.navigator.permissions.query({ name: name });
            if (state === "denied")
                return true;
        }
        catch {
            continue;
        }
    }
    return false;
}
