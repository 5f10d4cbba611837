// Documents: Markdown as elements, and the difference between two texts.

import { h } from "./dom.js";

const ELEMENTS = new Set(["a", "blockquote", "br", "code", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "s", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"]);
// A document's own headings stand below those of the page.
const LOWERED = { h1: "h3", h2: "h4", h3: "h5", h4: "h6", h5: "h6", h6: "h6" };
const LINK = /^(https?:\/\/|mailto:)/i;
const CONTEXT = 3; // lines shown around a change

// Nodes are text, or [name, attributes, children]; anything else is dropped.
export function markdown(nodes) {
  const article = h("div", { class: "document" });
  for (const node of nodes) append(article, node);
  return article;
}

function append(parent, node) {
  if (typeof node === "string") { parent.append(node); return; }
  if (!Array.isArray(node) || !ELEMENTS.has(node[0])) return;
  const [name, attributes, children] = node;
  const element = document.createElement(LOWERED[name] ?? name);
  if (LOWERED[name]) element.className = `level-${name[1]}`;
  if (name === "a" && LINK.test(attributes.href ?? "")) {
    element.setAttribute("href", attributes.href);
    element.setAttribute("rel", "noopener noreferrer nofollow");
    element.setAttribute("target", "_blank");
  }
  if (name === "ol" && /^\d+$/.test(attributes.start ?? "")) element.setAttribute("start", attributes.start);
  if (["left", "right", "center"].includes(attributes.align)) element.className = `align-${attributes.align}`;
  for (const child of children) append(element, child);
  if (name === "table") {
    parent.append(h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table" }, element));
  } else {
    if (name === "pre") element.tabIndex = 0;
    parent.append(element);
  }
}

// Lines are [" " | "-" | "+", text]; long common parts are folded.
export function difference(lines) {
  const near = new Array(lines.length).fill(false);
  lines.forEach(([sign], index) => {
    if (sign === " ") return;
    for (let at = Math.max(0, index - CONTEXT); at <= Math.min(lines.length - 1, index + CONTEXT); at += 1) near[at] = true;
  });
  const added = lines.filter(([sign]) => sign === "+").length;
  const removed = lines.filter(([sign]) => sign === "-").length;
  const list = h("ol", { class: "diff", tabindex: 0, "aria-label": "Difference" });
  let skipped = 0;
  lines.forEach(([sign, text], index) => {
    if (!near[index]) { skipped += 1; return; }
    if (skipped) list.append(h("li", { class: "fold" }, `${skipped} unchanged lines`));
    skipped = 0;
    const kind = { "+": "added", "-": "removed" }[sign] ?? "same";
    list.append(h("li", { class: kind }, h("span", { class: "sign", "aria-hidden": "true" }, sign),
      kind === "same" ? null : h("span", { class: "visually-hidden" }, `${kind}: `), text || " "));
  });
  if (skipped) list.append(h("li", { class: "fold" }, `${skipped} unchanged lines`));
  return h("div", {}, h("p", { class: "quiet" }, added || removed ? `${added} lines added, ${removed} removed` : "No difference"), added || removed ? list : null);
}
