// The conversation as a person reads it: messages, calls with their answers, text as it comes. Owns the log's elements.
// Whatever came from elsewhere becomes text, never HTML.

const ENDS = new Set(["run_completed", "run_cancelled", "run_failed"]);

function make(tag, className, text = "") {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  return element;
}

const textOf = (content) => content.filter((block) => block.type === "text").map((block) => block.data.text).join("");

// A client's tool has a long name for the agent; its last part is what the page called it.
const shortName = (name) => name.split("__").at(-1);

export class Conversation {
  #log;
  #working;
  #calls = new Map(); // call id -> {card, since}
  #live = new Map(); // message id -> {bubble, text}: being written
  #unclaimed = []; // finished texts of this run whose pieces may still come
  #over = new Set(); // message ids that are finished
  #pending = new Map(); // key -> bubble: sent, not yet in the log

  constructor(log, working) {
    this.#log = log;
    this.#working = working;
  }

  /** Empties it: another session begins. */
  clear() {
    for (const shown of this.#log.querySelectorAll(".message, .call, .notice")) shown.remove();
    for (const kept of [this.#calls, this.#live, this.#pending, this.#over]) kept.clear();
    this.#unclaimed = [];
    this.#working.hidden = true;
    this.#showEmpty();
  }

  /** One event of the session's log. */
  event(event) {
    switch (event.type) {
      case "message_user":
        this.#settleOldest();
        this.#add(this.#bubble("user", textOf(event.message.content)));
        break;
      case "message_assistant":
        this.#finish(textOf(event.message.content)); // its calls come as events of their own
        break;
      case "tool_call":
        this.#called(event);
        break;
      case "tool_result":
        this.#answered(event);
        break;
      case "run_started":
        this.#working.hidden = false;
        break;
      case "error":
        this.notice(event.message, true);
        break;
      case "run_failed":
        this.notice(`The run failed: ${event.error}`, true);
        break;
      case "approval_requested":
        this.notice("The agent asks for an approval, which this page cannot give.");
        break;
    }
    if (ENDS.has(event.type)) this.#endRun();
  }

  /** A piece of a message that is being written. Pieces may be late or lost; the message's event has the whole. */
  delta({ message_id: id, part, text }) {
    if (this.#over.has(id)) return;
    let live = this.#live.get(id);
    if (!live) {
      text = text.trimStart(); // the whole has no blank in front
      const late = this.#unclaimed.findIndex((whole) => whole.trimStart().startsWith(text));
      if (part !== 0 || late >= 0 || this.#working.hidden) {
        if (late >= 0) this.#unclaimed.splice(late, 1);
        this.#over.add(id);
        return;
      }
      live = { bubble: this.#bubble("assistant", ""), text: "" };
      live.bubble.setAttribute("aria-live", "off"); // read out once, when it is whole
      this.#live.set(id, live);
      this.#add(live.bubble);
    }
    live.text += text;
    live.bubble.lastChild.textContent = live.text;
    this.#follow();
  }

  /** What the person said, until the log has it. */
  pending(key, text) {
    const bubble = this.#bubble("user", text);
    bubble.classList.add("pending");
    this.#pending.set(key, bubble);
    this.#add(bubble, true);
  }

  /** What the person said was not taken. */
  refused(key, why) {
    this.#pending.get(key)?.remove();
    this.#pending.delete(key);
    this.notice(why, true);
  }

  /** A line that nobody said. */
  notice(text, failed = false) {
    this.#add(make("p", failed ? "notice failed" : "notice", text));
  }

  #bubble(who, text) {
    const bubble = make("article", `message ${who}`);
    bubble.append(make("span", "hidden", who === "user" ? "You: " : "Agent: "), text);
    return bubble;
  }

  #settleOldest() {
    const [oldest] = this.#pending;
    if (!oldest) return;
    oldest[1].remove();
    this.#pending.delete(oldest[0]);
  }

  #finish(text) {
    if (!text) return;
    for (const [id, live] of this.#live) {
      if (!text.trimStart().startsWith(live.text)) continue;
      live.bubble.remove();
      this.#live.delete(id);
      this.#over.add(id);
      this.#add(this.#bubble("assistant", text));
      return;
    }
    this.#unclaimed.push(text);
    this.#add(this.#bubble("assistant", text));
  }

  #called({ call_id: id, name, arguments: args }) {
    if (this.#calls.has(id)) return;
    const card = make("article", "call");
    card.dataset.state = "running";
    const head = make("h3", "", "Tool call");
    head.append(make("span", "took"));
    const given = Object.entries(args ?? {}).map(([key, value]) => `${key}: ${JSON.stringify(value)}`);
    const asked = make("p", "asked");
    asked.append(make("code", "", `${shortName(name)}(${given.join(", ")})`));
    asked.title = name;
    card.append(head, asked);
    this.#calls.set(id, { card, since: performance.now() });
    this.#add(card);
  }

  #answered({ call_id: id, content, is_error: failed }) {
    const call = this.#calls.get(id);
    if (!call || call.card.dataset.state !== "running") return;
    call.card.dataset.state = failed ? "failed" : "done";
    const took = Math.round(performance.now() - call.since);
    call.card.querySelector(".took").textContent = `${failed ? "failed" : "answered"} in ${took} ms`;
    call.card.append(make("p", "answered", textOf(content)));
    this.#follow();
  }

  #endRun() {
    this.#working.hidden = true;
    for (const { bubble } of this.#live.values()) bubble.remove();
    this.#live.clear();
    this.#unclaimed = [];
    this.#over.clear(); // a piece that comes later finds no run
  }

  // What is pending stays below what was logged.
  #add(element, atEnd = false) {
    this.#log.querySelector("#empty").hidden = true;
    const [first] = this.#pending.values();
    if (atEnd || !first?.isConnected) this.#log.append(element);
    else first.before(element);
    this.#follow();
  }

  #showEmpty() {
    this.#log.querySelector("#empty").hidden = false;
  }

  #follow() {
    this.#log.scrollTop = this.#log.scrollHeight;
  }
}
