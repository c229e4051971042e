// What was said to the agent and not yet taken: it is sent again after a cut, under the same key, so it is taken once.

import { ToolrelayError } from "./errors.js";
import type { Link } from "./link.js";
import type { Submitted } from "./protocol.js";

interface Said {
  text: string;
  resolve(taken: Submitted): void;
  reject(error: Error): void;
}

const WAITING = 32;

export class Outbox {
  readonly #said = new Map<string, Said>();

  /** Resolves once the gateway has taken it. `link` is null while there is none. */
  add(text: string, key: string, link: Link | null): Promise<Submitted> {
    return new Promise((resolve, reject) => {
      if (this.#said.size >= WAITING) throw new ToolrelayError("too_many_requests", `${WAITING} inputs wait already.`);
      const said: Said = { text, resolve, reject };
      this.#said.set(key, said);
      if (link) this.#submit(key, said, link);
    });
  }

  /** Sends all of it over a new socket. */
  flush(link: Link): void {
    for (const [key, said] of this.#said) this.#submit(key, said, link);
  }

  end(error: Error): void {
    for (const { reject } of this.#said.values()) reject(error);
    this.#said.clear();
  }

  #submit(key: string, said: Said, link: Link): void {
    link.ask({ op: "input", text: said.text, idempotency_key: key }).then(
      (taken) => {
        this.#said.delete(key);
        said.resolve(taken);
      },
      (error: ToolrelayError) => {
        if (error.code === "connection_lost") return;
        this.#said.delete(key);
        said.reject(error);
      },
    );
  }
}
