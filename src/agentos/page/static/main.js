// Starts the page: navigation between views, keyboard shortcuts, and the number of decisions that wait.

import { ApiError, get, path, post } from "./api.js";
import { ask, clear, h, runToastAction, toast } from "./dom.js";
import { initAttention, notifyWaiting } from "./attention.js";
import { runsView } from "./runs.js";
import { runView } from "./run.js";
import { itemView } from "./item.js";
import { decisionsView, gateOf } from "./decisions.js";
import { compareView } from "./compare.js";
import { machinesView } from "./machines.js";

const REVIEW_INTERVAL = 5000; // ms
const RETRY_INTERVAL = 3000; // ms after a view could not be opened because something does not answer
const SHORTCUTS = "agentos-shortcuts";
const MOVES = ["j", "k"];
const main = document.getElementById("main");
let current = { unmount() {} };
let waiting = 0;
let isFleet = false;
let retry = null;
let announced = new Set();
let pendingPrefix = false;

const routes = [
  [/^#\/runs\/([^/]+)\/items\/([^/]+)$/, (run, item) => itemView(main, run, item)],
  [/^#\/runs\/([^/]+)(?:\/(\w+))?$/, (run, tab) => runView(main, run, tab ?? "items")],
  [/^#\/decisions(?:\/([^/]+)(?:\/(.+))?)?$/, (item, project) => decisionsView(main, item ?? "", project ?? "", refreshWaiting)],
  [/^#\/compare\/([^/]+)\/([^/]+)$/, (first, second) => compareView(main, first, second)],
  [/^#\/machines$/, () => machinesView(main)],
  [/^#?\/?$/, () => runsView(main)],
];

// One view at a time: one that was left before its data arrived would draw over the next one.
let latest = Promise.resolve();
let shows = 0;
function show({ moveFocus = false } = {}) {
  const number = shows += 1;
  const { hash } = location;
  main.setAttribute("aria-busy", "true");
  latest = latest.then(() => (number === shows ? draw(hash, moveFocus) : null)).then(() => {
    if (number === shows) main.removeAttribute("aria-busy");
  });
  return latest;
}

async function draw(hash, moveFocus) {
  const found = routes.map(([pattern, view]) => [hash.match(pattern), view]).find(([match]) => match);
  current.unmount();
  clearTimeout(retry);
  drawNavigation();
  try {
    const [match, view] = found ?? [[""], () => runsView(main)];
    current = await view(...match.slice(1).map((part) => (part === undefined ? undefined : decodeURIComponent(part))));
  } catch (error) {
    current = { unmount() {} };
    showProblem(error);
    if (error.status === 0 || error.status === 503) retry = setTimeout(show, RETRY_INTERVAL);
  }
  const heading = main.querySelector("h1");
  // A screen reader starts with the new view; the first one is read from the top anyway.
  if (moveFocus && heading && document.activeElement === document.body) {
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
  }
}

function showProblem(error) {
  const isLoggedOut = error instanceof ApiError && error.status === 401;
  clear(main, h("section", { class: "card empty" },
    h("h1", {}, isLoggedOut ? "You are logged out" : "That did not work"),
    h("p", {}, isLoggedOut ? "Open the newest address that agentos page printed." : error.message),
    h("p", {}, h("a", { href: "#/" }, "All runs"))));
}

function drawNavigation() {
  const here = ["#/decisions", "#/machines"].find((route) => location.hash.startsWith(route)) ?? "#/";
  const entries = [["#/", "Runs", null], ["#/decisions", "Decisions", waiting || null], ...(isFleet ? [["#/machines", "Machines", null]] : [])];
  clear(document.getElementById("nav"), entries.map(([href, text, badge]) => h("a", { href, "aria-current": href === here ? "page" : null },
    text, badge ? h("span", { class: "badge", "aria-label": `${badge} waiting` }, String(badge)) : null)));
}

export async function refreshWaiting() {
  try {
    const answer = await get(path("reviews"));
    const undecided = answer.items.filter((item) => item.decision === null);
    const fresh = undecided.filter((item) => !announced.has(gateOf(item)));
    if (fresh.length) notifyWaiting(fresh);
    announced = new Set(undecided.map(gateOf));
    if (answer.waiting !== waiting || answer.is_fleet !== isFleet) {
      waiting = answer.waiting;
      isFleet = answer.is_fleet;
      drawNavigation();
    }
  } catch {
    // The view that is open says what is wrong.
  }
}

function shortcutsOn() {
  return localStorage.getItem(SHORTCUTS) !== "off";
}

function showHelp() {
  const rows = [
    ["g then r", "all runs"], ["g then d", "decisions"], ...(isFleet ? [["g then m", "machines"]] : []), ["/", "search"], ["j, k", "next, previous in a list"],
    ["Enter", "open"], ["a", "approve"], ["s", "send back"], ["e", "edit the draft"], ["r", "reject"], ["u", "undo, while it is offered"], ["?", "this list"],
  ];
  const dialog = h("dialog", { "aria-labelledby": "help-title" },
    h("h2", { id: "help-title" }, "Keyboard shortcuts"),
    h("dl", { class: "facts" }, rows.map(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)])),
    h("label", { class: "check" },
      h("input", { type: "checkbox", checked: shortcutsOn(), onchange: (event) => localStorage.setItem(SHORTCUTS, event.target.checked ? "on" : "off") }),
      " Shortcuts of a single letter"),
    h("div", { class: "row end" }, h("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "Close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

async function newLink() {
  try {
    const { url } = await post(path("links"), {});
    await ask({ title: "Another browser", text: `Open this address there. It works once: ${url}`, confirm: "Close" });
  } catch (error) {
    toast(error.message, null, "bad");
  }
}

async function logOut() {
  await post(path("logout"), {}).catch(() => {});
  localStorage.removeItem("agentos-session");
  showProblem(new ApiError(401, ""));
}

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, textarea, select, dialog, [contenteditable]");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !shortcutsOn()) return;
  if (event.repeat && !MOVES.includes(event.key)) return; // a key that is held down decides once
  if (event.key === "?") showHelp();
  else if (event.key === "u") runToastAction();
  else if (pendingPrefix && event.key === "r") location.hash = "#/";
  else if (pendingPrefix && event.key === "d") location.hash = "#/decisions";
  else if (pendingPrefix && isFleet && event.key === "m") location.hash = "#/machines";
  else if (event.key === "/" && main.querySelector("input[type=search]")) {
    main.querySelector("input[type=search]").focus();
    event.preventDefault();
  } else if (!pendingPrefix) current.onkey?.(event);
  pendingPrefix = event.key === "g";
});

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
clear(document.getElementById("bar-end"),
  initAttention(),
  h("button", { type: "button", class: "quiet icon", onclick: showHelp, "aria-label": "Keyboard shortcuts" }, "?"),
  h("button", { type: "button", class: "quiet wide-only", onclick: newLink }, "Another browser"),
  h("button", { type: "button", class: "quiet", onclick: logOut }, "Log out"));
window.addEventListener("hashchange", () => { document.activeElement?.blur?.(); show({ moveFocus: true }); });
setInterval(refreshWaiting, REVIEW_INTERVAL);
show().then(refreshWaiting);
