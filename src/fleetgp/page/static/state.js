// What the server tells: a whole picture first, then patches (RFC 7396).
export function merge(state, patch) {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const result = state && typeof state === "object" && !Array.isArray(state) ? { ...state } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete result[key];
    else result[key] = merge(result[key], value);
  }
  return result;
}

// Calls changed(state, keys) for each message, and lost() when the stream breaks; the browser opens it again by itself.
export function follow(changed, lost) {
  let state = {};
  const stream = new EventSource("/stream");
  stream.addEventListener("whole", (event) => {
    state = JSON.parse(event.data);
    changed(state, new Set(Object.keys(state)));
  });
  stream.addEventListener("patch", (event) => {
    const patch = JSON.parse(event.data);
    state = merge(state, patch);
    changed(state, new Set(Object.keys(patch)));
  });
  stream.addEventListener("error", async () => {
    lost();
    if (stream.readyState !== EventSource.CLOSED) return;
    const answer = await fetch("/stream", { method: "HEAD" }).catch(() => null);
    if (answer && answer.status === 401) location.assign("/login");
    else setTimeout(() => follow(changed, lost), 3000);
  });
}

// One request that does something: its answer, or an error with the server's words.
export async function send(path, content) {
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content) })
    .catch(() => { throw new Error("The page's own server does not answer: is `fleetgp watch` still running?"); });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error);
  return told;
}
