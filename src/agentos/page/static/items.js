// The items of a run as a table that follows the run.

import { now } from "./api.js";
import { clear, h, setClass, setText } from "./dom.js";
import { cacheText, dollars, duration, stateText, tokens, tone } from "./format.js";
import { canRetry, retryItem } from "./controls.js";
import { virtualTable } from "./table.js";

const ROW_HEIGHT = 41; // pixels, as in the stylesheet
const GROUPS = [
  ["all", "All", () => true], ["running", "Running", (row) => row.running], ["parked", "For you", (row) => row.state === "parked"],
  ["failed", "Failed", (row) => ["failed", "failed in another run", "killed"].includes(row.state)],
  ["waiting", "Waiting", (row) => row.state === "waiting" || row.state === "not started" || row.state === "interrupted"],
  ["done", "Done", (row) => ["approved", "needs revision", "finished", "finished by another run"].includes(row.state)],
];

export function age(row) {
  return row.seconds + (row.running ? Math.max(0, now() - row.since) : 0);
}

function waitText(row) {
  if (row.quiet) return row.quiet;
  if (!row.wait) return row.keys.length ? `calling with ${row.keys.join(", ")}` : "";
  const detail = row.wait.reason === "waiting to retry" && row.wait.detail ? `: ${row.wait.detail}` : "";
  return `${row.wait.reason}${detail}`;
}

export function itemsPanel(box, store) {
  const isRetryable = (row) => canRetry(row, store.run, store.readOnly);
  const state = { text: "", group: "all", sort: "", isDown: false };
  const link = (row, cell) => {
    const href = `#/runs/${encodeURIComponent(store.id)}/items/${encodeURIComponent(row.item)}`;
    if (cell.firstChild?.getAttribute?.("href") !== href) clear(cell, h("a", { href, class: "item-link" }, row.item));
  };
  const columns = [
    { id: "item", text: "Item", class: "item-cell", cell: link, sort: (row) => row.index },
    { id: "title", text: "Title", class: "title-cell", cell: (row, cell) => { setText(cell, store.titles[row.item] ?? ""); cell.title = store.titles[row.item] ?? ""; } },
    { id: "state", text: "State", class: "state-cell", sort: (row) => row.state, cell: (row, cell) => {
      if (!cell.firstChild) cell.append(h("span"));
      setClass(cell.firstChild, `pill ${row.quiet ? "warn" : tone(row.state)}`);
      setText(cell.firstChild, row.quiet ? `${stateText(row.state)}, ${row.quiet}` : stateText(row.state));
    } },
    { id: "node", text: "Node", class: "wide-cell", cell: (row, cell) => setText(cell, row.running ? row.node || "starting" : "") },
    { id: "round", text: "Round", class: "number wide-cell", sort: (row) => row.round, cell: (row, cell) => setText(cell, row.round ? String(row.round) : "") },
    { id: "wait", text: "Now", class: "wait-cell wide-cell", cell: (row, cell) => {
      const text = row.error ?? waitText(row);
      setText(cell, text);
      cell.title = text;
      setClass(cell, `wait-cell wide-cell ${row.quiet ? "warn-text" : row.error ? "bad-text" : "quiet"}`);
    } },
    { id: "calls", text: "Calls", class: "number extra-cell", sort: (row) => row.calls, cell: (row, cell) => setText(cell, String(row.calls)) },
    { id: "tokens", text: "Tokens", class: "number extra-cell", sort: (row) => row.tokens, cell: (row, cell) => {
      setText(cell, tokens(row.tokens));
      cell.title = cacheText(row.cache_read_tokens, row.cache_write_tokens);
    } },
    { id: "cost", text: "Cost", class: "number extra-cell cost-cell", sort: (row) => row.cost ?? 0, cell: (row, cell) => setText(cell, dollars(row.cost)) },
    { id: "age", text: "Time", class: "number time-cell", sort: age, cell: (row, cell) => setText(cell, row.attempts || row.running ? duration(age(row)) : "") },
    { id: "act", text: h("span", { class: "visually-hidden" }, "Actions"), class: "act-cell", cell: (row, cell) => {
      const isWanted = isRetryable(row);
      if (isWanted && !cell.firstChild) cell.append(h("button", { type: "button", class: "small", "aria-label": `Retry ${row.item}`, onclick: () => retryItem(store.id, row.item) }, "Retry"));
      else if (!isWanted && cell.firstChild) clear(cell);
    } },
  ];
  const table = virtualTable({ label: "Items", columns, height: ROW_HEIGHT, onsort: sortBy });
  const search = h("input", { type: "search", id: "item-search", placeholder: "Search items", oninput: (event) => { state.text = event.target.value.toLowerCase(); draw(); } });
  const chips = GROUPS.map(([id, text]) => h("button", { type: "button", class: "chip", "aria-pressed": String(id === "all"), onclick: () => choose(id) }, text));
  const empty = h("p", { class: "quiet empty", hidden: true }, "No item matches.");
  clear(box,
    h("div", { class: "toolbar" }, h("label", { class: "visually-hidden", for: "item-search" }, "Search items"), search,
      h("div", { class: "chips", role: "group", "aria-label": "Filter by state" }, chips)),
    h("div", { class: "card flush" }, table.element, empty));

  [...store.rows.values()].forEach((row, index) => { row.index ??= index; });

  function choose(id) {
    state.group = id;
    GROUPS.forEach(([group], index) => chips[index].setAttribute("aria-pressed", String(group === id)));
    draw();
  }

  function sortBy(id) {
    if (state.sort === id && state.isDown) Object.assign(state, { sort: "", isDown: false });
    else Object.assign(state, { isDown: state.sort === id, sort: id });
    table.markSort(state.sort, state.isDown);
    draw();
  }

  function draw() {
    const all = [...store.rows.values()];
    GROUPS.forEach(([, text, test], index) => setText(chips[index], `${text} ${all.filter(test).length}`));
    const test = GROUPS.find(([id]) => id === state.group)[2];
    let rows = all.filter((row) => test(row) && `${row.item} ${store.titles[row.item] ?? ""} ${row.state}`.toLowerCase().includes(state.text));
    const column = columns.find((entry) => entry.id === state.sort);
    if (column) {
      const sign = state.isDown ? -1 : 1;
      rows = rows.map((row) => [column.sort(row), row]).sort(([a], [b]) => (a < b ? -sign : a > b ? sign : 0)).map(([, row]) => row);
    }
    empty.hidden = rows.length > 0;
    table.element.classList.toggle("no-actions", !all.some(isRetryable));
    table.setRows(rows);
  }

  let first = true;
  return {
    update(changed) { if (first || changed.length) draw(); first = false; },
    tick: table.refresh,
    unmount: table.unmount,
    onkey(event) {
      const links = [...box.querySelectorAll("a.item-link")];
      const step = { j: 1, k: -1 }[event.key];
      if (step && links.length) links[Math.min(links.length - 1, Math.max(0, links.indexOf(document.activeElement) + step))].focus();
    },
  };
}
