// The demo page: gets a session for the code in its address, connects, and joins the chat box, the table and the socket.

import { Connection, randomId } from "./connection.js";
import { Conversation } from "./conversation.js";
import * as orders from "./orders.js";

const SESSION = "toolrelay.demo.session";
const SEE_TERMINAL = "Open the address that the terminal shows now.";
const STATES = {
  connecting: "Connecting…",
  online: "Connected",
  waiting: "Connection lost, trying again…",
  yielded: "Connected; another tab answers the agent’s calls",
  ended: "Not connected",
};

const state = document.getElementById("state");
const form = document.getElementById("form");
const input = document.getElementById("text");
const buttons = document.querySelectorAll("form button, .tries button");
const conversation = new Conversation(document.getElementById("log"), document.getElementById("working"));
let connection = null;

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
  return { ...(await reply.json()), key: randomId() };
}

async function start() {
  const code = location.hash.slice(1);
  let session = stored();
  if (code) {
    show("connecting");
    try {
      session = await redeem(code);
      sessionStorage.setItem(SESSION, JSON.stringify(session));
      connection?.close();
      connection = null;
      conversation.clear();
      orders.clear();
    } catch (error) {
      if (connection) return; // an old address in a tab that has its session already
      if (!session) return end(error.message);
    }
    history.replaceState(null, "", location.pathname); // the code is good for nothing now
  }
  if (!session) return end("This page needs its one-time address.");
  connect(session);
}

function connect({ session_id, token, key }) {
  orders.restore();
  const offer = { name: "demo-page", key, tools: orders.TOOLS };
  connection = new Connection({ session_id, token }, offer, {
    state: show,
    event: (event) => conversation.event(event),
    delta: (delta) => conversation.delta(delta),
    skipped: () => conversation.notice("Part of the conversation is not shown: this tab was too far behind."),
    call: (tool, args) => orders.call(tool, args),
    refused: (inputKey, why) => conversation.refused(inputKey, why),
    ended(why) {
      sessionStorage.removeItem(SESSION);
      connection = null;
      end(why);
    },
  });
  connection.open();
}

function say(text) {
  if (!connection || !text.trim()) return;
  conversation.pending(connection.say(text), text);
  input.focus();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  say(input.value);
  input.value = "";
});
for (const button of document.querySelectorAll(".tries button")) {
  button.addEventListener("click", () => say(button.textContent));
}

// An open socket keeps a page out of the back-forward cache, and a cached page hears nothing: let go and come back.
addEventListener("pagehide", () => connection?.pause());
addEventListener("pageshow", (event) => event.persisted && connection?.open());
// Coming back to the tab or to the network need not wait for the next try.
addEventListener("online", () => connection?.open());
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && connection?.open());
// The terminal's next address, opened in this tab, changes the fragment alone.
addEventListener("hashchange", () => location.hash && start());

await start();
