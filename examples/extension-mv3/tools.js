// What the extension offers: list, read and highlight the tabs that are switched on. All of it may be done twice, so
// a call that the worker's death interrupted is simply done again.

import { ToolError } from "./client/index.js";
import { allowed } from "./consent.js";

const LONGEST_TEXT = 20_000;
const MOST_MARKS = 200;

const tabId = { type: "integer", description: "A tab's id, as list_tabs has it. Left out: the only one there is." };

async function tabFor(id) {
  const tabs = await allowed();
  if (!tabs.length) throw new ToolError("The person has switched on no tab. Ask for it: the extension's button has a switch.");
  if (id === undefined && tabs.length > 1) throw new ToolError("Several tabs are switched on: say which, list_tabs lists them.");
  const tab = id === undefined ? tabs[0] : tabs.find((one) => one.id === id);
  if (!tab) throw new ToolError(`Tab ${id} is not switched on.`);
  return tab;
}

async function inTab(tab, func, ...args) {
  try {
    const [{ result }] = await chrome.scripting.executeScript({ target: { tabId: tab.id }, func, args });
    return result;
  } catch (error) {
    throw new ToolError(`The tab cannot be reached: ${error.message}`);
  }
}

// These two run in the page, in a world of their own.
const readPage = (longest) => ({ title: document.title, url: location.href, text: document.body.innerText.slice(0, longest) });

function markPage(text, most) {
  const ranges = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const wanted = text.toLowerCase();
  while (walker.nextNode() && ranges.length < most) {
    const node = walker.currentNode;
    const shown = node.data.toLowerCase();
    for (let at = shown.indexOf(wanted); at >= 0 && ranges.length < most; at = shown.indexOf(wanted, at + wanted.length)) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, at + wanted.length);
      ranges.push(range);
    }
  }
  CSS.highlights.set("toolrelay", new Highlight(...ranges));
  ranges[0]?.startContainer.parentElement?.scrollIntoView({ block: "center" });
  return ranges.length;
}

export const TOOLS = {
  list_tabs: {
    description: "List the tabs that the person has switched on for you.",
    parameters: { type: "object", properties: {}, additionalProperties: false },
    idempotent: true,
    run: async () => {
      const tabs = (await allowed()).map(({ id, title, url }) => ({ tab_id: id, title, url }));
      return { text: JSON.stringify(tabs), structured: { tabs } };
    },
  },
  read_tab: {
    description: `Read a tab that is switched on: its title, address and text (at most ${LONGEST_TEXT} characters).`,
    parameters: { type: "object", properties: { tab_id: tabId }, additionalProperties: false },
    idempotent: true,
    run: async ({ tab_id: id } = {}) => {
      const { title, url, text } = await inTab(await tabFor(id), readPage, LONGEST_TEXT);
      return `${title}\n${url}\n\n${text}`;
    },
  },
  highlight: {
    description: "Highlight a text wherever it stands in a tab that is switched on, and bring it into view.",
    parameters: {
      type: "object",
      properties: { text: { type: "string", minLength: 1, maxLength: 500 }, tab_id: tabId },
      required: ["text"],
      additionalProperties: false,
    },
    idempotent: true,
    run: async ({ text, tab_id: id }) => {
      const tab = await tabFor(id);
      await chrome.scripting.insertCSS({ target: { tabId: tab.id }, css: "::highlight(toolrelay) { background: #ffe066; color: #000; }" });
      const count = await inTab(tab, markPage, text, MOST_MARKS);
      if (!count) throw new ToolError("That text does not stand there.");
      return `Highlighted ${count} time${count === 1 ? "" : "s"}.`;
    },
  },
};
