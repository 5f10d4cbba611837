// Builds elements. Text is always text: nothing in the page parses HTML.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" && "value" in element) element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function clear(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Changes text only where it differs, so that nothing is repainted or announced without need.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setClass(element, name) {
  if (element.className !== name) element.className = name;
}

// The key of a button, for the eye; aria-keyshortcuts of the button says it to a screen reader.
export function keyHint(key) {
  return h("kbd", { "aria-hidden": "true" }, key);
}

// A command with a button that copies it.
export function command(text) {
  const copy = h("button", { type: "button", class: "quiet small", onclick: async () => { await navigator.clipboard?.writeText(text); copy.textContent = "Copied"; } }, "Copy");
  return [h("code", { class: "command" }, text), " ", copy];
}

export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

export function toast(text, action = null, kind = "") {
  const box = h("div", { class: `toast ${kind}` }, h("span", {}, text));
  const close = () => box.remove();
  if (action) {
    box.append(h("button", { type: "button", class: "toast-action", "aria-keyshortcuts": "u", onclick: () => { close(); action.run(); } }, action.label, keyHint("u")));
  }
  box.append(h("button", { type: "button", class: "quiet", "aria-label": "Dismiss", onclick: close }, "×"));
  document.getElementById("toasts").append(box);
  // It stays for as long as somebody is at it.
  const expire = () => setTimeout(() => (box.matches(":hover, :focus-within") ? expire() : close()), action ? 12000 : 7000);
  expire();
}

// Does what the newest message with a button offers, such as Undo: its button is the last one that Tab reaches.
export function runToastAction() {
  [...document.querySelectorAll(".toast-action")].at(-1)?.click();
}

// A question with a modal dialog; resolves to the text of the input (or "" without one), or to null if cancelled.
export function ask({ title, text, confirm, danger = false, input = null }) {
  return new Promise((resolve) => {
    const field = input
      ? h("textarea", { id: "ask-input", rows: 6, required: input.required === true, placeholder: input.placeholder ?? "" })
      : null;
    const form = h("form", { method: "dialog" },
      h("h2", { id: "ask-title" }, title),
      text ? h("p", {}, text) : null,
      input ? h("label", { for: "ask-input" }, input.label) : null,
      field,
      h("div", { class: "row end" },
        h("button", { type: "button", class: "quiet", onclick: () => finish(null) }, "Cancel"),
        h("button", { type: "submit", class: danger ? "danger" : "primary" }, confirm)));
    const dialog = h("dialog", { "aria-labelledby": "ask-title" }, form);
    const before = document.activeElement;
    function finish(answer) {
      dialog.close();
      dialog.remove();
      before?.focus?.();
      resolve(answer);
    }
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      finish(field ? field.value : "");
    });
    field?.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
    dialog.addEventListener("cancel", (event) => { event.preventDefault(); finish(null); });
    document.body.append(dialog);
    dialog.showModal();
    (field ?? form.querySelector("button[type=submit]")).focus();
  });
}

// A group of buttons that show one panel at a time, as the ARIA practices describe tabs.
export function tabs(label, entries, chosen, onchoose) {
  const list = h("div", { role: "tablist", "aria-label": label, class: "tabs" });
  const buttons = entries.map(({ id, text }) => h("button", {
    type: "button", role: "tab", id: `tab-${id}`, "aria-controls": "tab-panel",
    onclick: () => choose(id), onkeydown: (event) => move(event, id),
  }, text));
  list.append(...buttons);
  function choose(id) {
    mark(id);
    onchoose(id);
  }
  function mark(id) {
    entries.forEach((entry, index) => {
      buttons[index].setAttribute("aria-selected", String(entry.id === id));
      buttons[index].tabIndex = entry.id === id ? 0 : -1;
    });
  }
  function move(event, id) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const index = (entries.findIndex((entry) => entry.id === id) + step + entries.length) % entries.length;
    buttons[index].focus();
    choose(entries[index].id);
    event.preventDefault();
  }
  mark(chosen);
  return { element: list, mark, button: (id) => buttons[entries.findIndex((entry) => entry.id === id)] };
}
