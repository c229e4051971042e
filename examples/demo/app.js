// The demo page: gets a session for the code in its address, connects, and joins the chat box, the shop and the client.

import { Activity } from "./activity.js";
import { connect } from "./client/index.js";
import { Conversation } from "./conversation.js";
import { Shop } from "./shop.js";

const SESSION = "toolrelay.demo.session";
const SEE_TERMINAL = "Open the address that the terminal shows now.";
const STATES = {
  connecting: "Connecting…",
  online: "Connected",
  waiting: "Connection lost, trying again…",
  paused: "Connection lost, trying again…",
  yielded: "Connected; another tab answers the agent’s calls",
  ended: "Not connected",
};
const ENDS = {
  origin_forbidden: "This page’s origin may not use the session.",
  not_found: "The session has ended.",
  deleted: "The session was deleted.",
  token_expired: "The session’s token is no longer valid.",
  token_revoked: "The session’s token is no longer valid.",
};

const state = document.getElementById("state");
const form = document.getElementById("form");
const input = document.getElementById("text");
const buttons = document.querySelectorAll("#form button, .tries button");
const conversation = new Conversation(document.getElementById("log"), document.getElementById("working"));
const activity = new Activity(document.getElementById("calls"));
const shop = new Shop((tools) => client?.setTools(tools));
let client = null;

function show(name) {
  state.dataset.state = name;
  state.textContent = STATES[name];
  for (const button of buttons) button.disabled = name === "ended";
}

function end(why) {
  show("ended");
  conversation.notice(`${why} ${SEE_TERMINAL}`, true);
}

/** The session in this tab's storage: `{session_id, token, key}`, which a reload keeps and no other tab sees. */
function stored() {
  try {
    return JSON.parse(sessionStorage.getItem(SESSION));
  } catch (error) {
    console.warn("toolrelay: the stored session is not readable:", error.message);
    return null;
  }
}

/** A new session for a one-time code. Throws with a text for the person. */
async function redeem(code) {
  let reply;
  try {
    reply = await fetch("/demo/session", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ code }),
      signal: AbortSignal.timeout(15_000),
    });
  } catch {
    throw new Error("The gateway does not answer.");
  }
  if (reply.status === 403) throw new Error("This address was used already.");
  if (!reply.ok) throw new Error(`The gateway refused to open a session (${reply.status}).`);
  return { ...(await reply.json()), key: crypto.randomUUID() };
}

async function start() {
  const code = location.hash.slice(1);
  let session = stored();
  if (code) {
    show("connecting");
    try {
      session = await redeem(code);
      sessionStorage.setItem(SESSION, JSON.stringify(session));
      await leave();
      conversation.clear();
      activity.clear();
      shop.clear();
    } catch (error) {
      if (client) return show(client.state); // an old address in a tab that has its session already
      if (!session) return end(error.message);
    }
    history.replaceState(null, "", location.pathname); // the code is good for nothing now
  }
  if (!session) return end("This page needs its one-time address.");
  open(session);
}

async function leave() {
  const before = client;
  client = null;
  await before?.close();
}

function open({ session_id: session, token, key }) {
  shop.restore();
  // From the log's begin on, so that a reload shows the conversation again.
  const mine = (client = connect({ url: "/", session, token, key, name: "demo-page", afterSeq: 0, tools: shop.tools }));
  show("connecting");
  mine.on("state", (name) => {
    if (mine !== client) return;
    if (name !== "closed") return show(name);
    client = null;
    sessionStorage.removeItem(SESSION);
    end(ENDS[mine.error.code] ?? mine.error.message);
  });
  mine.on("event", (event) => conversation.event(event));
  mine.on("delta", (delta) => conversation.delta(delta));
  mine.on("reset", () => conversation.notice("Part of the conversation is not shown: this tab was too far behind."));
  mine.on("call", (call) => activity.show(call));
}

async function say(text) {
  if (!client || !text.trim()) return;
  const idempotencyKey = crypto.randomUUID();
  conversation.pending(idempotencyKey, text);
  input.focus();
  try {
    await client.send(text, { idempotencyKey });
  } catch (error) {
    conversation.refused(idempotencyKey, error.message);
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  void say(input.value);
  input.value = "";
});
for (const button of document.querySelectorAll(".tries button")) {
  button.addEventListener("click", () => void say(button.textContent));
}

// The terminal's next address, opened in this tab, changes the fragment alone.
addEventListener("hashchange", () => location.hash && void start());

await start();
