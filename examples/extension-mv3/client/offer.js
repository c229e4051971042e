import { wireTool } from "./calls.js";
import { ToolrelayError } from "./errors.js";
export class Offer {
    tools = new Map();
    changed = false;
    #sent = "";
    set(tools) {
        this.tools.clear();
        for (const [name, tool] of Object.entries(tools))
            this.tools.set(name, tool);
    }
    take() {
        const list = [...this.tools].map(([name, tool]) => wireTool(name, tool));
        this.changed = false;
        this.#sent = JSON.stringify(list);
        return list;
    }
    flush(link, clientId, failed) {
        if (this.#sent && !this.changed)
            return;
        const before = this.#sent;
        const tools = this.take();
        const sent = this.#sent;
        if (sent === before)
            return;
        link.ask({ op: "tools", client_id: clientId, tools }).catch((error) => {
            if (this.#sent === sent)
                this.#sent = before;
            if (error.code === "connection_lost")
                this.changed = true;
            else
                failed(error);
        });
    }
}
