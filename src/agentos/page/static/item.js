// One item: its documents, what the reviewer asked and what changed, its calls, its log.

import { follow, get, now, path } from "./api.js";
import { clear, h, setText, tabs } from "./dom.js";
import { cacheText, clock, count, dollars, duration, stateText, tokens, tone } from "./format.js";
import { showProgress } from "./attention.js";
import { difference, markdown } from "./documents.js";
import { followToggle, lineList } from "./log.js";
import { canRetry, retryItem } from "./controls.js";

const KINDS = { issue: "Issue", brief: "Brief", draft: "Draft", edited: "Edited draft", verdict: "Verdict", feedback: "Feedback", result: "Result" };
const OUTPUT_INTERVAL = 1500; // ms

export async function itemView(main, run, item) {
  const whole = await get(path("runs", run));
  let data = await get(path("runs", run, "items", item));
  const pill = h("span", { class: "pill" });
  const facts = h("p", { class: "quiet" });
  const panelBox = h("div", { id: "tab-panel", role: "tabpanel" });
  let panel = { update() {}, unmount() {} };
  const bar = tabs("Panels of the item", [{ id: "documents", text: "Documents" }, { id: "changes", text: "What changed" }, { id: "calls", text: "Calls" }, { id: "log", text: "Log" }], "documents", open);
  const decide = h("a", { class: "button primary", href: `#/decisions/${encodeURIComponent(item)}/${encodeURIComponent(whole.run.project)}` }, "Decide");
  const retry = h("button", { type: "button", onclick: () => retryItem(run, item) }, "Retry");
  clear(main,
    h("nav", { class: "crumbs", "aria-label": "Where you are" }, h("a", { href: "#/" }, "Runs"), " / ", h("a", { href: `#/runs/${encodeURIComponent(run)}` }, run), " / ", item),
    h("section", { class: "card" },
      h("div", { class: "row between" }, h("div", { class: "row" }, h("h1", {}, `${item}: ${data.title}`), pill), h("div", { class: "row" }, retry, decide)),
      facts),
    bar.element, panelBox);

  function drawHead() {
    const { row } = data;
    pill.className = `pill ${tone(row.state)}`;
    setText(pill, stateText(row.state));
    const age = row.seconds + (row.running ? now() - row.since : 0);
    const cache = cacheText(row.cache_read_tokens, row.cache_write_tokens);
    setText(facts, [row.running && row.node ? `at ${row.node}` : "", count(row.round, "round"), duration(age), count(row.calls, "call"), `${tokens(row.tokens)} tokens${cache ? ` (${cache})` : ""}`, dollars(row.cost), row.error ?? ""].filter(Boolean).join(" · "));
    decide.hidden = row.state !== "parked" || whole.read_only;
    retry.hidden = !canRetry(row, whole.run, whole.read_only);
    showProgress(`${item} ${stateText(row.state)} - agentos`, row.running ? 0.5 : 1, row.state === "failed" ? "killed" : row.running ? "running" : "ended");
  }

  function open(id) {
    panel.unmount();
    panelBox.setAttribute("aria-labelledby", `tab-${id}`);
    panel = { documents: documentsPanel, changes: changesPanel, calls: callsPanel, log: outputPanel }[id](panelBox, run, item, () => data);
  }

  let timer = null;
  async function reload() {
    timer = null;
    data = await get(path("runs", run, "items", item));
    drawHead();
    panel.update();
  }
  const stream = ["ended", "killed"].includes(whole.run.state) ? null : follow(run, whole.offset, {
    state: (state) => { if (state.rows.some((row) => row.item === item)) timer ??= setTimeout(() => reload().catch(() => {}), 400); },
    end: () => reload().catch(() => {}),
  });
  drawHead();
  open("documents");
  const ticking = setInterval(drawHead, 1000);
  return { unmount() { stream?.stop(); clearTimeout(timer); clearInterval(ticking); panel.unmount(); } };
}

