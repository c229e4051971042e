// The list of tools, and what the gateway has of it. Owns when a changed list is sent.

import { wireTool, type Tool } from "./calls.js";
import { ToolrelayError } from "./errors.js";
import type { Link } from "./link.js";
import type { WireTool } from "./protocol.js";

export class Offer {
  readonly tools = new Map<string, Tool>();
  /** Changed since it was last sent. */
  changed = false;
  #sent = "";

  set(tools: Record<string, Tool>): void {
    this.tools.clear();
    for (const [name, tool] of Object.entries(tools)) this.tools.set(name, tool);
  }

  /** The list, to be registered now. */
  take(): WireTool[] {
    const list = [...this.tools].map(([name, tool]) => wireTool(name, tool));
    this.changed = false;
    this.#sent = JSON.stringify(list);
    return list;
  }

  /** Sends the list where the gateway has another one; `failed` hears of a refusal. */
  flush(link: Link, clientId: string, failed: (error: ToolrelayError) => void): void {
    if (this.#sent && !this.changed) return;
    const before = this.#sent;
    const tools = this.take();
    const sent = this.#sent;
    if (sent === before) return;
    link.ask({ op: "tools", client_id: clientId, tools }).catch((error: ToolrelayError) => {
      if (this.#sent === sent) this.#sent = before;
      if (error.code === "connection_lost") this.changed = true;
      else failed(error);
    });
  }
}
