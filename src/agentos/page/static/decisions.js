// The queue of parked items: read, edit, approve, send back or reject, one after the other.

import { get, now, path, post } from "./api.js";
import { announce, ask, clear, command, h, keyHint, toast } from "./dom.js";
import { ago, count, folderName } from "./format.js";
import { showProgress } from "./attention.js";
import { difference, markdown } from "./documents.js";

const PREVIEW_DELAY = 300; // ms

// Edited drafts without a decision, by gate: they survive a look at another item or view.
const edits = new Map();
window.addEventListener("beforeunload", (event) => { if (edits.size) event.preventDefault(); });

export function gateOf(entry) {
  return `${entry.project} ${entry.item} ${entry.number}`;
}

function waitsFor(entry) {
  const [first] = entry.questions;
  if (first.breakpoint) return `stopped ${first.breakpoint}`;
  return `asks ${count(entry.questions.length, "question")}`;
}

export async function decisionsView(main, wantedItem, wantedProject, onchange) {
  let queue = await get(path("reviews"));
  const state = { item: null, shown: null, isEditing: false, isTooLate: false, isDeciding: false, decisions: 0 };
  const list = h("ol", { class: "queue" });
  const summary = h("p", { class: "quiet", role: "status" });
  const commands = h("div", { class: "notices" });
  const detail = h("section", { class: "decision", "aria-live": "off" });
  clear(main, h("div", { class: "head" }, h("h1", {}, "Decisions"), summary), commands, h("div", { class: "decisions" }, h("nav", { "aria-label": "Waiting items" }, list), detail));

  const open = () => queue.items.filter((entry) => entry.decision === null);
  const same = (a, b) => a && b && a.item === b.item && a.project === b.project;

  function drawQueue() {
    const entries = open();
    summary.textContent = entries.length ? `${count(entries.length, "item")} ${entries.length === 1 ? "is" : "are"} waiting for you` : "Nothing is waiting";
    showProgress(`${entries.length ? `(${entries.length}) ` : ""}Decisions - agentos`, entries.length ? 0.5 : 1, entries.length ? "paused" : "ended");
    clear(list, entries.map((entry) => h("li", {}, h("button", {
      type: "button", class: "queue-entry", "aria-current": same(entry, state.item) ? "true" : null, onclick: () => choose(entry),
    }, h("strong", {}, entry.item), h("span", { class: "ellipsis" }, entry.title),
    h("span", { class: "quiet small-text" }, `${entry.gate === "question" ? waitsFor(entry) : `${entry.gate} ${entry.round}`} · ${folderName(entry.project)} · ${ago(entry.waiting_since, now())}${edits.has(gateOf(entry)) ? " · edited" : ""}`)))));
    drawCommands();
  }

  // What to type where no run is in progress that would continue with the decided items.
  function drawCommands() {
    const decided = new Map();
    for (const entry of queue.items.filter((found) => found.command)) decided.set(entry.command, [...(decided.get(entry.command) ?? []), entry.item]);
    clear(commands, [...decided].map(([text, items]) => h("p", { class: "notice plain" }, `Decided: ${items.join(", ")}. Resume with: `, command(text))));
  }

  async function choose(entry) {
    if (state.isTooLate && !(await dropEdit())) return;
    Object.assign(state, { item: entry ?? null, shown: null, isEditing: false, isTooLate: false });
    drawQueue();
    if (!entry) {
      clear(detail, h("div", { class: "card empty" }, h("p", {}, "No item is waiting for a decision."), h("p", { class: "quiet" }, "To decide on each draft before its review, start a run with: ", h("code", {}, "lld-workflow --all --review draft"))));
      return;
    }
    if (location.hash.startsWith("#/decisions")) history.replaceState(null, "", `#/decisions/${encodeURIComponent(entry.item)}/${encodeURIComponent(entry.project)}`);
    let shown;
    let problem = "";
    try {
      shown = await get(`${path("reviews", entry.item)}?project=${encodeURIComponent(entry.project)}`);
    } catch (error) {
      problem = error.message;
    }
    // Another item was chosen in the meantime: a decision must never hit one that is not on the screen.
    if (entry !== state.item) return;
    if (problem) {
      clear(detail, h("p", { class: "notice bad" }, problem));
      return;
    }
    state.shown = shown;
    state.isEditing = edits.has(gateOf(shown));
    drawDetail();
  }

  async function dropEdit() {
    const gate = gateOf(state.shown);
    const isDropped = !edits.has(gate) || (await ask({ title: "Discard your edit?", text: "It is not saved anywhere else.", confirm: "Discard", danger: true })) !== null;
    if (isDropped) edits.delete(gate);
    return isDropped;
  }

  function drawDetail() {
    const { shown } = state;
    if (shown.gate === "question") { drawQuestions(); return; }
    const subject = shown.verdict ? `Verdict on draft ${shown.round}: ${shown.approved ? "approved" : "needs revision"}` : isFirst(shown) ? `Draft ${shown.round}, not reviewed yet: if you approve it, it goes to review` : `Draft ${shown.round}`;
    drawHead(subject, [action("approve", "Approve", "a", "primary"), action("send back", "Send back", "s", ""),
      h("button", { type: "button", "aria-keyshortcuts": "e", onclick: toggleEdit, "data-test": "edit" }, state.isEditing ? "Stop editing" : "Edit", keyHint("e")), action("reject", "Reject", "r", "danger")],
    state.isEditing ? editor() : reader());
  }

  function isFirst(shown) {
    return !shown.verdict_nodes && !shown.changes;
  }

  // The buttons stay in sight while a long draft is read.
  function drawHead(subject, buttons, ...content) {
    const { shown } = state;
    clear(detail,
      h("div", { class: "card" },
        h("div", { class: "row between" }, h("h2", {}, `${shown.item}: ${shown.title}`), h("a", { href: `#/runs/${encodeURIComponent(shown.run)}/items/${encodeURIComponent(shown.item)}` }, "History of the item")),
        h("p", { class: "quiet" }, `${subject}. ${shown.run_alive ? "Its run is in progress and will pick up your decision." : "Its run has ended; resume it after you decide."}`)),
      queue.read_only ? h("p", { class: "quiet" }, "This page is read-only.") : h("div", { class: "row card actions", role: "group", "aria-label": `Decide on ${shown.item}` }, buttons),
      content);
  }

  function drawQuestions() {
    const { shown } = state;
    const isAsked = shown.questions.some((question) => !question.breakpoint);
    drawHead(`Its graph ${waitsFor(shown)}`,
      [isAsked ? action("answer", "Answer", "a", "primary") : action("approve", "Continue", "a", "primary"), action("reject", "Reject", "r", "danger")],
      shown.questions.filter((question) => !question.breakpoint).map((question, index) => h("div", { class: "card document-pane" },
        h("h3", { class: "small-head" }, `Question ${index + 1}, ${question.node}`),
        h("pre", {}, typeof question.value === "string" ? question.value : JSON.stringify(question.value, null, 2)),
        question.schema ? h("p", { class: "quiet" }, "Expected: ", h("code", {}, JSON.stringify(question.schema))) : null,
        h("label", { for: `answer-${index}`, class: "small-head" }, "Your answer, as JSON"),
        h("textarea", { id: `answer-${index}`, rows: 4, spellcheck: "false", "data-question": question.id, disabled: queue.read_only ? "" : null }))));
  }

  function readAnswers() {
    const answers = {};
    for (const box of detail.querySelectorAll("[data-question]")) {
      try {
        answers[box.dataset.question] = JSON.parse(box.value);
      } catch {
        toast('That is not JSON: type true, a number, an object, or text in quotes, such as "yes".', null, "bad");
        box.focus();
        return null;
      }
    }
    return answers;
  }

  function reader() {
    const { shown } = state;
    const draft = h("div", { class: "card document-pane" }, h("h3", { class: "small-head" }, shown.edited ? "Edited draft" : `Draft ${shown.round}`), markdown(shown.draft_nodes));
    if (isFirst(shown)) return h("div", { class: "panes" }, draft);
    return h("div", { class: "panes two" }, draft,
      h("div", { class: "side" },
        shown.verdict_nodes ? h("div", { class: "card document-pane" }, h("h3", { class: "small-head" }, "Verdict"), markdown(shown.verdict_nodes)) : null,
        shown.changes ? h("div", { class: "card document-pane" }, h("h3", { class: "small-head" }, "Changes since the previous draft"), difference(shown.changes)) : null));
  }

  function editor() {
    const { shown } = state;
    const preview = h("div", {}, markdown(shown.draft_nodes));
    let timer = null;
    async function drawPreview() {
      const sent = text.value;
      const answer = await post(path("preview"), { text: sent }).catch(() => null);
      if (answer && text.value === sent) clear(preview, markdown(answer.nodes));
    }
    const text = h("textarea", { id: "draft-text", rows: 30, spellcheck: "true", value: edits.get(gateOf(shown)) ?? shown.draft_text, oninput: () => {
      if (text.value === shown.draft_text) edits.delete(gateOf(shown));
      else edits.set(gateOf(shown), text.value);
      clearTimeout(timer);
      timer = setTimeout(drawPreview, PREVIEW_DELAY);
    } });
    if (edits.has(gateOf(shown))) drawPreview();
    return h("div", { class: "panes two" },
      h("div", { class: "card document-pane" }, h("label", { for: "draft-text", class: "small-head" }, "Your draft"), text, h("p", { class: "quiet" }, "It is saved when you approve it or send it back.")),
      h("div", { class: "card document-pane" }, h("h3", { class: "small-head" }, "Preview"), preview));
  }

  async function toggleEdit() {
    if (!state.shown) return;
    if (state.isEditing && !(await dropEdit())) return;
    state.isEditing = !state.isEditing;
    drawDetail();
    detail.querySelector(state.isEditing ? "#draft-text" : "[data-test=edit]").focus();
  }

  function action(name, text, key, kind) {
    return h("button", { type: "button", class: kind, "data-test": name.replace(" ", "-"), "aria-keyshortcuts": key, onclick: () => decide(name) }, text, keyHint(key));
  }

  // One decision at a time: a key pressed twice must not decide twice.
  async function decide(name) {
    if (state.isDeciding || !state.shown) return;
    state.isDeciding = true;
    try {
      await decideOn(name);
    } finally {
      state.isDeciding = false;
    }
  }

  async function decideOn(name) {
    const { shown } = state;
    const draft = state.isEditing ? detail.querySelector("#draft-text").value : null;
    const isQuestion = shown.gate === "question";
    const answers = name === "answer" ? readAnswers() : {};
    if (answers === null) return;
    let text = "";
    if (name === "send back") {
      text = await ask({ title: `Send ${shown.item} back`, confirm: "Send back", input: { label: shown.has_feedback ? "What should change? (If empty: the reviewer's feedback)" : "What should change?", required: !shown.has_feedback } });
    } else if (name === "reject") {
      text = await ask({ title: `Reject ${shown.item}?`, text: isQuestion ? "It ends as failed." : "It ends as needs revision.", confirm: "Reject", danger: true, input: { label: "Reason" } });
    }
    if (text === null) return;
    try {
      const answer = await post(path("reviews", shown.item), { project: shown.project, number: shown.number, action: name, text, ...(draft === null ? {} : { draft }), ...(name === "answer" ? { answers } : {}) });
      toast(`${answer.item}: ${answer.next}.${answer.run_alive ? " Its run continues it." : ""}`);
      announce(`${answer.item} decided`);
      if (answer.warning) toast(answer.warning, null, "bad");
    } catch (error) {
      const isDecided = error.status === 409 || error.status === 404;
      const isEdited = draft !== null && draft !== shown.draft_text;
      state.isTooLate = isDecided && isEdited;
      toast(state.isTooLate ? `${error.message}. Your text is still here: copy what you need.` : error.message, null, "bad");
      if (!isDecided || isEdited) return;
    }
    edits.delete(gateOf(shown));
    state.decisions += 1;
    await reload();
    onchange();
  }

  async function reload() {
    const before = open().findIndex((entry) => same(entry, state.item));
    queue = await get(path("reviews"));
    const entries = open();
    await choose(entries[Math.min(Math.max(0, before), entries.length - 1)]);
    (list.querySelector("[aria-current]") ?? main.querySelector("h1"))?.focus?.();
  }

  const wanted = open().find((entry) => entry.item === wantedItem && (!wantedProject || entry.project === wantedProject));
  if (wantedItem && !wanted) toast(`${wantedItem} is no longer waiting for a decision.`);
  await choose(wanted ?? open()[0]);
  const timer = setInterval(async () => {
    const before = state.decisions;
    const next = await get(path("reviews")).catch(() => null);
    if (!next || state.isEditing || state.isDeciding || state.decisions !== before) return;
    queue = next;
    const current = queue.items.find((entry) => same(entry, state.item));
    const known = JSON.stringify(queue.items.map((entry) => [entry.item, entry.number, entry.decision, entry.command]));
    if (known !== list.dataset.known) drawQueue();
    list.dataset.known = known;
    if (!state.item && open().length) choose(open()[0]);
    else if (state.shown && (!current || current.decision !== null || current.number !== state.shown.number)) {
      toast(`Somebody else has decided on ${state.item.item}.`);
      choose(open()[0]);
    }
  }, 3000);

  return {
    unmount() {
      clearInterval(timer);
      if (state.isTooLate) edits.delete(gateOf(state.shown));
    },
    onkey(event) {
      const entries = open();
      const index = entries.findIndex((entry) => same(entry, state.item));
      if (event.key === "j" || event.key === "k") {
        const next = entries[index + (event.key === "j" ? 1 : -1)];
        if (next) choose(next);
        return;
      }
      if (!state.shown || queue.read_only) return;
      const isQuestion = state.shown.gate === "question";
      const first = isQuestion && state.shown.questions.some((question) => !question.breakpoint) ? "answer" : "approve";
      const act = { a: first, s: isQuestion ? null : "send back", r: "reject" }[event.key];
      if (act) { event.preventDefault(); decide(act); }
      if (event.key === "e" && !isQuestion) { event.preventDefault(); toggleEdit(); }
    },
  };
}