function title(entry) {
  const name = KINDS[entry.kind] ?? entry.kind;
  return ["draft", "edited", "verdict", "feedback"].includes(entry.kind) ? `${name} ${entry.round}` : name;
}

function documentsPanel(box, run, item, data) {
  const list = h("ul", { class: "document-list" });
  const left = h("div", { class: "card document-pane", tabindex: -1 });
  const right = h("div", { class: "card document-pane", hidden: true });
  const beside = h("select", { id: "beside", onchange: () => showBeside() });
  clear(box, h("div", { class: "documents" },
    h("div", {}, h("h2", { class: "small-head" }, "Documents"), list,
      h("label", { for: "beside", class: "quiet" }, "Show beside"), beside),
    h("div", { class: "panes" }, left, right)));
  let chosen = null;
  let names = "";

  async function load(pane, name) {
    const entry = data().documents.find((found) => found.name === name);
    try {
      const answer = await get(path("runs", run, "items", item, "documents", name));
      clear(pane, h("h2", { class: "small-head" }, title(entry), h("span", { class: "quiet" }, ` ${entry.path ?? name}`)), markdown(answer.nodes));
    } catch (error) {
      clear(pane, h("p", { class: "notice bad" }, error.message));
    }
  }

  function choose(name) {
    chosen = name;
    for (const button of list.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.name === name));
    return load(left, name);
  }

  async function showBeside() {
    right.hidden = !beside.value;
    right.parentElement.classList.toggle("two", Boolean(beside.value));
    if (beside.value) await load(right, beside.value);
  }

  function update() {
    const { documents } = data();
    const next = documents.map((entry) => entry.name).join();
    if (next === names) return;
    names = next;
    clear(list, documents.length ? documents.map((entry) => h("li", {}, h("button", { type: "button", class: "quiet", "data-name": entry.name, "aria-pressed": "false", onclick: () => choose(entry.name) }, title(entry)))) : h("li", { class: "quiet" }, "None yet."));
    clear(beside, h("option", { value: "" }, "nothing"), documents.map((entry) => h("option", { value: entry.name }, title(entry))));
    const last = documents.findLast((entry) => ["draft", "edited", "result"].includes(entry.kind)) ?? documents.at(-1);
    if (last && !documents.some((entry) => entry.name === chosen)) choose(last.name);
    else if (chosen) choose(chosen);
  }

  update();
  return { update, unmount() {} };
}

// What the reviewer asked, and what the next draft changed; or any two drafts that the reader picks.
function changesPanel(box, run, item, data) {
  const from = h("select", { id: "diff-from", onchange: () => load() });
  const to = h("select", { id: "diff-to", onchange: () => load() });
  const asked = h("div", { class: "card document-pane" });
  const changed = h("div", { class: "card document-pane" });
  clear(box,
    h("div", { class: "toolbar" }, h("label", { for: "diff-from" }, "From"), from, h("label", { for: "diff-to" }, "to"), to),
    h("div", { class: "panes two" }, asked, changed));
  let names = "";

  function drafts() {
    return data().documents.filter((entry) => ["draft", "edited"].includes(entry.kind));
  }

  async function load() {
    const entries = data().documents;
    const positions = [from.value, to.value].map((name) => entries.findIndex((entry) => entry.name === name));
    const between = entries.filter((entry, index) => ["verdict", "feedback"].includes(entry.kind) && index > Math.min(...positions) && index < Math.max(...positions));
    try {
      const texts = await Promise.all(between.map((entry) => get(path("runs", run, "items", item, "documents", entry.name))));
      clear(asked, h("h2", { class: "small-head" }, "What was asked"), texts.length ? texts.map((text) => markdown(text.nodes)) : h("p", { class: "quiet" }, "Nothing was asked between these two."));
      const query = new URLSearchParams({ from: from.value, to: to.value });
      const answer = await get(`${path("runs", run, "items", item, "diff")}?${query}`);
      clear(changed, h("h2", { class: "small-head" }, "What changed"), difference(answer.lines));
    } catch (error) {
      clear(changed, h("p", { class: "notice bad" }, error.message));
    }
  }

  function update() {
    const found = drafts();
    const next = data().documents.map((entry) => entry.name).join();
    if (next === names) return;
    names = next;
    if (found.length < 2) {
      clear(asked, h("h2", { class: "small-head" }, "What was asked"), h("p", { class: "quiet" }, "There is only one draft."));
      clear(changed, h("p", { class: "quiet" }, "Nothing to compare yet."));
      from.disabled = to.disabled = true;
      return;
    }
    from.disabled = to.disabled = false;
    for (const select of [from, to]) clear(select, found.map((entry) => h("option", { value: entry.name }, title(entry))));
    from.value = found.at(-2).name;
    to.value = found.at(-1).name;
    load();
  }

  update();
  return { update, unmount() {} };
}

