// The log of a run in words, and every event behind it. Both keep the newest lines and draw at most a few times a second.

import { follow, get, path } from "./api.js";
import { clear, h } from "./dom.js";
import { clock } from "./format.js";

const MOST = 2000; // lines kept
const DRAW_INTERVAL = 200; // ms
const RECENT = 200000; // bytes of the journal before now
const LINE = 20; // pixels, about
const LEVELS = ["info", "warning", "error"];

// A list that follows its end until the reader scrolls up.
export function lineList(label, render) {
  const list = h("div", { class: "lines", tabindex: 0, role: "log", "aria-live": "off", "aria-label": label });
  let waiting = [];
  let timer = null;
  let isFollowing = true;
  let onfollow = () => {};
  list.addEventListener("scroll", () => {
    const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < LINE;
    if (list.clientHeight && isAtEnd !== isFollowing) follow(isAtEnd);
  }, { passive: true });
  function follow(isOn) {
    isFollowing = isOn;
    if (isOn) list.scrollTop = list.scrollHeight;
    onfollow(isOn);
  }
  function flush() {
    timer = null;
    const added = waiting.slice(-MOST).map(render);
    waiting = [];
    list.append(...added);
    while (list.children.length > MOST) list.firstChild.remove();
    if (isFollowing) list.scrollTop = list.scrollHeight;
  }
  return {
    element: list,
    add(lines) {
      waiting.push(...lines);
      timer ??= setTimeout(flush, DRAW_INTERVAL);
    },
    reset(lines) { waiting = []; clear(list); waiting.push(...lines); flush(); },
    follow,
    set onfollow(tell) { onfollow = tell; },
    stop() { clearTimeout(timer); },
  };
}

export function logLine(line) {
  return h("div", { class: `line ${line.level}` },
    h("time", {}, line.at ? clock(line.at) : ""), h("span", { class: "line-item" }, line.item || "coordinator"),
    line.level === "info" ? null : h("span", { class: `pill ${line.level === "error" ? "bad" : "warn"}` }, line.level),
    h("span", { class: "line-text" }, line.text));
}

export function followToggle(list) {
  const box = h("input", { type: "checkbox", checked: true, onchange: () => list.follow(box.checked) });
  list.onfollow = (isOn) => { box.checked = isOn; };
  return h("label", { class: "check" }, box, " Follow");
}

export function logPanel(box, store) {
  const wanted = { item: "", level: "" };
  const list = lineList("Log", logLine);
  const items = h("select", { id: "log-item", onchange: (event) => { wanted.item = event.target.value; load(); } },
    h("option", { value: "" }, "everything"), [...store.rows.keys()].map((item) => h("option", { value: item }, item)));
  const level = h("select", { id: "log-level", onchange: (event) => { wanted.level = event.target.value; load(); } },
    h("option", { value: "" }, "any level"), h("option", { value: "warning" }, "warnings and errors"), h("option", { value: "error" }, "errors"));
  const output = h("input", { type: "checkbox", checked: true });
  clear(box,
    h("div", { class: "toolbar" },
      h("label", { for: "log-item" }, "Item"), items, h("label", { for: "log-level" }, "Level"), level,
      h("label", { class: "check" }, output, " Output of workers"), followToggle(list)),
    h("div", { class: "card flush" }, list.element));

  function matches(line) {
    return (!wanted.item || line.item === wanted.item) && (!wanted.level || LEVELS.indexOf(line.level) >= LEVELS.indexOf(wanted.level));
  }

  // The lines so far come in one answer; what the stream brings in the meantime is added after it, each line once.
  let loads = 0;
  let loadedTo = null;
  let early = [];
  async function load() {
    const number = loads += 1;
    const query = new URLSearchParams({ item: wanted.item, level: wanted.level, limit: "1000" });
    loadedTo = null;
    early = [];
    let answer;
    try {
      answer = await get(`${path("runs", store.id, "log")}?${query}`);
    } catch (error) {
      answer = { offset: store.offset, lines: [{ at: 0, item: "page", level: "error", text: error.message }] };
    }
    if (number !== loads) return;
    list.reset(answer.lines);
    loadedTo = answer.offset;
    for (const [line, offset] of early) addLine(line, offset);
  }

  function addLine(line, offset) {
    if (loadedTo === null) early.push([line, offset]);
    else if (offset > loadedTo && matches(line)) list.add([line]);
  }

  function listen(kind, value, offset) {
    if (kind === "journal" && value.log) addLine(value.log, offset);
    // What a worker prints repeats the start of its nodes, which the journal has with its time.
    if (kind === "output" && output.checked) list.add(value.filter((line) => matches(line) && !line.text.startsWith(">>> Executing")));
  }
  store.listeners.add(listen);
  load();
  return { update() {}, unmount() { store.listeners.delete(listen); list.stop(); } };
}

export function eventsPanel(box, store) {
  const list = lineList("Events", (entry) => h("div", { class: "line" },
    h("time", {}, clock(entry.event.at)), h("span", { class: "line-item" }, entry.event.type),
    h("code", { class: "line-text" }, fields(entry.event))));
  const show = h("input", { type: "checkbox", checked: false });
  let stream = null;
  show.addEventListener("change", () => {
    stream?.stop();
    list.element.hidden = !show.checked;
    if (!show.checked) return;
    list.reset([]);
    stream = follow(store.id, Math.max(0, store.offset - RECENT), { journal: (entry) => list.add([entry]) });
  });
  list.element.hidden = true;
  clear(box,
    h("div", { class: "toolbar" }, h("label", { class: "check" }, show, " Show every event"), followToggle(list)),
    h("p", { class: "quiet" }, "The run's journal, live and from shortly before you opened it. The whole journal is events.jsonl in the run's folder."),
    h("div", { class: "card flush" }, list.element));
  return { update() {}, unmount() { stream?.stop(); list.stop(); } };
}

function fields(event) {
  return Object.entries(event).filter(([name]) => !["at", "type"].includes(name)).map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`).join(" ");
}
