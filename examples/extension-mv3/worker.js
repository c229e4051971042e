// The extension's worker: one client of one session, which every new life of the worker takes up again. Chrome ends a
// worker after 30 s without an event; the gateway's keepalives come every 20 s, and an alarm wakes a dead one.

import { connect } from "./client/index.js";
import { forget, set } from "./consent.js";
import { load, save } from "./store.js";
import { TOOLS } from "./tools.js";

const ALARM = "wake";
let client = null;
let starting = null;

/** Connects, unless that is done; resolves once it was tried. */
function start() {
  starting ??= begin().finally(() => (starting = null));
  return starting;
}

async function begin() {
  if (client && client.state !== "closed") return;
  const { url, session, token, registration, seq } = await load();
  if (!url || !session || !token) return;
  client = connect({
    url,
    session,
    token,
    name: "extension",
    key: `extension ${chrome.runtime.id}`,
    ttlSeconds: 300, // longer than the alarm needs
    tools: TOOLS,
    ...(registration ? { registration } : {}),
    ...(seq === null ? {} : { afterSeq: seq }),
  });
  const mine = client;
  mine.on("registration", (made) => void save({ registration: made }));
  mine.on("event", ({ seq: seen }) => void save({ seq: seen }));
  mine.on("state", (state) => {
    // A token that is no longer good is not tried again with every alarm.
    if (state === "closed" && mine === client && mine.error.code !== "closed") void save({ token: "" });
  });
  await chrome.alarms.create(ALARM, { periodInMinutes: 0.5 });
}

const REQUESTS = {
  async status() {
    const { url, session, consent } = await load();
    return { url, session, state: client?.state ?? "closed", error: client?.error?.message ?? "", consent };
  },
  async connect({ url, session, token }) {
    await client?.close();
    client = null;
    await save({ url, session, token, registration: null, seq: null });
    await start();
    return {};
  },
  async disconnect() {
    await client?.close();
    client = null;
    await save({ token: "", registration: null, seq: null });
    await chrome.alarms.clear(ALARM);
    return {};
  },
  async consent({ tab, on }) {
    await set(tab, on);
    return {};
  },
};

chrome.runtime.onMessage.addListener(({ request, ...rest }, sender, reply) => {
  // Only our own popup asks; there are no content scripts that could.
  if (sender.id !== chrome.runtime.id || !sender.url?.startsWith(chrome.runtime.getURL(""))) return false;
  if (!Object.hasOwn(REQUESTS, request)) return false;
  start()
    .then(() => REQUESTS[request](rest))
    .then(reply, (error) => reply({ failed: error.message }));
  return true;
});
chrome.alarms.onAlarm.addListener(() => void start());
chrome.runtime.onStartup.addListener(() => void start());
chrome.tabs.onRemoved.addListener((tabId) => void forget(tabId));
void start();
