// One run: progress, controls, and a panel each for items, timeline, keys, log and events.

import { follow, get, now, path } from "./api.js";
import { announce, clear, command, h, setClass, setText, tabs } from "./dom.js";
import { cacheText, clock, dollars, duration, folderName, tokens, tone } from "./format.js";
import { notifyEnd, showProgress } from "./attention.js";
import { runControls } from "./controls.js";
import { itemsPanel } from "./items.js";
import { timelinePanel } from "./timeline.js";
import { keysPanel } from "./keys.js";
import { eventsPanel, logPanel } from "./log.js";

const PANELS = [
  { id: "items", text: "Items" }, { id: "timeline", text: "Timeline" }, { id: "keys", text: "Keys" },
  { id: "log", text: "Log" }, { id: "events", text: "Events" },
];
const HIDDEN_INTERVAL = 10000; // ms between looks while the page is in the background
const QUEUE_INTERVAL = 5000; // ms

export async function runView(main, id, tab) {
  const first = await get(path("runs", id));
  const store = { id, run: first.run, keys: first.keys, rows: new Map(), titles: first.titles, offset: first.offset, streamedTo: first.offset, readOnly: first.read_only, queue: null, listeners: new Set() };
  for (const row of first.rows) store.rows.set(row.item, row);
  const head = runHead(store);
  const panelBox = h("div", { id: "tab-panel", role: "tabpanel", tabindex: -1 });
  let panel = { update() {}, unmount() {} };
  const bar = tabs("Panels of the run", PANELS, tab, (chosen) => {
    history.replaceState(null, "", `#/runs/${encodeURIComponent(id)}${chosen === "items" ? "" : `/${chosen}`}`);
    openPanel(chosen);
  });
  clear(main, head.element, bar.element, panelBox);

  function openPanel(chosen) {
    panel.unmount();
    panelBox.setAttribute("aria-labelledby", `tab-${chosen}`);
    panel = { items: itemsPanel, timeline: timelinePanel, keys: keysPanel, log: logPanel, events: eventsPanel }[chosen](panelBox, store);
    panel.update([...store.rows.keys()]);
  }

  let scheduled = null;
  function merge(state) {
    const before = store.run.state;
    store.run = state.run;
    store.keys = state.keys;
    store.offset = state.offset;
    for (const row of state.rows) store.rows.set(row.item, row);
    if (before !== store.run.state) {
      announce(`The run is ${store.run.state}`);
      if (isOver(store.run)) {
        notifyEnd(store.run);
        loadQueue();
      }
    }
    scheduled ??= requestAnimationFrame(() => { scheduled = null; draw(state.rows.map((row) => row.item)); });
  }

  function draw(changed) {
    head.update();
    panel.update(changed);
  }

  // A run that is over does not know what was decided on its parked items since: the queue does.
  async function loadQueue() {
    if (!isOver(store.run) || !parkedItems(store).length) return;
    const answer = await get(path("reviews")).catch(() => null);
    if (answer) store.queue = answer.items.filter((entry) => entry.run === id);
    head.update();
  }

  let stream = null;
  let poll = null;
  function connect() {
    stream?.stop();
    stream = follow(id, store.streamedTo, {
      state: merge,
      journal: (entry, offset) => {
        store.streamedTo = offset;
        store.listeners.forEach((listener) => listener("journal", entry, offset));
      },
      output: (lines) => store.listeners.forEach((listener) => listener("output", lines)),
      connection: (isOpen) => head.connection(isOpen),
      end: () => { head.connection(true); look(); },
    });
  }
  function look() {
    return get(path("runs", id)).then(merge).catch(() => head.connection(false));
  }
  // A page in the background gives its connection back: a browser opens only six to one server.
  function onVisibility() {
    clearInterval(poll);
    if (document.hidden) {
      stream?.stop();
      poll = setInterval(() => isOver(store.run) || look(), HIDDEN_INTERVAL);
    } else if (!isOver(store.run) || store.streamedTo < store.offset) connect();
  }

  openPanel(PANELS.some((entry) => entry.id === tab) ? tab : "items");
  head.update();
  if (!isOver(store.run)) connect();
  loadQueue();
  const queueTimer = setInterval(loadQueue, QUEUE_INTERVAL);
  document.addEventListener("visibilitychange", onVisibility);
  const ticking = setInterval(() => { head.update(); panel.tick?.(); }, 1000);
  return {
    unmount() {
      stream?.stop();
      clearInterval(poll);
      clearInterval(ticking);
      clearInterval(queueTimer);
      panel.unmount();
      document.removeEventListener("visibilitychange", onVisibility);
    },
    onkey: (event) => panel.onkey?.(event),
  };
}

export function isOver(run) {
  return ["ended", "killed"].includes(run.state);
}

function parkedItems(store) {
  return [...store.rows.values()].filter((row) => row.state === "parked").map((row) => row.item);
}

// What to type next; of a run that ended well with parked items, only as long as these wait for it.
function nextSteps(run, queue, undecided) {
  if (!queue || run.state !== "ended" || run.exit_code || undecided.length) return run.next ?? [];
  return queue.length ? run.next.slice(-1) : [];
}

