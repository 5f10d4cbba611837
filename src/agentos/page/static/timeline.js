// The timeline of a run: a bar per item with its nodes in colours, keys below; only the lanes on the screen are drawn.

import { get, path } from "./api.js";
import { clear, h, svg } from "./dom.js";
import { count, duration } from "./format.js";

const LANE = 24; // pixels
const BAR = 14;
const TOP = 26;
const STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
const COLOURS = 8;
const PAUSES = ["run paused", "run suspended"];
const STYLES = {
  running: "work", "waiting to retry": "again", "waiting for a key": "waiting", "rate limited": "resting", "exhausted for the day": "resting",
  quarantined: "resting", call: "call", "refused call": "refused", "failed call": "refused",
};

export function timelinePanel(box, store) {
  const scroller = h("div", { class: "card flush timeline", tabindex: 0, role: "region", "aria-label": "Timeline of the items" });
  const keys = h("div", { class: "card flush timeline-keys" });
  const legend = h("ul", { class: "legend" });
  const words = h("p", { class: "quiet" });
  clear(box, words, legend, scroller, h("h2", {}, "Keys"), keys);
  const canvas = h("div", { class: "timeline-canvas" });
  scroller.append(canvas);
  let busy = false;
  let wanted = false;

  async function load() {
    if (busy) { wanted = true; return; }
    busy = true;
    const first = Math.max(0, Math.floor(scroller.scrollTop / LANE) - 5);
    const lanes = Math.ceil(scroller.clientHeight / LANE || 30) + 10;
    try {
      draw(await get(`${path("runs", store.id, "timeline")}?from=${first}&count=${lanes}`));
    } catch {
      // The head of the run says that the connection is gone.
    }
    busy = false;
    if (wanted) { wanted = false; load(); }
  }

  function draw(data) {
    const width = Math.max(320, scroller.clientWidth - 2);
    const labels = width < 600 ? 84 : 130;
    const axis = { began: data.began, seconds: Math.max(0.1, data.last - data.began), left: labels, width: width - labels - 16 };
    canvas.style.height = `${TOP + data.total * LANE + 8}px`;
    const nodes = new Map(data.nodes.map((name, index) => [name, `n${index % COLOURS}`]));
    const picture = newPicture(width, TOP + data.items.length * LANE + 8, "Items over time");
    picture.style.top = `${data.first * LANE}px`;
    ticks(picture, axis, TOP + data.items.length * LANE);
    for (const span of data.run.spans.filter((each) => PAUSES.includes(each.kind))) picture.append(bar(span, axis, "pause", TOP - 4, data.items.length * LANE + 4, data));
    data.items.forEach((lane, index) => drawLane(picture, lane, axis, TOP + index * LANE, nodes, data));
    clear(canvas, picture);
    const lower = newPicture(width, TOP + data.keys.length * LANE + 8, "Keys over time");
    ticks(lower, axis, TOP + data.keys.length * LANE);
    for (const span of data.run.spans.filter((each) => !PAUSES.includes(each.kind))) lower.append(bar(span, axis, span.kind === "pool exhausted" ? "full" : "limited", TOP - 4, data.keys.length * LANE + 4, data));
    data.keys.forEach((lane, index) => drawLane(lower, lane, axis, TOP + index * LANE, nodes, data));
    clear(keys, lower);
    words.textContent = `${count(data.total, "item")} in ${duration(axis.seconds)}, a bar each, coloured by node. Below: the calls made with ${count(data.keys.length, "key")}. The other panels show the same as text.`;
    const entries = [...nodes.entries(), ["worker starting", "work"], ["waiting for a key", "waiting"], ["call", "call"], ["refused or failed call", "refused"], ["key unavailable", "resting"], ["pool exhausted, calls wait", "full"], ["all keys limited, or provider failing", "limited"], ["run paused", "pause"]];
    if (legend.children.length !== entries.length) clear(legend, entries.map(([name, style]) => h("li", {}, h("span", { class: `swatch ${style}` }), name)));
  }

  scroller.addEventListener("scroll", load, { passive: true });
  window.addEventListener("resize", load, { passive: true });
  const timer = setInterval(() => { if (!["ended", "killed"].includes(store.run.state)) load(); }, 1500);
  load();
  return {
    update() {},
    unmount() {
      clearInterval(timer);
      window.removeEventListener("resize", load);
    },
  };
}

function newPicture(width, height, label) {
  return svg("svg", { class: "tl", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
}

function x(axis, at) {
  return axis.left + (Math.min(axis.seconds, Math.max(0, at - axis.began)) / axis.seconds) * axis.width;
}

function ticks(picture, axis, bottom) {
  const most = axis.width < 400 ? 4 : 10;
  const step = STEPS.find((seconds) => axis.seconds / seconds <= most) ?? 86400 * Math.ceil(axis.seconds / 86400 / most);
  for (let at = 0; at <= axis.seconds; at += step) {
    const left = x(axis, axis.began + at);
    picture.append(svg("line", { class: "tick", x1: left, y1: 20, x2: left, y2: bottom }), svg("text", { class: "quiet mid", x: left, y: 14 }, label(at)));
  }
}

function label(seconds) {
  if (seconds < 60) return seconds ? `${Math.round(seconds * 10) / 10}s` : "0";
  const minutes = Math.floor(Math.round(seconds) / 60);
  const rest = String(Math.round(seconds) % 60).padStart(2, "0");
  return minutes < 60 ? `${minutes}:${rest}` : `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest}`;
}

function drawLane(picture, lane, axis, y, nodes, data) {
  picture.append(svg("text", { x: 8, y: y + 12 }, lane.name.length > 15 ? `${lane.name.slice(0, 14)}…` : lane.name));
  for (const span of lane.spans) {
    const style = span.kind === "node" ? nodes.get(span.label) ?? "n0" : STYLES[span.kind] ?? "work";
    const isSlim = ["work", "again"].includes(style);
    const isCall = ["call", "refused"].includes(style);
    picture.append(bar(span, axis, style, isSlim ? y + 4 : isCall ? y + 3 : y, isSlim ? 6 : isCall ? BAR - 6 : BAR, data));
  }
}

function bar(span, axis, style, y, height, data) {
  const end = Math.min(span.ended ?? data.last, data.last);
  const left = x(axis, span.began);
  const detail = span.label && span.kind !== "node" ? ` (${span.label})` : "";
  const name = span.kind === "node" ? span.label : span.kind;
  return svg("rect", { class: style, x: left.toFixed(1), y, width: Math.max(1.2, x(axis, end) - left).toFixed(1), height, rx: 2 },
    svg("title", {}, `${name}${detail}: ${duration(end - span.began)}${span.ended === null ? ", not over" : ""}`));
}
