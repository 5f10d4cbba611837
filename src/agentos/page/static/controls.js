// Pause, resume, stop, parallelism: the same requests as from another terminal, each with undo or a confirmation.

import { path, post } from "./api.js";
import { ask, h, toast } from "./dom.js";
import { count } from "./format.js";

// Whether a failed item can be tried again from here: a run must be in progress for that, a fleet always is.
export function canRetry(row, run, readOnly) {
  return row.retryable && !readOnly && (run.is_fleet || !["ended", "killed"].includes(run.state));
}

export async function request(run, body) {
  try {
    const answer = await post(path("runs", run, "requests"), body);
    return { changed: answer.changed, next: answer.run, text: answer.texts.join(" ") || "The run is already in that state." };
  } catch (error) {
    return { changed: false, text: error.message, isError: true };
  }
}

async function send(run, body, undo = null) {
  const { changed, text, isError } = await request(run, body);
  toast(text, changed && undo ? { label: "Undo", run: () => send(run, undo) } : null, isError ? "bad" : "");
}

export async function retryItem(run, item) {
  const answer = await ask({ title: `Retry ${item}?`, text: "It continues from its checkpoint and makes new model calls.", confirm: "Retry" });
  if (answer === null) return;
  const { changed, text, isError, next } = await request(run, { type: "retry_requested", item });
  const see = next && { label: `See ${next}`, run: () => { location.hash = `#/runs/${encodeURIComponent(next)}`; } };
  toast(text, changed ? see : null, isError ? "bad" : "");
}

// A control that this kind of run does not have stays where it is, and says why.
function limit(button, reason) {
  button.setAttribute("aria-disabled", "true");
  button.title = reason;
}

function isLimited(button) {
  if (button.getAttribute("aria-disabled") !== "true") return false;
  toast(button.title, null, "bad");
  return true;
}

export function runControls(store) {
  const { id } = store;
  const pause = h("button", { type: "button", "data-test": "pause", onclick: () => isLimited(pause) || send(id, { type: "pause_requested", now: false }, { type: "resume_requested" }) }, "Pause");
  const resume = h("button", { type: "button", class: "primary", "data-test": "resume", onclick: () => send(id, { type: "resume_requested" }, { type: "pause_requested", now: false }) }, "Resume");
  const stop = h("button", { type: "button", class: "danger", "data-test": "stop", onclick: stopRun }, "Stop");
  const fewer = h("button", { type: "button", "aria-label": "One worker fewer", onclick: () => isLimited(fewer) || change(-1) }, "−");
  const more = h("button", { type: "button", "aria-label": "One worker more", onclick: () => isLimited(more) || change(1) }, "+");
  const workers = h("output", { class: "number", "aria-live": "polite" });
  const group = h("div", { class: "stepper", role: "group", "aria-label": "Workers" }, fewer, workers, more);
  const limits = store.run.limits ?? {};
  if (limits.workers) for (const button of [fewer, more]) limit(button, limits.workers);
  if (limits.pause) limit(pause, limits.pause);
  const element = h("div", { class: "row controls", role: "group", "aria-label": "Control the run" }, group, pause, resume, stop);

  async function stopRun() {
    const answer = await ask({
      title: "Stop the run?", danger: true, confirm: "Stop the run",
      text: store.run.is_fleet
        ? "Its items are checkpointed and leave their machines. Submit them again to continue."
        : "Workers save their work and end within 5 s. The command that started the run resumes it.",
    });
    if (answer !== null) await send(id, { type: "stop_requested", signal: "SIGTERM" });
  }

  function change(step) {
    const before = store.run.workers;
    send(id, { type: "worker_count_requested", workers: before + step }, { type: "worker_count_requested", workers: before });
  }

  return {
    element,
    update() {
      const { state } = store.run;
      const isLive = !["ended", "killed"].includes(state);
      element.hidden = store.readOnly || !isLive;
      pause.hidden = state !== "running";
      resume.hidden = state !== "paused";
      stop.disabled = state === "stopping";
      workers.textContent = store.run.is_fleet ? "workers" : count(store.run.workers ?? 0, "worker") + (store.run.auto_workers ? " (auto)" : "");
      fewer.disabled = !limits.workers && (store.run.workers ?? 1) <= 1;
    },
  };
}
