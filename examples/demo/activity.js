// The calls that this tab was asked for, as they come and end. Owns the list; knows nothing of what a tool does.

const SHOWN = 50;
const STATES = { running: "running", answered: "answered", failed: "failed", aborted: "not waited for" };

export class Activity {
  #list;
  #rows = new Map(); // call id -> row

  constructor(list) {
    this.#list = list;
  }

  /** A call began or ended: the client's record of it. */
  show({ callId, tool, state, since, text }) {
    let row = this.#rows.get(callId);
    if (!row) {
      row = document.createElement("li");
      row.className = "served";
      row.append(document.createElement("code"), document.createElement("span"));
      row.firstChild.textContent = tool;
      this.#rows.set(callId, row);
      this.#list.prepend(row);
      if (this.#rows.size > SHOWN) this.#drop();
    }
    row.dataset.state = state;
    row.title = text ?? "";
    row.lastChild.textContent = state === "running" ? "running…" : `${STATES[state]} after ${Date.now() - since} ms`;
  }

  clear() {
    this.#rows.clear();
    this.#list.replaceChildren();
  }

  #drop() {
    const [[oldest, row]] = this.#rows;
    row.remove();
    this.#rows.delete(oldest);
  }
}
