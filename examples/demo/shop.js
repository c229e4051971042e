// The shop: a table of orders and a form for a new one, and what each offers the agent. Owns which of the two is shown,
// so also which tools there are; knows nothing of a socket.

import { ToolError } from "./client/index.js";

const KEPT = "toolrelay.demo.row"; // a reload shows the row again
const VIEW = "toolrelay.demo.view";
const LONGEST_SELECTION = 2_000;

const table = document.getElementById("orders");
const order = document.getElementById("order");
const announcement = document.getElementById("announcement");
const offered = document.getElementById("offered");
const links = [...document.querySelectorAll("[data-view]")];
const rows = new Map([...table.tBodies[0].rows].map((row) => [row.dataset.row, row]));
const fields = new Map([...order.elements].filter((field) => field.name).map((field) => [field.name, field]));

const schema = (properties) => ({ type: "object", properties, required: Object.keys(properties), additionalProperties: false });

export class Shop {
  #changed;
  #view = "table";
  #selected = "";

  /** `changed` is told the new tools whenever another part of the shop is shown. */
  constructor(changed) {
    this.#changed = changed;
    for (const link of links) link.addEventListener("click", () => this.#go(link.dataset.view));
    this.#show("table");
    document.addEventListener("selectionchange", () => this.#select(getSelection()));
    order.addEventListener("submit", (event) => {
      event.preventDefault();
      announcement.textContent = this.#save();
    });
  }

  /** The tools of what is shown now, by name. */
  get tools() {
    const everywhere = { fill_form: this.#fillForm, read_selection: this.#readSelection };
    if (this.#view === "table") return { highlight_row: this.#highlightRow, ...everywhere };
    return { ...everywhere, save_order: this.#saveOrder };
  }

  /** What was shown before a reload. */
  restore() {
    this.#show(sessionStorage.getItem(VIEW) === "form" ? "form" : "table");
    const row = rows.get(sessionStorage.getItem(KEPT));
    if (row) this.#mark(row);
  }

  /** A new session begins: no row is highlighted. */
  clear() {
    sessionStorage.removeItem(KEPT);
    sessionStorage.removeItem(VIEW);
    this.#mark(null);
    order.reset();
    this.#show("table");
  }

  #highlightRow = {
    description: "Highlight one row of the orders table, and no other, and bring it into view.",
    parameters: schema({ row_id: { type: "string", description: `The row's number, 1 to ${rows.size}.` } }),
    idempotent: true, // so a call may be handed to the tab that takes this one's place
    run: ({ row_id: rowId }) => {
      const row = rows.get(String(rowId).trim());
      if (!row) throw new ToolError(`There is no row ${rowId}; the rows are 1 to ${rows.size}.`);
      this.#mark(row);
      sessionStorage.setItem(KEPT, row.dataset.row);
      row.scrollIntoView({ block: "nearest" });
      const name = row.cells[1].textContent;
      announcement.textContent = `The agent highlighted row ${rowId}, order ${name}.`;
      return `Row ${rowId} is highlighted: order ${name} of ${row.cells[2].textContent}.`;
    },
  };

  // Going to the form changes the list of tools in the middle of the call; the list is sent before the answer.
  #fillForm = {
    description: "Fill one field of the form for a new order. Shows the form; what can be done there is offered then.",
    parameters: schema({
      field: { type: "string", description: `One of ${[...fields.keys()].join(", ")}.` },
      value: { type: "string" },
    }),
    idempotent: true,
    run: ({ field: name, value }) => {
      const field = fields.get(String(name).trim().toLowerCase());
      if (!field) throw new ToolError(`There is no field ${name}; the fields are ${[...fields.keys()].join(", ")}.`);
      this.#go("form");
      field.value = String(value).slice(0, field.maxLength);
      announcement.textContent = `The agent filled ${field.name}.`;
      return `The field ${field.name} holds “${field.value}” now.`;
    },
  };

  #readSelection = {
    description: "Read the text that the person has selected in the shop.",
    parameters: schema({}),
    idempotent: true,
    run: () => this.#selected.slice(0, LONGEST_SELECTION) || "Nothing is selected.",
  };

  #saveOrder = {
    description: "Save the new order as the form has it, and go back to the table.",
    parameters: schema({}),
    run: () => {
      const empty = [...fields.values()].filter((field) => !field.value.trim());
      if (empty.length) throw new ToolError(`Still empty: ${empty.map((field) => field.name).join(", ")}.`);
      return this.#save();
    },
  };

  // Kept, because whoever goes on to the chat box leaves the selection.
  #select(selection) {
    if (table.parentElement.contains(selection.anchorNode)) this.#selected = String(selection).trim();
  }

  #save() {
    const [customer, item] = ["customer", "item"].map((name) => fields.get(name).value.trim());
    order.reset();
    this.#go("table");
    return `The order of ${item} for ${customer} is saved (not really: this is a demo).`;
  }

  #go(view) {
    if (view === this.#view) return;
    sessionStorage.setItem(VIEW, view);
    this.#show(view);
    this.#changed(this.tools);
  }

  #show(view) {
    this.#view = view;
    table.parentElement.hidden = view !== "table";
    order.hidden = view !== "form";
    for (const link of links) link.setAttribute("aria-pressed", String(link.dataset.view === view));
    offered.replaceChildren(...Object.keys(this.tools).map((name) => {
      const code = document.createElement("code");
      code.textContent = name;
      return code;
    }));
  }

  #mark(marked) {
    for (const row of rows.values()) {
      row.classList.toggle("highlighted", row === marked);
      if (row === marked) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
  }
}
