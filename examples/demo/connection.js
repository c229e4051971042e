// One socket of `toolrelay.v1` for one session: attach, offer the tools, answer calls, come back after a cut. Owns the
// order of these and what is not yet sent; knows nothing of the page.

const SUBPROTOCOL = "toolrelay.v1";
const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 10_000;
const ANSWER_MS = 15_000;
const SILENCE_MS = 50_000; // the gateway says something every 20 s
const ASLEEP_S = 120; // so long the registration outlives its socket: a reload, a sleeping tab, a restarted gateway
const HANDLED = 1_000;

// After these closes the gateway would refuse again.
const FINAL = new Map([
  [4403, "This page’s origin may not use the session."],
  [4404, "The session has ended."],
]);

const GOING_AWAY = 1012;

/** A refusal of the gateway; without a code the link was lost and nobody knows whether it was done. */
class Refused extends Error {
  constructor(message, code) {
    super(message);
    this.code = code;
  }
}

export function randomId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class Connection {
  #session; // {session_id, token}
  #offer; // {name, key, tools}
  #on; // {state, event, delta, skipped, call, refused, ended}
  #socket = null;
  #open = false; // attached, and the tools are offered
  #ended = false;
  #timer = 0; // of the next try, or of a silence
  #tries = 0;
  #seq = 0; // the last event that was seen
  #nextId = 1;
  #asked = new Map(); // id -> {resolve, reject, timer}
  #registration = null; // {client_id, resume_key}
  #yielded = false; // another tab answers the calls
  #early = []; // calls that came before the answer that says whose they are
  #handled = new Set(); // calls that were begun: a push may come twice
  #outbox = new Map(); // idempotency key -> text: said, not yet taken

  constructor(session, offer, on) {
    this.#session = session;
    this.#offer = offer;
    this.#on = on;
  }

  /** Connects now, unless it is connected or over. */
  open() {
    if (this.#socket || this.#ended) return;
    clearTimeout(this.#timer);
    this.#on.state("connecting");
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/v1/ws`, SUBPROTOCOL);
    this.#socket = socket;
    this.#watch();
    socket.onopen = () => this.#begin(socket);
    socket.onmessage = ({ data }) => socket === this.#socket && this.#receive(JSON.parse(data));
    socket.onclose = ({ code }) => socket === this.#socket && this.#lost(code);
  }

  /** Lets the socket go until `open`: a page in the back-forward cache must hold none. */
  pause() {
    this.#drop(1000);
    clearTimeout(this.#timer);
  }

  /** Ends it for good. */
  close() {
    this.#ended = true;
    this.pause();
  }

  /** Says something to the agent: its key. It is sent again after a cut, under the same key, so it is taken once. */
  say(text) {
    const key = randomId();
    this.#outbox.set(key, text);
    if (this.#open) this.#submit(key, text);
    return key;
  }

  // --- the socket's life

  async #begin(socket) {
    try {
      await this.#ask({ op: "attach", token: this.#session.token, after_seq: this.#seq });
      if (!this.#yielded) await this.#offerTools();
    } catch (error) {
      console.warn("toolrelay: attaching failed:", error.message);
      if (socket === this.#socket) this.#lost(1006);
      return;
    }
    this.#open = true;
    this.#tries = 0;
    this.#on.state(this.#yielded ? "yielded" : "online");
    for (const [key, text] of this.#outbox) this.#submit(key, text);
  }

  async #offerTools() {
    this.#early = [];
    if (this.#registration) {
      const { client_id, resume_key } = this.#registration;
      try {
        // What is still open is in the answer; calls that were replayed before it may be long over.
        const { calls } = await this.#ask({ op: "resume", client_id, resume_key });
        this.#early = null;
        for (const call of calls) this.#answer(call);
        return;
      } catch (error) {
        if (!["not_found", "conflict"].includes(error.code)) throw error;
        this.#registration = null; // it lapsed: register anew
        this.#early = [];
      }
    }
    const lifetime = { type: "ttl", data: { seconds: ASLEEP_S } };
    const { client_id, resume_key } = await this.#ask({ op: "register", lifetime, ...this.#offer });
    this.#registration = { client_id, resume_key };
    const early = this.#early.filter((call) => call.client_id === client_id);
    this.#early = null;
    for (const call of early) this.#answer(call);
  }

  #lost(code) {
    this.#drop(code);
    if (this.#ended) return;
    if (FINAL.has(code)) {
      this.#end(FINAL.get(code));
      return;
    }
    // Full jitter: the tabs of a gateway that went away must not all come back in the same instant.
    const most = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.#tries);
    this.#tries = code === GOING_AWAY ? 0 : this.#tries + 1;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.open(), Math.random() * most);
    this.#on.state("waiting");
  }

  #drop(code) {
    const socket = this.#socket;
    this.#socket = null;
    this.#open = false;
    if (socket && socket.readyState < WebSocket.CLOSING) socket.close(1000);
    for (const { reject, timer } of this.#asked.values()) {
      clearTimeout(timer);
      reject(new Refused(`the socket closed (${code})`));
    }
    this.#asked.clear();
  }

  #end(why) {
    this.close();
    this.#on.ended(why);
  }

  // A hidden tab's timers fire late, which makes this slower there and never wrong.
  #watch() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#lost(1006), SILENCE_MS);
  }

  // --- frames

  #ask(frame) {
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.#asked.has(id) && this.#lost(1006), ANSWER_MS);
      this.#asked.set(id, { resolve, reject, timer });
      this.#socket.send(JSON.stringify({ id, session_id: this.#session.session_id, ...frame }));
    });
  }

  #receive(frame) {
    this.#watch();
    if ("id" in frame) this.#settle(frame);
    else if (frame.event) this.#event(frame.event);
    else if (frame.delta) this.#on.delta(frame.delta);
    else if (frame.reset) this.#skip(frame.reset.seq);
    else if (frame.closed) this.#closed(frame.closed);
  }

  #settle({ id, ok, error }) {
    const asked = this.#asked.get(id);
    if (!asked) return;
    clearTimeout(asked.timer);
    this.#asked.delete(id);
    if (error) asked.reject(new Refused(error.message, error.code));
    else asked.resolve(ok);
  }

  #event(event) {
    if (event.seq <= this.#seq) return;
    this.#seq = event.seq;
    this.#on.event(event);
    if (event.type !== "client_tool_dispatched") return;
    if (this.#early) this.#early.push(event);
    else if (event.client_id === this.#registration?.client_id) this.#answer(event);
  }

  #skip(seq) {
    if (this.#seq > 0) this.#on.skipped();
    this.#seq = seq;
  }

  #closed({ reason, client_id }) {
    if (!client_id) {
      this.#end(reason === "deleted" ? "The session was deleted." : "The session’s token is no longer valid.");
    } else if (client_id === this.#registration?.client_id) {
      this.#registration = null;
      this.#yielded = true; // taking it back here would make the two tabs fight
      this.#on.state("yielded");
    }
  }

  // --- calls and inputs

  async #answer({ client_id, call_id, tool, arguments: args }) {
    if (this.#handled.has(call_id)) return;
    this.#handled.add(call_id);
    if (this.#handled.size > HANDLED) this.#handled.delete(this.#handled.values().next().value);
    let result;
    try {
      result = await this.#on.call(tool, args);
    } catch (error) {
      result = { text: `The tool failed: ${error.message}`, is_error: true };
    }
    try {
      await this.#ask({ op: "result", client_id, call_id, ...result });
    } catch (error) {
      // Without a code the link was lost: `resume` brings the call again if it is still open.
      if (!error.code) this.#handled.delete(call_id);
      console.warn(`toolrelay: the answer to ${call_id} was not taken:`, error.message);
    }
  }

  async #submit(key, text) {
    try {
      await this.#ask({ op: "input", text, idempotency_key: key });
      this.#outbox.delete(key);
    } catch (error) {
      if (!error.code) return; // it stays in the outbox for the next socket
      this.#outbox.delete(key);
      this.#on.refused(key, error.message);
    }
  }
}
