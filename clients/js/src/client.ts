// One client of one session: connect, attach, offer the tools, come back after a cut, until it is closed. Owns the order
// of these; what is done with calls is in calls.ts.

import { Calls, type Tool } from "./calls.js";
import { FINAL, ToolrelayError, asError, type ErrorCode } from "./errors.js";
import { Link, type Asked, type LinkEvents, type SocketConstructor } from "./link.js";
import { Offer } from "./offer.js";
import { Emitter, fetchToken, randomId, socketUrl, type Options, type Registration, type State } from "./options.js";
import { Outbox } from "./outbox.js";
import { Leader, localNetworkDenied, watchPage } from "./page.js";
import type { Answers, ClientToolDispatched, ClosedData, Push, SessionEvent } from "./protocol.js";

const SETUP_MS = 15_000;
const [FIRST_WAIT_MS, LONGEST_WAIT_MS, STEADY_MS] = [250, 10_000, 5_000];

/** See `connect`. */
export class Client extends Emitter {
  readonly key: string;
  readonly #options: Options;
  readonly #url: string;
  readonly #Socket: SocketConstructor;
  readonly #calls: Calls;
  readonly #offer = new Offer();
  readonly #outbox = new Outbox();
  readonly #leader: Leader;
  readonly #unwatch: () => void;
  #state: State = "connecting";
  #error: ToolrelayError | undefined;
  #offers: boolean;
  #link: Link | null = null;
  #attached: Link | null = null;
  #registered: Link | null = null;
  #registration: Registration | null;
  #early: ClientToolDispatched[] | null = null; // while it is asked whose calls are
  #seq: number | undefined;
  #head = 0; // what the log held when this socket came: calls in it are history
  #reading = false;
  #yielded = false;
  #turn = 0; // a new one for every try
  #tries = 0;
  #onlineAt = Infinity;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Throws a `ToolrelayError` for what can never work. */
  constructor(options: Options) {
    super();
    this.#options = options;
    this.#url = socketUrl(options.url);
    const Socket = options.WebSocket ?? (globalThis.WebSocket as SocketConstructor | undefined);
    if (!Socket) throw new ToolrelayError("unsupported", "There is no WebSocket here: hand one in.");
    const { leader = false } = options;
    this.#leader = new Leader(leader === true ? `toolrelay ${this.#url} ${options.session}` : leader);
    this.#Socket = Socket;
    this.key = options.key ?? randomId();
    this.#seq = options.afterSeq;
    this.#registration = options.registration ?? null;
    this.#offers = options.tools !== undefined;
    this.#offer.set(options.tools ?? {});
    const client = this;
    this.#calls = new Calls({
      get link() { return client.#registered; },
      tool: (name) => this.#offer.tools.get(name),
      flush: () => this.#flush(),
      report: (record) => this.emit("call", record),
    });
    this.#unwatch = watchPage({
      leave: () => this.pause(),
      back: () => this.open(),
      awake: () => (this.#link ? this.#link.probe() : this.#state === "waiting" && this.open()),
      turned: () => this.#link?.watch(),
    });
    queueMicrotask(() => this.open()); // whoever made it can listen first
  }

  get state(): State { return this.#state; }
  /** Why it is closed. */
  get error(): ToolrelayError | undefined { return this.#error; }
  /** The last event that was seen. */
  get seq(): number | undefined { return this.#seq; }

  /** Resolves once it is connected and its tools are offered. Rejects when it is closed before. */
  ready(): Promise<void> {
    return new Promise((resolve, reject) => {
      const look = () => {
        if (this.#state === "closed") reject(this.#error);
        else if (this.#state === "online" || this.#state === "yielded") resolve();
        else return;
        stop();
      };
      const stop = this.on("state", look);
      look();
    });
  }

  /** Offers a tool, in place of one of that name. Changes of one turn are sent together, and before any later answer. */
  setTool(name: string, tool: Tool): void {
    this.#offer.tools.set(name, tool);
    this.#change();
  }

  removeTool(name: string): void {
    if (this.#offer.tools.delete(name)) this.#change();
  }

  /** Offers these tools and no other. */
  setTools(tools: Record<string, Tool>): void {
    this.#offer.set(tools);
    this.#change();
  }

  /** Says something to the agent. It is sent again after a cut, under the same key, so it is taken once. */
  send(text: string, { idempotencyKey = randomId() } = {}): Promise<Answers["input"]> {
    if (this.#state === "closed") return Promise.reject(this.#error);
    return this.#outbox.add(text, idempotencyKey, this.#attached);
  }

  /** Ends the active run. */
  cancel(): Promise<Answers["cancel"]> {
    return this.#ask({ op: "cancel" });
  }

  approve(callId: string, decision: "allow" | "deny", message: string | null = null): Promise<Answers["approve"]> {
    return this.#ask({ op: "approve", call_id: callId, decision, message });
  }

  /** Connects now, unless it is connected, closed, or another tab leads. */
  open(): void {
    if (this.#state === "closed" || this.#link) return;
    if (!this.#leader.wait(() => this.open())) return this.#enter("standby");
    void this.#connect(++this.#turn);
  }

  /** Lets the socket go until `open`; the registration sleeps. Pages do so by themselves when they are left. */
  pause(): void {
    if (this.#state === "closed") return;
    this.#drop();
    this.#leader.giveUp();
    this.#enter("paused");
  }

  /** After `yielded`: takes the place back from the other tab. */
  reclaim(): void {
    if (!this.#yielded || this.#state === "closed") return;
    this.#yielded = false;
    this.#drop();
    this.open();
  }

  /** Ends it for good. The registration leaves (its open calls fail at once), or sleeps with `leave: false`. */
  async close({ leave = true } = {}): Promise<void> {
    const link = this.#registered;
    if (leave && link && this.#registration) {
      const bound = new Promise((resolve) => setTimeout(resolve, 2_000));
      const left = link.ask({ op: "leave", client_id: this.#registration.client_id }).catch(() => {});
      await Promise.race([left, bound]);
    }
    this.#end(new ToolrelayError("closed", "The client was closed."), false);
  }

  // --- the socket's life

  async #connect(turn: number): Promise<void> {
    clearTimeout(this.#timer);
    this.#enter("connecting");
    let token: string;
    try {
      token = await fetchToken(this.#options.token);
    } catch (thrown) {
      if (turn !== this.#turn) return;
      this.emit("error", new ToolrelayError("token_failed", asError(thrown).message));
      return this.#wait();
    }
    if (turn !== this.#turn) return; // it was paused or closed meanwhile, or tried anew
    const on: LinkEvents = {
      open: () => void this.#begin(link, token),
      push: (push) => this.#push(push),
      lost: (code, opened) => this.#lost(link, code, opened),
    };
    let link: Link;
    try {
      link = new Link(this.#Socket, this.#url, this.#options.session, on);
    } catch (thrown) {
      return this.#end(new ToolrelayError("bad_url", asError(thrown).message));
    }
    this.#link = link;
    this.#timer = setTimeout(() => link.end(1006), SETUP_MS);
  }

  async #begin(link: Link, token: string): Promise<void> {
    try {
      await this.#attach(link, token);
      if (this.#offers && !this.#yielded) await this.#register(link);
    } catch (thrown) {
      if (link !== this.#link) return;
      const error = thrown as ToolrelayError;
      if (!["connection_lost", "internal", "too_many_requests", "conflict"].includes(error.code)) return this.#end(error);
      this.emit("error", error);
      return link.end(1006);
    }
    if (link !== this.#link) return;
    this.#attached = link;
    clearTimeout(this.#timer);
    this.#onlineAt = performance.now();
    this.#enter(this.#yielded ? "yielded" : "online");
    this.#outbox.flush(link);
  }

  // The first answer is where the log ends now; then, where something is missing, all that came before.
  async #attach(link: Link, token: string): Promise<void> {
    let rest: Promise<unknown> | undefined;
    this.#reading = false;
    await link.ask({ op: "attach", token }, ({ seq }) => {
      this.#head = seq;
      if (this.#seq !== undefined && this.#seq < seq) {
        rest = link.ask({ op: "attach", token, after_seq: this.#seq }, () => (this.#reading = true));
        return;
      }
      if (this.#seq !== undefined && this.#seq > seq) this.emit("reset", { seq });
      this.#seq = seq;
      this.#reading = true;
    });
    await rest;
  }

  async #register(link: Link): Promise<void> {
    this.#early = [];
    if (this.#registration) {
      try {
        await link.ask({ op: "resume", ...this.#registration }, ({ calls }) => this.#hold(link, calls));
        return;
      } catch (thrown) {
        if (!["not_found", "conflict"].includes((thrown as ToolrelayError).code)) throw thrown;
        this.#registration = null; // it lapsed, so another one
        this.#early = [];
      }
    }
    const { name = "web", ttlSeconds: seconds = 120 } = this.#options;
    const lifetime = Number.isFinite(seconds) ? { type: "ttl" as const, data: { seconds } } : { type: "never" as const };
    const tools = this.#offer.take();
    await link.ask({ op: "register", name, lifetime, key: this.key, tools }, ({ client_id, resume_key }) => {
      this.#registration = { client_id, resume_key };
      this.#hold(link);
    });
    this.emit("registration", this.#registration);
  }

  // Calls may come before the answer that says whose they are.
  #hold(link: Link, open?: ClientToolDispatched[]): void {
    const early = this.#early ?? [];
    this.#early = null;
    this.#registered = link;
    if (open) this.#calls.resumed(open);
    for (const event of early) this.#dispatched(event);
    this.#flush();
  }

  #lost(link: Link, code: number, opened: boolean): void {
    if (link !== this.#link) return;
    const steady = performance.now() - this.#onlineAt > STEADY_MS;
    this.#drop();
    if (FINAL.has(code)) return this.#end(FINAL.get(code)!);
    if (steady) this.#tries = 0;
    if (!opened) {
      void localNetworkDenied(this.#url).then((denied) => {
        if (denied && this.#state !== "closed") this.emit("error", new ToolrelayError("lna_denied", "The browser denies this page the local network."));
      });
    }
    this.#wait(code === 1012 && steady);
  }

  // Full jitter: the tabs of a gateway that went away must not all come back in the same instant.
  #wait(atOnce = false): void {
    clearTimeout(this.#timer);
    const most = atOnce ? 0 : Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.#tries);
    this.#tries = Math.min(this.#tries + 1, 16);
    this.#timer = setTimeout(() => this.open(), Math.random() * most);
    this.#enter("waiting");
  }

  #drop(): void {
    const link = this.#link;
    this.#turn++;
    this.#link = this.#attached = this.#registered = this.#early = null;
    this.#onlineAt = Infinity;
    clearTimeout(this.#timer);
    link?.end(1000);
  }

  #end(error: ToolrelayError, emit = true): void {
    if (this.#state === "closed") return;
    this.#error = error;
    this.#drop();
    this.#leader.giveUp();
    this.#unwatch();
    this.#calls.end(error.code, error.message);
    this.#outbox.end(error);
    if (emit) this.emit("error", error);
    this.#enter("closed");
  }

  // --- what is pushed

  #push(push: Push): void {
    if ("event" in push) this.#event(push.event);
    else if ("delta" in push) this.emit("delta", push.delta);
    else if ("reset" in push) {
      this.#seq = push.reset.seq;
      this.emit("reset", push.reset);
    } else if ("closed" in push) this.#closed(push.closed);
  }

  #event(event: SessionEvent): void {
    if (!this.#reading || event.seq <= (this.#seq ?? 0)) return;
    this.#seq = event.seq;
    // Of what was there before this socket, `resume` tells which calls are open.
    if (event.type === "client_tool_dispatched" && event.seq > this.#head) this.#dispatched(event);
    if (event.type === "client_tool_failed") this.#settled(event.call_id, event.reason, event.detail ?? event.reason);
    if (event.type === "tool_result") this.#settled(event.call_id, "settled", "The call was answered.");
    this.emit("event", event);
  }

  #settled(callId: string, code: ErrorCode, why: string): void {
    if (this.#early) this.#early = this.#early.filter((event) => event.call_id !== callId);
    this.#calls.settle(callId, code, why);
  }

  #dispatched(event: ClientToolDispatched): void {
    if (this.#early) this.#early.push(event);
    else if (event.client_id === this.#registration?.client_id && this.#registered) this.#calls.take(event);
  }

  #closed({ reason, client_id: clientId }: ClosedData): void {
    if (clientId) {
      if (clientId !== this.#registration?.client_id) return;
      this.#setAside();
    } else if (reason.startsWith("token") && typeof this.#options.token === "function") {
      void this.#renew(this.#link!, reason);
    } else {
      this.#end(new ToolrelayError(reason, reason === "deleted" ? "The session was deleted." : "The token is no longer valid."));
    }
  }

  // Taking the place back here would make two tabs fight.
  #setAside(): void {
    this.#yielded = true;
    this.#registration = this.#registered = null;
    this.emit("registration", null);
    this.#calls.end("taken_over", "Another tab or worker has this one's place.");
    this.#enter("yielded");
  }

  async #renew(link: Link, reason: ClosedData["reason"]): Promise<void> {
    const held = this.#registered;
    this.#attached = this.#registered = null;
    try {
      await link.ask({ op: "attach", token: await fetchToken(this.#options.token) });
    } catch (thrown) {
      if (link !== this.#link) return;
      const { code, message } = asError(thrown) as ToolrelayError;
      if (["unauthorized", "not_found", "forbidden"].includes(code)) return this.#end(new ToolrelayError(reason, message));
      return link.end(1006);
    }
    if (link !== this.#link) return;
    this.#attached = link;
    if (this.#registration) this.#registered = held;
    this.#calls.redeliver();
    this.#flush();
  }

  // --- tools, asking

  #change(): void {
    const begin = !this.#offers;
    this.#offers = this.#offer.changed = true;
    queueMicrotask(() => {
      const link = this.#attached;
      if (begin && link) this.#register(link).catch((error: ToolrelayError) => this.emit("error", error));
      else this.#flush();
    });
  }

  #flush(): void {
    if (!this.#registered || !this.#registration) return;
    this.#offer.flush(this.#registered, this.#registration.client_id, (error) => this.emit("error", error));
  }

  #ask<K extends "cancel" | "approve">(op: Asked<K>): Promise<Answers[K]> {
    const lost = () => Promise.reject(new ToolrelayError("connection_lost", "The client is not connected."));
    return this.#attached?.ask(op) ?? lost();
  }

  #enter(state: State): void {
    if (state === this.#state) return;
    this.#state = state;
    this.emit("state", state);
  }
}

/** Connects to a session and offers tools, until `close`. Throws a `ToolrelayError` for what can never work. */
export const connect = (options: Options): Client => new Client(options);