function callsPanel(box, run, item, data) {
  const body = h("tbody");
  const retries = h("div");
  clear(box,
    h("div", { class: "card scroll flush", tabindex: 0, role: "region", "aria-label": "Calls" },
      h("table", { class: "plain-table" },
        h("thead", {}, h("tr", {}, ["Call", "At", "Key", "Model", "Waited", "Took", "Tokens in", "Cache read", "Cache written", "Tokens out", "Cost", "Result"].map((text, index) => h("th", { scope: "col", class: index > 3 && index < 11 ? "number" : "" }, text)))),
        body)),
    retries);
  function update() {
    const { calls, retries: found } = data();
    clear(body, calls.map((call) => h("tr", {},
      h("th", { scope: "row" }, call.call), h("td", {}, clock(call.requested)), h("td", {}, call.key || "-"), h("td", {}, call.model || "-"),
      h("td", { class: "number" }, duration(call.granted === null ? now() - call.requested : call.waited_seconds)), h("td", { class: "number" }, call.ended === null ? "" : duration(call.seconds)),
      ["input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens"].map((name) => h("td", { class: "number" }, call.usage[name].toLocaleString("en"))),
      h("td", { class: "number" }, call.ended === null || call.refusal ? "" : dollars(call.cost)),
      h("td", { class: call.refusal ? "bad-text" : "" }, call.refusal || (call.granted === null ? "waiting for a key" : call.ended === null ? "in progress" : "answered")))),
    calls.length ? null : h("tr", {}, h("td", { colspan: 12, class: "quiet" }, "No calls yet.")));
    clear(retries, found.length ? [h("h2", {}, "Retries"), h("ul", {}, found.map((retry) => h("li", {}, `${clock(retry.at)}: ${retry.reason}. Attempt ${retry.attempt} of ${retry.max_attempts} after ${duration(retry.seconds)}`)))] : null);
  }
  update();
  return { update, unmount() {} };
}

function outputPanel(box, run, item, data) {
  const list = lineList(`Log of ${item}`, (text) => h("div", { class: "line" }, h("span", { class: "line-text" }, text)));
  clear(box, h("div", { class: "toolbar" }, followToggle(list), h("span", { class: "quiet" }, "Everything the item's worker printed.")), h("div", { class: "card flush" }, list.element));
  let after = -1;
  let busy = false;
  async function load() {
    if (busy) return;
    busy = true;
    try {
      const answer = await get(`${path("runs", run, "items", item, "output")}?after=${after}`);
      if (answer.skipped) list.add([`(${answer.skipped} earlier bytes are in the log file)`]);
      if (answer.lines.length) list.add(answer.lines);
      after = answer.offset;
    } catch {
      // Tried again by the timer.
    }
    busy = false;
  }
  load();
  const timer = setInterval(() => { if (data().row.running) load(); }, OUTPUT_INTERVAL);
  return { update: load, unmount() { clearInterval(timer); list.stop(); } };
}
