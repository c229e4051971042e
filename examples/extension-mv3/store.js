// What outlives the worker, and what does not outlive the browser: everything is in `storage.session`, which is memory
// that no page and no content script reads. Only the gateway's address is kept on disk.

const EMPTY = { session: "", token: "", registration: null, seq: null, consent: {} };

/** `{url, session, token, registration, seq, consent}`; consent is `{tab id: origin}`. */
export async function load() {
  const [{ url = "" }, kept] = await Promise.all([chrome.storage.local.get("url"), chrome.storage.session.get(null)]);
  return { url, ...EMPTY, ...kept };
}

export async function save({ url, ...rest }) {
  if (url !== undefined) await chrome.storage.local.set({ url });
  if (Object.keys(rest).length) await chrome.storage.session.set(rest);
}