function runHead(store) {
  const pill = h("span", { class: "pill", "data-test": "run-state" });
  const title = h("h1", {});
  const where = h("p", { class: "quiet ellipsis" });
  const bar = h("progress", { max: 1, value: 0, "aria-label": "Items done" });
  const progress = h("strong", { class: "number", "data-test": "progress" });
  const figures = h("dl", { class: "figures" });
  const notices = h("div", { class: "notices" });
  const offline = h("span", { class: "pill bad", role: "status", hidden: true }, "not connected, trying again");
  const controls = runControls(store);
  const values = new Map();
  for (const name of ["left", "time", "cost", "tokens", "cache", "workers", "refusals"]) {
    const value = h("dd", { class: "number" });
    values.set(name, value);
    figures.append(h("div", {}, h("dt", {}, { left: "Time left", time: "Time", cost: "Cost", tokens: "Tokens", cache: "Prompt cache", workers: store.run.is_fleet ? "Items at work" : "Workers busy", refusals: "Refusals (429)" }[name]), value));
  }
  const element = h("section", { class: "card run-head" },
    h("div", { class: "row between" },
      h("div", { class: "grow" }, h("div", { class: "row" }, title, pill, offline), where),
      controls.element),
    h("div", { class: "row" }, bar, progress),
    figures, notices);
  let noticeText = "";

  return {
    element,
    connection(isOpen) { offline.hidden = isOpen || isOver(store.run); },
    update() {
      const run = store.run;
      setText(title, `${run.workflow ?? "run"} in ${folderName(run.project)}`);
      setText(where, `${run.run} · ${run.folder ?? ""}`);
      setClass(pill, `pill ${run.state === "ended" && run.exit_code ? "warn" : tone(run.state)}`);
      setText(pill, run.state === "ended" && run.exit_code ? `ended, exit ${run.exit_code}` : run.state);
      const share = run.items ? run.done / run.items : 0;
      bar.value = share;
      setText(progress, `${run.done ?? 0} of ${run.items}`);
      const seconds = isOver(run) ? run.seconds : now() - run.began;
      setText(values.get("time"), duration(seconds));
      setText(values.get("left"), isOver(run) ? "-" : run.seconds_left === null ? "?" : `about ${duration(run.seconds_left)}`);
      setText(values.get("cost"), run.expected_cost && run.cost ? `${dollars(run.cost)} of about ${dollars(run.expected_cost)}` : dollars(run.cost));
      setText(values.get("tokens"), run.usage ? tokens(run.usage.input_tokens + run.usage.output_tokens) : "0");
      const cache = run.usage ? cacheText(run.usage.cache_read_tokens, run.usage.cache_write_tokens) : "";
      setText(values.get("cache"), cache);
      values.get("cache").parentElement.hidden = !cache;
      setText(values.get("workers"), isOver(run) ? "-" : run.is_fleet ? String(run.running) : `${run.running} of ${run.workers}`);
      setText(values.get("refusals"), String(run.refusals ?? 0));
      controls.update();
      drawNotices(run);
      showProgress(`${run.state === "running" ? "" : `${run.state} `}${run.done}/${run.items} ${run.workflow} - agentos`, share, run.state);
    },
  };

  function drawNotices(run) {
    const undecided = store.queue?.filter((entry) => entry.decision === null).map((entry) => entry.item) ?? parkedItems(store);
    const next = nextSteps(run, store.queue, undecided);
    const key = JSON.stringify([next, run.unreadable_lines, run.breakers, run.alerts, run.problem, undecided, run.state]);
    if (key === noticeText) return;
    noticeText = key;
    clear(notices,
      run.problem ? notice("bad", run.problem) : null,
      undecided.length ? notice("warn", `${undecided.slice(0, 5).join(", ")}${undecided.length > 5 ? ` and ${undecided.length - 5} more` : ""} ${undecided.length === 1 ? "is" : "are"} waiting for a decision. `, h("a", { href: "#/decisions", class: "button" }, `Decide (${undecided.length})`)) : null,
      run.state === "suspended" ? notice("warn", "The run is suspended (Ctrl-Z). Type fg in its terminal.") : null,
      (run.breakers ?? []).map((span) => notice("bad", `${span.label} has been failing for all calls since ${clock(span.began)}; calls are held back until a probe succeeds.`)),
      (run.alerts ?? []).map((span) => notice("warn", span.kind === "pool exhausted" ? "All keys are in use: calls wait for one." : "All keys are rate limited: calls wait.")),
      run.unreadable_lines ? notice("warn", `${run.unreadable_lines} lines of the journal cannot be read and are left out.`) : null,
      next.map((text) => commandNotice(run, text)));
  }
}

function notice(kind, ...content) {
  return h("p", { class: `notice ${kind}` }, content);
}

// The sentences here end with a command.
function commandNotice(run, text) {
  const kind = run.state === "killed" ? "bad" : run.exit_code ? "warn" : "plain";
  const at = text.search(/: \S/);
  return at < 0 ? notice(kind, text) : notice(kind, text.slice(0, at + 2), command(text.slice(at + 2)));
}
