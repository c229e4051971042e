// The table, and the one tool that it offers. Owns which row is highlighted; knows nothing of a socket.

const KEPT = "toolrelay.demo.row"; // a reload shows the row again

const table = document.getElementById("orders");
const announcement = document.getElementById("announcement");
const rows = new Map([...table.tBodies[0].rows].map((row) => [row.dataset.row, row]));

export const TOOLS = [
  {
    name: "highlight_row",
    description: "Highlight one row of the orders table, and no other, and bring it into view.",
    parameters: {
      type: "object",
      properties: { row_id: { type: "string", description: `The row's number, 1 to ${rows.size}.` } },
      required: ["row_id"],
      additionalProperties: false,
    },
    idempotent: true, // so a call may be handed to the tab that takes this one's place
  },
];

/** Does what the agent asks for: `{text, is_error?}`. An error's text is for the agent. */
export function call(tool, { row_id: rowId } = {}) {
  if (tool !== "highlight_row") return { text: `This tab has no tool ${tool}.`, is_error: true };
  const row = rows.get(String(rowId).trim());
  if (!row) return { text: `There is no row ${rowId}; the rows are 1 to ${rows.size}.`, is_error: true };
  highlight(row);
  row.scrollIntoView({ block: "nearest" });
  const order = row.cells[1].textContent;
  announcement.textContent = `The agent highlighted row ${rowId}, order ${order}.`;
  return { text: `Row ${rowId} is highlighted: order ${order} of ${row.cells[2].textContent}.` };
}

function highlight(row) {
  for (const other of rows.values()) {
    other.classList.toggle("highlighted", other === row);
    if (other === row) other.setAttribute("aria-current", "true");
    else other.removeAttribute("aria-current");
  }
  sessionStorage.setItem(KEPT, row.dataset.row);
}

/** The row that was highlighted before a reload. */
export function restore() {
  const row = rows.get(sessionStorage.getItem(KEPT));
  if (row) highlight(row);
}

/** No row is highlighted: a new session begins. */
export function clear() {
  sessionStorage.removeItem(KEPT);
  for (const row of rows.values()) {
    row.classList.remove("highlighted");
    row.removeAttribute("aria-current");
  }
}
