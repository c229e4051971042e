// What a page or worker goes through: hidden, cached, brought back, online again; and who of an origin leads.

import { ToolrelayError } from "./errors.js";

export interface PageEvents {
  /** The page goes away, perhaps into the back-forward cache. */
  leave(): void;
  /** It is back from the cache. */
  back(): void;
  /** It is seen or has a network again: what was waited for need not be. */
  awake(): void;
  /** It is hidden or shown. */
  turned(): void;
}

/** Tells `on` what happens, until the returned function is called. */
export function watchPage(on: PageEvents): () => void {
  const stop = new AbortController();
  const { signal } = stop;
  const { document } = globalThis;
  const listen = (target: EventTarget, type: string, act: (event: any) => void) =>
    target.addEventListener(type, act, { signal });
  if (typeof globalThis.addEventListener === "function" && globalThis.location) {
    listen(globalThis, "online", () => on.awake());
    if (document) {
      listen(globalThis, "pagehide", () => on.leave());
      listen(globalThis, "pageshow", (event) => event.persisted && on.back());
      listen(document, "visibilitychange", () => {
        on.turned();
        if (document.visibilityState === "visible") on.awake();
      });
    }
  }
  return () => stop.abort();
}

/** Whether this one may connect: one of all that name the same lock. Without a name everyone may. */
export class Leader {
  readonly #name: string | false;
  #leads = false;
  #stop: AbortController | null = null;

  constructor(name: string | false) {
    this.#name = name;
    if (name && !globalThis.navigator?.locks) throw new ToolrelayError("unsupported", "There are no Web Locks here.");
  }

  /** Whether it leads now; if not, `then` is called once it does. */
  wait(then: () => void): boolean {
    if (!this.#name || this.#leads) return true;
    if (this.#stop) return false;
    const { signal } = (this.#stop = new AbortController());
    const hold = () =>
      new Promise<void>((release) => {
        if (signal.aborted) return release();
        signal.addEventListener("abort", () => release());
        this.#leads = true;
        then();
      });
    navigator.locks.request(this.#name, { signal }, hold).catch(() => {}); // aborted while it waited
    return false;
  }

  /** A lock that is held keeps a page out of the back-forward cache. */
  giveUp(): void {
    this.#stop?.abort();
    this.#stop = null;
    this.#leads = false;
  }
}

const LOCAL = /^(localhost|.*\.(localhost|local)|127\..*|10\..*|192\.168\..*|172\.(1[6-9]|2\d|3[01])\..*|\[(::1|f[cd].*|fe80.*)\])$/;

/** Whether the browser has refused this page the way to the local network, where that can be known. */
export async function localNetworkDenied(url: string): Promise<boolean> {
  if (!LOCAL.test(new URL(url).hostname)) return false;
  for (const name of ["loopback-network", "local-network", "local-network-access"]) {
    try {
      const { state } = await globalThis.navigator.permissions.query({ name: name as PermissionName });
      if (state === "denied") return true;
    } catch {
      continue; // a name (or a means) that is not known here
    }
  }
  return false;
}
