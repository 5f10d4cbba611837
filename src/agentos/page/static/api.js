// The JSON API and its event stream.

const KEY = "agentos-session";
let clockOffset = 0; // seconds to add to this browser's clock to get the server's

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function now() {
  return Date.now() / 1000 + clockOffset;
}

export function noteServerTime(seconds) {
  clockOffset = seconds - Date.now() / 1000;
}

function headers(more = {}) {
  return { "x-agentos-session": localStorage.getItem(KEY) ?? "", ...more };
}

async function send(path, options) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: headers(options.headers), cache: "no-store" });
  } catch {
    throw new ApiError(0, "the page's server does not answer; start it again with: agentos page");
  }
  const answer = await response.json().catch(() => ({ error: `HTTP ${response.status}` }));
  if (!response.ok) throw new ApiError(response.status, answer.error ?? `HTTP ${response.status}`);
  if (typeof answer.now === "number") noteServerTime(answer.now);
  return answer;
}

export function get(path) {
  return send(path, {});
}

export function post(path, body) {
  return send(path, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } });
}

export function path(...parts) {
  return `/api/${parts.map(encodeURIComponent).join("/")}`;
}

// Follows a run. EventSource cannot send the session's header, so this reads the stream itself: with Last-Event-ID
// after each break, so that no event is missed. `on` has a function per event name, and `connection(isOpen)`.
export function follow(run, after, on) {
  let last = String(after);
  let stopped = false;
  let controller = null;
  let wake = () => {};

  async function loop() {
    let delay = 500;
    while (!stopped) {
      try {
        await read();
        delay = 500;
      } catch (error) {
        if (stopped) return;
        if (error instanceof ApiError && error.status === 401) { on.loggedOut?.(); return; }
      }
      if (stopped) return;
      on.connection?.(false);
      await new Promise((resolve) => { wake = resolve; setTimeout(resolve, delay); });
      delay = Math.min(delay * 2, 10000);
    }
  }

  async function read() {
    controller = new AbortController();
    const response = await fetch(`${path("runs", run, "events")}?output=1`, {
      headers: headers({ "last-event-id": last }), signal: controller.signal, cache: "no-store",
    });
    if (!response.ok) throw new ApiError(response.status, "");
    on.connection?.(true);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      const messages = rest.split("\n\n");
      rest = messages.pop();
      for (const message of messages) handle(message);
      if (stopped) return;
    }
  }

  function handle(message) {
    let name = "message";
    let data = "";
    for (const line of message.split("\n")) {
      if (line.startsWith("id: ")) last = line.slice(4);
      else if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (name === "end") { stopped = true; on.end?.(); return; }
    if (!data) return;
    const value = JSON.parse(data);
    if (typeof value.now === "number") noteServerTime(value.now);
    on[name]?.(value, Number(last));
  }

  loop();
  return {
    stop() { stopped = true; controller?.abort(); wake(); },
  };
}
