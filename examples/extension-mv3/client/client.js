import { Calls } from "./calls.js";
import { FINAL, ToolrelayError, asError } from "./errors.js";
import { Link } from "./link.js";
import { Offer } from "./offer.js";
import { Emitter, fetchToken, randomId, socketUrl } from "./options.js";
import { Outbox } from "./outbox.js";
import { Leader, localNetworkDenied, watchPage } from "./page.js";
const SETUP_MS = 15_000;
const [FIRST_WAIT_MS, LONGEST_WAIT_MS, STEADY_MS] = [250, 10_000, 5_000];
export class Client extends Emitter {
    key;
    #options;
    #url;
    #Socket;
    #calls;
    #offer = new Offer();
    #outbox = new Outbox();
    #leader;
    #unwatch;
    #state = "connecting";
    #error;
    #offers;
    #link = null;
    #attached = null;
    #registered = null;
    #registration;
    #early = null;
    #seq;
    #head = 0;
    #reading = false;
    #yielded = false;
    #turn = 0;
    #tries = 0;
    #onlineAt = Infinity;
    #timer;
    constructor(options) {
        super();
        this.#options = options;
        this.#url = socketUrl(options.url);
        const Socket = options.WebSocket ?? globalThis.WebSocket;
        if (!Socket)
            throw new ToolrelayError("unsupported", "There is no WebSocket here: hand one in.");
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
        queueMicrotask(() => this.open());
    }
    get state() { return this.#state; }
    get error() { return this.#error; }
    get seq() { return this.#seq; }
    ready() {
        return new Promise((resolve, reject) => {
            const look = () => {
                if (this.#state === "closed")
                    reject(this.#error);
                else if (this.#state === "online" || this.#state === "yielded")
                    resolve();
                else
                    return;
                stop();
            };
            const stop = this.on("state", look);
            look();
        });
    }
    setTool(name, tool) {
        this.#offer.tools.set(name, tool);
        this.#change();
    }
    removeTool(name) {
        if (this.#offer.tools.delete(name))
            this.#change();
    }
    setTools(tools) {
        this.#offer.set(tools);
        this.#change();
    }
    send(text, { idempotencyKey = randomId() } = {}) {
        if (this.#state === "closed")
            return Promise.reject(this.#error);
        return this.#outbox.add(text, idempotencyKey, this.#attached);
    }
    cancel() {
        return this.#ask({ op: "cancel" });
    }
    approve(callId, decision, message = null) {
        return this.#ask({ op: "approve", call_id: callId, decision, message });
    }
    open() {
        if (this.#state === "closed" || this.#link)
            return;
        if (!this.#leader.wait(() => this.open()))
            return this.#enter("standby");
        void this.#connect(++this.#turn);
    }
    pause() {
        if (this.#state === "closed")
            return;
        this.#drop();
        this.#leader.giveUp();
        this.#enter("paused");
    }
    reclaim() {
        if (!this.#yielded || this.#state === "closed")
            return;
        this.#yielded = false;
        this.#drop();
        this.open();
    }
    async close({ leave = true } = {}) {
        const link = this.#registered;
        if (leave && link && this.#registration) {
            const bound = new Promise((resolve) => setTimeout(resolve, 2_000));
            const left = link.ask({ op: "leave", client_id: this.#registration.client_id }).catch(() => { });
            await Promise.race([left, bound]);
        }
        this.#end(new ToolrelayError("closed", "The client was closed."), false);
    }
    async #connect(turn) {
        clearTimeout(this.#timer);
        this.#enter("connecting");
        let token;
        try {
            token = await fetchToken(this.#options.token);
        }
        catch (thrown) {
            if (turn !== this.#turn)
                return;
            this.emit("error", new ToolrelayError("token_failed", asError(thrown).message));
            return this.#wait();
        }
        if (turn !== this.#turn)
            return;
        const on = {
            open: () => void this.#begin(link, token),
            push: (push) => this.#push(push),
            lost: (code, opened) => this.#lost(link, code, opened),
        };
        let link;
        try {
            link = new Link(this.#Socket, this.#url, this.#options.session, on);
        }
        catch (thrown) {
            return this.#end(new ToolrelayError("bad_url", asError(thrown).message));
        }
        this.#link = link;
        this.#timer = setTimeout(() => link.end(1006), SETUP_MS);
    }
    async #begin(link, token) {
        try {
            await this.#attach(link, token);
            if (this.#offers && !this.#yielded)
                await this.#register(link);
        }
        catch (thrown) {
            if (link !== this.#link)
                return;
            const error = thrown;
            if (!["connection_lost", "internal", "too_many_requests", "conflict"].includes(error.code))
                return this.#end(error);
            this.emit("error", error);
            return link.end(1006);
        }
        if (link !== this.#link)
            return;
        this.#attached = link;
        clearTimeout(this.#timer);
        this.#onlineAt = performance.now();
        this.#enter(this.#yielded ? "yielded" : "online");
        this.#outbox.flush(link);
    }
    async #attach(link, token) {
        let rest;
        this.#reading = false;
        await link.ask({ op: "attach", token }, ({ seq }) => {
            this.#head = seq;
            if (this.#seq !== undefined && this.#seq < seq) {
                rest = link.ask({ op: "attach", token, after_seq: this.#seq }, () => (this.#reading = true));
                return;
            }
            if (this.#seq !== undefined && this.#seq > seq)
                this.emit("reset", { seq });
            this.#seq = seq;
            this.#reading = true;
        });
        await rest;
    }
    async #register(link) {
        this.#early = [];
        if (this.#registration) {
            try {
                await link.ask({ op: "resume", ...this.#registration }, ({ calls }) => this.#hold(link, calls));
                return;
            }
            catch (thrown) {
                if (!["not_found", "conflict"].includes(thrown.code))
                    throw thrown;
                this.#registration = null;
                this.#early = [];
            }
        }
        const { name = "web", ttlSeconds: seconds = 120 } = this.#options;
        const lifetime = Number.isFinite(seconds) ? { type: "ttl", data: { seconds } } : { type: "never" };
        const tools = this.#offer.take();
        await link.ask({ op: "register", name, lifetime, key: this.key, tools }, ({ client_id, resume_key }) => {
            this.#registration = { client_id, resume_key };
            this.#hold(link);
        });
        this.emit("registration", this.#registration);
    }
    #hold(link, open) {
        const early = this.#early ?? [];
        this.#early = null;
        this.#registered = link;
        if (open)
            this.#calls.resumed(open);
        for (const event of early)
            this.#dispatched(event);
        this.#flush();
    }
    #lost(link, code, opened) {
        if (link !== this.#link)
            return;
        const steady = performance.now() - this.#onlineAt > STEADY_MS;
        this.#drop();
        if (FINAL.has(code))
            return this.#end(FINAL.get(code));
        if (steady)
            this.#tries = 0;
        if (!opened) {
            void localNetworkDenied(this.#url).then((denied) => {
                if (denied && this.#state !== "closed")
                    this.emit("error", new ToolrelayError("lna_denied", "The browser denies this page the local network."));
            });
        }
        this.#wait(code === 1012 && steady);
    }
    #wait(atOnce = false) {
        clearTimeout(this.#timer);
        const most = atOnce ? 0 : Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.#tries);
        this.#tries = Math.min(this.#tries + 1, 16);
        this.#timer = setTimeout(() => this.open(), Math.random() * most);
        this.#enter("waiting");
    }
    #drop() {
        const link = this.#link;
        this.#turn++;
        this.#link = this.#attached = this.#registered = this.#early = null;
        this.#onlineAt = Infinity;
        clearTimeout(this.#timer);
        link?.end(1000);
    }
    #end(error, emit = true) {
        if (this.#state === "closed")
            return;
        this.#error = error;
        this.#drop();
        this.#leader.giveUp();
        this.#unwatch();
        this.#calls.end(error.code, error.message);
        this.#outbox.end(error);
        if (emit)
            this.emit("error", error);
        this.#enter("closed");
    }
    #push(push) {
        if ("event" in push)
            this.#event(push.event);
        else if ("delta" in push)
            this.emit("delta", push.delta);
        else if ("reset" in push) {
            this.#seq = push.reset.seq;
            this.emit("reset", push.reset);
        }
        else if ("closed" in push)
            this.#closed(push.closed);
    }
    #event(event) {
        if (!this.#reading || event.seq <= (this.#seq ?? 0))
            return;
        this.#seq = event.seq;
        if (event.type === "client_tool_dispatched" && event.seq > this.#head)
            this.#dispatched(event);
        if (event.type === "client_tool_failed")
            this.#settled(event.call_id, event.reason, event.detail ?? event.reason);
        if (event.type === "tool_result")
            this.#settled(event.call_id, "settled", "The call was answered.");
        this.emit("event", event);
    }
    #settled(callId, code, why) {
        if (this.#early)
            this.#early = this.#early.filter((event) => event.call_id !== callId);
        this.#calls.settle(callId, code, why);
    }
    #dispatched(event) {
        if (this.#early)
            this.#early.push(event);
        else if (event.client_id === this.#registration?.client_id && this.#registered)
            this.#calls.take(event);
    }
    #closed({ reason, client_id: clientId }) {
        if (clientId) {
            if (clientId !== this.#registration?.client_id)
                return;
            this.#setAside();
        }
        else if (reason.startsWith("token") && typeof this.#options.token === "function") {
            void this.#renew(this.#link, reason);
        }
        else {
            this.#end(new ToolrelayError(reason, reason === "deleted" ? "The session was deleted." : "The token is no longer valid."));
        }
    }
    #setAside() {
        this.#yielded = true;
        this.#registration = this.#registered = null;
        this.emit("registration", null);
        this.#calls.end("taken_over", "Another tab or worker has this one's place.");
        this.#enter("yielded");
    }
    async #renew(link, reason) {
        const held = this.#registered;
        this.#attached = this.#registered = null;
        try {
            await link.ask({ op: "attach", token: await fetchToken(this.#options.token) });
        }
        catch (thrown) {
            if (link !== this.#link)
                return;
            const { code, message } = asError(thrown);
            if (["unauthorized", "not_found", "forbidden"].includes(code))
                return this.#end(new ToolrelayError(reason, message));
            return link.end(1006);
        }
        if (link !== this.#link)
            return;
        this.#attached = link;
        if (this.#registration)
            this.#registered = held;
        this.#calls.redeliver();
        this.#flush();
    }
    #change() {
        const begin = !this.#offers;
        this.#offers = this.#offer.changed = true;
        queueMicrotask(() => {
            const link = this.#attached;
            if (begin && link)
                this.#register(link).catch((error) => this.emit("error", error));
            else
                this.#flush();
        });
    }
    #flush() {
        if (!this.#registered || !this.#registration)
            return;
        this.#offer.flush(this.#registered, this.#registration.client_id, (error) => this.emit("error", error));
    }
    #ask(op) {
        const lost = () => Promise.reject(new ToolrelayError("connection_lost", "The client is not connected."));
        return this.#attached?.ask(op) ?? lost();
    }
    #enter(state) {
        if (state === this.#state)
            return;
        this.#state = state;
        this.emit("state", state);
    }
}
export const connect = (options) => new Client(options);
