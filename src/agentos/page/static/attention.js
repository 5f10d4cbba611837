// Asks for attention without being looked at: the title, the favicon and, if wanted, notifications.

import { h } from "./dom.js";

const WANTED = "agentos-notifications";

export function showProgress(title, share, state) {
  document.title = title;
  document.getElementById("favicon").href = icon(share, state);
}

// A ring that fills, as a picture drawn here: nothing is loaded.
function icon(share, state) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 32;
  const context = canvas.getContext("2d");
  const colour = { killed: "#cc3311", paused: "#b35900", suspended: "#b35900", ended: "#1a7f37" }[state] ?? "#0969da";
  context.lineWidth = 7;
  context.strokeStyle = "#8b949e66";
  context.beginPath();
  context.arc(16, 16, 12, 0, 2 * Math.PI);
  context.stroke();
  context.strokeStyle = colour;
  context.beginPath();
  context.arc(16, 16, 12, -Math.PI / 2, -Math.PI / 2 + 2 * Math.PI * Math.max(0.02, share));
  context.stroke();
  return canvas.toDataURL("image/png");
}

export function initAttention() {
  if (!("Notification" in window)) return null;
  const button = h("button", { type: "button", class: "quiet", onclick: toggle });
  async function toggle() {
    const isOn = wanted();
    if (!isOn && (await Notification.requestPermission()) === "granted") localStorage.setItem(WANTED, "on");
    else localStorage.removeItem(WANTED);
    draw();
  }
  function draw() {
    button.setAttribute("aria-pressed", String(wanted()));
    button.textContent = wanted() ? "Notifications on" : "Notify me";
  }
  draw();
  return button;
}

function wanted() {
  return localStorage.getItem(WANTED) === "on" && Notification.permission === "granted";
}

function notify(title, body, tag) {
  if ("Notification" in window && wanted() && document.hidden) new Notification(title, { body, tag });
}

export function notifyEnd(run) {
  notify(run.state === "killed" ? "A run was killed" : "A run has ended", `${run.workflow}: ${run.done} of ${run.items} done`, `end-${run.run}`);
}

export function notifyWaiting(items) {
  const [first] = items;
  const more = items.length > 1 ? ` (and ${items.length - 1} more)` : "";
  notify("A decision is needed", `${first.item}: ${first.title}${more}`, `wait-${first.item}-${first.number}`);
}
