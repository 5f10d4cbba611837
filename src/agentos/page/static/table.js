// A table of any length that renders only the rows on the screen. Rows keep their elements, and so the focus.

import { h } from "./dom.js";

const OVERSCAN = 10;

// columns: {id, text, cell(row, td), class?, sort?(row)}. `height` is that of every row, in pixels.
export function virtualTable({ label, columns, height, onsort }) {
  const heads = columns.map((column) => h("th", { scope: "col", class: column.class ?? "" },
    column.sort ? h("button", { type: "button", class: "sort", onclick: () => onsort(column.id) }, column.text) : column.text));
  const top = h("tr", { class: "spacer", "aria-hidden": "true" }, h("td", { colspan: columns.length }));
  const bottom = h("tr", { class: "spacer", "aria-hidden": "true" }, h("td", { colspan: columns.length }));
  const body = h("tbody", {}, top, bottom);
  const table = h("table", { class: "items", "aria-label": label }, h("thead", {}, h("tr", {}, heads)), body);
  let rows = [];
  const shown = new Map();

  function range() {
    const from = Math.max(0, -body.getBoundingClientRect().top);
    const first = Math.max(0, Math.floor(from / height) - OVERSCAN);
    return [first, Math.min(rows.length, first + Math.ceil(window.innerHeight / height) + 2 * OVERSCAN)];
  }

  function draw() {
    const [first, last] = range();
    top.firstChild.style.height = `${first * height}px`;
    bottom.firstChild.style.height = `${Math.max(0, rows.length - last) * height}px`;
    top.hidden = first === 0;
    bottom.hidden = last >= rows.length;
    const wanted = new Set();
    let after = top;
    for (let index = first; index < last; index += 1) {
      const row = rows[index];
      wanted.add(row.item);
      const element = shown.get(row.item) ?? create(row.item);
      fillRow(element, row, index);
      if (after.nextSibling !== element) after.after(element);
      after = element;
    }
    for (const [item, element] of shown) {
      if (!wanted.has(item) && !element.contains(document.activeElement)) { element.remove(); shown.delete(item); }
    }
    table.setAttribute("aria-rowcount", String(rows.length + 1));
  }

  function create(item) {
    const element = h("tr", {}, columns.map((column) => h("td", { class: column.class ?? "" })));
    shown.set(item, element);
    return element;
  }

  function fillRow(element, row, index) {
    element.setAttribute("aria-rowindex", String(index + 2));
    columns.forEach((column, position) => column.cell(row, element.children[position]));
  }

  let scheduled = false;
  function schedule() {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => { scheduled = false; draw(); });
  }
  window.addEventListener("scroll", schedule, { passive: true });
  window.addEventListener("resize", schedule, { passive: true });
  return {
    element: table,
    setRows(next) { rows = next; schedule(); },
    markSort(id, isDown) {
      columns.forEach((column, index) => {
        if (column.id === id) heads[index].setAttribute("aria-sort", isDown ? "descending" : "ascending");
        else heads[index].removeAttribute("aria-sort");
      });
    },
    refresh: schedule,
    unmount() {
      window.removeEventListener("scroll", schedule);
      window.removeEventListener("resize", schedule);
    },
  };
}
