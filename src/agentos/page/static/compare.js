// Two runs side by side.

import { get, path } from "./api.js";
import { clear, h } from "./dom.js";
import { dollars, duration } from "./format.js";
import { showProgress } from "./attention.js";

const TIMES = ["time", "waited_for_keys"];

export async function compareView(main, first, second) {
  const answer = await get(`${path("compare")}?first=${encodeURIComponent(first)}&second=${encodeURIComponent(second)}`);
  showProgress("Comparison - agentos", 1, "ended");
  const rows = Object.entries(answer.figures).map(([name, [before, after]]) => h("tr", {},
    h("th", { scope: "row" }, name.replaceAll("_", " ")),
    h("td", { class: "number" }, show(name, before)), h("td", { class: "number" }, show(name, after)),
    h("td", { class: "number quiet" }, difference(before, after))));
  clear(main,
    h("div", { class: "head" }, h("h1", {}, "Two runs compared"), h("a", { href: "#/" }, "All runs")),
    h("div", { class: "card scroll flush compare", tabindex: 0, role: "region", "aria-label": "Figures of both runs" },
      h("table", { class: "plain-table" },
        h("thead", {}, h("tr", {}, ["", "first", "second", "change"].map((text) => h("th", { scope: "col", class: text && "number" }, text || h("span", { class: "visually-hidden" }, "figure"))))),
        h("tbody", {}, rows))),
    h("h2", {}, resultsHeading(answer)),
    answer.different.length ? h("ul", {}, answer.different.map((item) => h("li", {}, `${item.item}: ${item.results[0]}, then ${item.results[1]}`))) : null);
  return { unmount() {} };
}

function resultsHeading(answer) {
  if (answer.different.length) return "Items with different results";
  return answer.common_items ? `Items in both runs: ${answer.common_items}, each with the same result` : "The runs have no items in common";
}

function show(name, value) {
  if (value === null) return "?";
  if (TIMES.includes(name)) return duration(value);
  if (name === "cost") return dollars(value);
  if (name === "overhead") return `${value} %`;
  return typeof value === "number" ? value.toLocaleString("en") : String(value);
}

function difference(before, after) {
  if (typeof before !== "number" || typeof after !== "number") return "";
  if (before === after) return "=";
  return before ? `${after > before ? "+" : ""}${Math.round((100 * (after - before)) / before)} %` : "new";
}
