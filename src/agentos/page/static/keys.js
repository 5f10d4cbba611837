// The keys: what this run does with them, and what this machine knows of their quotas.

import { get, now, path, post } from "./api.js";
import { ask, clear, h, toast } from "./dom.js";
import { count, duration, tone } from "./format.js";

const INTERVAL = 5000; // ms

export function keysPanel(box, store) {
  const ours = h("tbody");
  const host = h("div", { class: "key-cards" });
  const breakers = h("div", { class: "notices" });
  clear(box, breakers,
    h("div", { class: "card scroll flush", tabindex: 0, role: "region", "aria-label": "Keys in this run" },
      h("table", { class: "plain-table" },
        h("caption", {}, "In this run"),
        h("thead", {}, h("tr", {}, ["Key", "State", "Back in", "In use", "Calls", "Refused", "Failed", "Time in use"].map((text, index) => h("th", { scope: "col", class: index > 1 ? "number" : "" }, text)))),
        ours)),
    h("h2", {}, store.run.is_fleet ? "At the gateway" : "On this machine"), host);
  const shared = hostKeys(host, store.readOnly);

  function draw() {
    clear(ours, store.keys.map((key) => h("tr", {},
      h("th", { scope: "row" }, key.key),
      h("td", {}, h("span", { class: `pill ${tone(key.state)}`, title: key.reason }, key.state)),
      h("td", { class: "number", "data-until": key.until ?? "" }, countdown(key.until)),
      h("td", { class: "number" }, String(key.in_use)), h("td", { class: "number" }, String(key.calls)),
      h("td", { class: `number ${key.refusals ? "warn-text" : ""}` }, String(key.refusals)),
      h("td", { class: `number ${key.failures ? "warn-text" : ""}` }, String(key.failures)), h("td", { class: "number" }, duration(key.seconds_used)))));
    const open = store.run.breakers ?? [];
    clear(breakers, open.map((span) => h("p", { class: "notice bad" }, `Circuit breaker open: ${span.label} is failing for all calls.`)));
  }

  function countdown(until) {
    if (!until) return "";
    const left = until - now();
    return left > 0 ? duration(left) : "now";
  }

  draw();
  return {
    update: draw,
    tick() { for (const cell of ours.querySelectorAll("[data-until]")) cell.textContent = countdown(Number(cell.dataset.until)); shared.tick(); },
    unmount: shared.unmount,
  };
}

// The keys of this machine, or of a fleet's gateway, as cards that follow their state.
export function hostKeys(host, readOnly) {
  let known = "";

  async function load() {
    try {
      const answer = await get(path("keys"));
      const text = JSON.stringify([answer.keys, answer.problem]);
      if (text === known) return;
      known = text;
      clear(host,
        answer.problem ? h("p", { class: `notice ${answer.gateway ? "bad" : "plain"}` }, answer.problem) : null,
        answer.keys.map((key) => card(key, readOnly, "gateway" in answer, load)),
        answer.keys.length || answer.problem ? null : h("p", { class: "quiet" }, "This page has no keys. It sees those that are stored (", h("code", {}, "agentos keys add"), ") and the variables of the shell in which it was started."));
    } catch (error) {
      known = "";
      clear(host, h("p", { class: "notice bad" }, error.message));
    }
  }

  load();
  const timer = setInterval(load, INTERVAL);
  return {
    tick() { for (const pill of host.querySelectorAll("[data-until]")) pill.textContent = stateOf(pill.dataset.text, Number(pill.dataset.until)); },
    unmount() { clearInterval(timer); },
  };
}

function stateOf(text, until) {
  return until ? `${text}, ${duration(until - now())} left` : text;
}

function card(key, readOnly, isGateway, reload) {
  const isDisabled = key.states.some((entry) => entry.state === "disabled");
  return h("article", { class: "card key-card" },
    h("div", { class: "row between" }, h("h3", {}, key.name), h("span", { class: "quiet" }, `${key.provider}${key.bucket ? `, bucket ${key.bucket}` : ""}`)),
    h("p", {}, key.states.map((entry) => {
      const text = `${entry.state}${entry.models.length ? ` for ${entry.models.join(", ")}` : ""}`;
      return h("span", { class: `pill ${tone(entry.state)}`, "data-text": text, "data-until": entry.until }, stateOf(text, entry.until));
    })),
    key.limits.map((limit) => h("label", { class: "quota" }, `${limit.limit}: ${Math.round(limit.used).toLocaleString("en")} of ${limit.of.toLocaleString("en")}`,
      h("progress", { max: limit.of, value: Math.min(limit.used, limit.of) }))),
    key.last_refusal ? h("p", { class: "quiet" }, `Last refusal: ${key.last_refusal}`) : null,
    readOnly || isGateway ? null : h("div", { class: "row" },
      isDisabled
        ? h("button", { type: "button", class: "small", onclick: () => change(key.name, { action: "enable" }, { action: "disable" }, reload) }, "Enable")
        : h("button", { type: "button", class: "small", onclick: () => change(key.name, { action: "disable" }, { action: "enable" }, reload) }, "Disable"),
      h("button", { type: "button", class: "small", onclick: () => coolDown(key.name, reload) }, "Cool down 10 min")));
}

async function change(name, body, undo, reload) {
  try {
    await post(path("keys", name), body);
    toast(`${name}: ${body.action}d.`, undo ? { label: "Undo", run: () => change(name, undo, null, reload) } : null);
    await reload();
  } catch (error) {
    toast(error.message, null, "bad");
  }
}

async function coolDown(name, reload) {
  const answer = await ask({ title: `Cool down ${name}?`, text: `No run on this machine uses its quota for ${count(10, "minute")}. There is no undo.`, confirm: "Cool it down" });
  if (answer === null) return;
  try {
    await post(path("keys", name), { action: "cooldown", seconds: 600 });
    toast(`${name} cools down for 10 minutes.`);
    await reload();
  } catch (error) {
    toast(error.message, null, "bad");
  }
}
