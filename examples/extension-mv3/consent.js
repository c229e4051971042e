// Which tabs a person has switched on. Owns the rule that consent is for one tab on one site: it ends when the tab is
// closed, goes to another site, or is switched off.

import { load, save } from "./store.js";

const originOf = (url) => {
  try {
    return new URL(url ?? "").origin;
  } catch {
    return "";
  }
};

// One change after the other, because each reads what the last one wrote.
let tail = Promise.resolve();
const change = (act) =>
  (tail = tail.catch(() => {}).then(async () => {
    const { consent } = await load();
    act(consent);
    await save({ consent });
  }));

/** Switches a tab on, or off. `tab` is what the popup has of it: its address is known there by `activeTab`. */
export async function set(tab, on) {
  await change((consent) => {
    if (on) consent[tab.id] = originOf(tab.url);
    else delete consent[tab.id];
  });
  await badge(tab.id, on);
}

export const forget = (tabId) => change((consent) => delete consent[tabId]);

/** The tabs that are switched on and still show the site for which they were. */
export async function allowed() {
  const { consent } = await load();
  const found = [];
  for (const [id, origin] of Object.entries(consent)) {
    const tab = await chrome.tabs.get(Number(id)).catch(() => null);
    // Without a grant the address is not told: then the site has been left.
    if (tab?.url && originOf(tab.url) === origin) found.push(tab);
    else await forget(id);
    if (tab && !found.includes(tab)) await badge(tab.id, false);
  }
  return found;
}

async function badge(tabId, on) {
  try {
    await chrome.action.setBadgeText({ tabId, text: on ? "on" : "" });
  } catch (error) {
    console.debug("toolrelay: no badge:", error.message); // the tab has been closed
  }
}
