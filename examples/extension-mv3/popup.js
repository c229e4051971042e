// The popup: the switch of the tab it was opened over, and where to connect. To open it is what grants `activeTab`.

const state = document.getElementById("state");
const consent = document.getElementById("consent");
const settings = document.getElementById("settings");
const REFRESH_MS = 500;
const STATES = {
  connecting: "Connecting…",
  online: "Connected",
  waiting: "Connection lost, trying again…",
  yielded: "Another browser has this session's place",
  closed: "Not connected",
};

async function ask(request, rest = {}) {
  const reply = await chrome.runtime.sendMessage({ request, ...rest });
  if (reply?.failed) throw new Error(reply.failed);
  return reply;
}

const [tab] = await chrome.tabs.query({ active: true, currentWindow: true });

async function refresh() {
  try {
    const status = await ask("status");
    state.textContent = STATES[status.state] ?? status.state;
    if (status.error && status.state === "closed") state.textContent += `: ${status.error}`;
    const site = /^https?:/.test(tab?.url ?? "");
    consent.disabled = !site;
    consent.checked = site && status.consent[tab.id] === new URL(tab.url).origin;
    return status;
  } catch (error) {
    state.textContent = error.message;
    return null;
  }
}

consent.addEventListener("change", async () => {
  await ask("consent", { tab: { id: tab.id, url: tab.url }, on: consent.checked });
  await refresh();
});
settings.addEventListener("submit", async (event) => {
  event.preventDefault();
  await ask("connect", Object.fromEntries(new FormData(settings)));
  settings.elements.token.value = "";
  await refresh();
});
document.getElementById("disconnect").addEventListener("click", async () => {
  await ask("disconnect");
  await refresh();
});

const first = await refresh();
settings.elements.url.value = first?.url ?? "";
settings.elements.session.value = first?.session ?? "";
setInterval(() => void refresh(), REFRESH_MS);
