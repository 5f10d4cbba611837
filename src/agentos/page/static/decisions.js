// The queue of parked items: read, edit, approve, send back or reject, one after the other.

import { get, now, path, post } from "./api.js";
import { announce, ask, clear, h, toast } from "./dom.js";
import { ago, count, folderName } from "./format.js";
import { showProgress } from "./attention.js";
import { difference, markdown } from "./documents.js";

const PREVIEW_DELAY = 300; // ms

function waitsFor(entry) {
  const [first] = entry.questions;
  if (first.breakpoint) return `stopped ${first.breakpoint}`;
  return `asks ${count(entry.questions.length, "question")}`;
}

export async function decisionsView(main, wantedItem, wantedProject, onchange) {
  let queue = await get(path("reviews"));
  const state = { item: null, shown: null, isEditing: false };
  const list = h("ol", { class: "queue" });
  const summary = h("p", { class: "quiet", role: "status" });
  const detail = h("section", { class: "decision", "aria-live": "off" });
  clear(main, h("div", { class: "head" }, h("h1", {}, "Decisions"), summary), h("div", { class: "decisions" }, h("nav", { "aria-label": "Waiting items" }, list), detail));

  const open = () => queue.items.filter((entry) => entry.decision === null);
  const same = (a, b) => a && b && a.item === b.item && a.project === b.project;

  function drawQueue() {
    const entries = open();
    summary.textContent = entries.length ? `${count(entries.length, "item")} ${entries.length === 1 ? "waits" : "wait"} for you` : "Nothing waits";
    showProgress(`${entries.length ? `(${entries.length}) ` : ""}Decisions - agentos`, entries.length ? 0.5 : 1, entries.length ? "paused" : "ended");
    clear(list, entries.map((entry) => h("li", {}, h("button", {
      type: "button", class: "queue-entry", "aria-current": same(entry, state.item) ? "true" : null, onclick: () => choose(entry),
    }, h("strong", {}, entry.item), h("span", { class: "ellipsis" }, entry.title),
    h("span", { class: "quiet small-text" }, `${entry.gate === "question" ? waitsFor(entry) : `${entry.gate} ${entry.round}`} · ${folderName(entry.project)} · ${ago(entry.waiting_since, now())}`)))));
  }

  async function choose(entry) {
    if (state.isEditing && !(await abandonEdit())) return;
    Object.assign(state, { item: entry ?? null, shown: null, isEditing: false });
    drawQueue();
    if (!entry) {
      clear(detail, h("div", { class: "card empty" }, h("p", {}, "No item waits for a decision."), h("p", { class: "quiet" }, "Park drafts with: ", h("code", {}, "lld-workflow --all --review draft"))));
      return;
    }
    history.replaceState(null, "", `#/decisions/${encodeURIComponent(entry.item)}/${encodeURIComponent(entry.project)}`);
    try {
      state.shown = await get(`${path("reviews", entry.item)}?project=${encodeURIComponent(entry.project)}`);
      if (same(entry, state.item)) drawDetail();
    } catch (error) {
      clear(detail, h("p", { class: "notice bad" }, error.message));
    }
  }

  async function abandonEdit() {
    const isChanged = detail.querySelector("#draft-text")?.value !== state.shown?.draft_text;
    return !isChanged || (await ask({ title: "Drop your edit?", text: "The draft was edited and nothing was decided yet.", confirm: "Drop it", danger: true })) !== null;
  }

  function drawDetail() {
    const { shown } = state;
    if (shown.gate === "question") { drawQuestions(); return; }
    const subject = shown.verdict ? `Verdict on draft ${shown.round}: ${shown.approved ? "approved" : "needs revision"}` : `Draft ${shown.round}`;
    const buttons = queue.read_only ? h("p", { class: "quiet" }, "This page is read-only.") : h("div", { class: "row actions", role: "group", "aria-label": `Decide on ${shown.item}` },
      action("approve", "Approve", "a", "primary"), action("send back", "Send back", "s", ""), h("button", { type: "button", onclick: toggleEdit, "data-test": "edit" }, state.isEditing ? "Stop editing" : "Edit", h("kbd", {}, "e")), action("reject", "Reject", "r", "danger"));
    clear(detail,
      h("div", { class: "card" },
        h("div", { class: "row between" }, h("h2", {}, `${shown.item}: ${shown.title}`), h("a", { href: `#/runs/${encodeURIComponent(shown.run)}/items/${encodeURIComponent(shown.item)}` }, "History of the item")),
        h("p", { class: "quiet" }, `${subject}. ${shown.run_alive ? "Its run is in progress and picks your decision up." : "Its run has ended: after your decision, resume it."}`),
        buttons),
      state.isEditing ? editor() : reader());
  }

  function drawQuestions() {
    const { shown } = state;
    const isAsked = shown.questions.some((question) => !question.breakpoint);
    const buttons = queue.read_only ? h("p", { class: "quiet" }, "This page is read-only.") : h("div", { class: "row actions", role: "group", "aria-label": `Decide on ${shown.item}` },
      isAsked ? action("answer", "Answer", "a", "primary") : action("approve", "Go on", "a", "primary"), action("reject", "Reject", "r", "danger"));
    clear(detail,
      h("div", { class: "card" },
        h("div", { class: "row between" }, h("h2", {}, `${shown.item}: ${shown.title}`), h("a", { href: `#/runs/${encodeURIComponent(shown.run)}/items/${encodeURIComponent(shown.item)}` }, "History of the item")),
        h("p", { class: "quiet" }, `Its graph ${waitsFor(shown)}. ${shown.run_alive ? "Its run is in progress and picks your decision up." : "Its run has ended: after your decision, resume it."}`),
        buttons),
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
        toast('That is not JSON: write true, a number, an object, or a text in quotes, such as "yes".', null, "bad");
        box.focus();
        return null;
      }
    }
    return answers;
  }

  function reader() {
    const { shown } = state;
    return h("div", { class: "panes two" },
      h("div", { class: "card document-pane" }, h("h3", { class: "small-head" }, shown.edited ? "The draft as edited" : `Draft ${shown.round}`), markdown(shown.draft_nodes)),
      h("div", { class: "side" },
        shown.verdict_nodes ? h("div", { class: "card document-pane" }, h("h3", { class: "small-head" }, "Verdict"), markdown(shown.verdict_nodes)) : null,
        shown.changes ? h("div", { class: "card document-pane" }, h("h3", { class: "small-head" }, "Changed since the draft before"), difference(shown.changes)) : null,
        shown.verdict_nodes || shown.changes ? null : h("div", { class: "card document-pane" }, h("p", { class: "quiet" }, "It is the first draft, and no reviewer has seen it yet. If you approve it, it goes to review."))));
  }

  function editor() {
    const preview = h("div", {}, markdown(state.shown.draft_nodes));
    let timer = null;
    const text = h("textarea", { id: "draft-text", rows: 30, spellcheck: "true", value: state.shown.draft_text, oninput: () => {
      clearTimeout(timer);
      timer = setTimeout(async () => {
        const answer = await post(path("preview"), { text: text.value }).catch(() => null);
        if (answer) clear(preview, markdown(answer.nodes));
      }, PREVIEW_DELAY);
    } });
    setTimeout(() => text.focus());
    return h("div", { class: "panes two" },
      h("div", { class: "card document-pane" }, h("label", { for: "draft-text", class: "small-head" }, "Your draft"), text, h("p", { class: "quiet" }, "It is kept with your decision: approve it, or send it back.")),
      h("div", { class: "card document-pane" }, h("h3", { class: "small-head" }, "Preview"), preview));
  }

  async function toggleEdit() {
    if (state.isEditing && !(await abandonEdit())) return;
    state.isEditing = !state.isEditing;
    drawDetail();
    if (!state.isEditing) detail.querySelector("[data-test=edit]").focus();
  }

  function action(name, text, key, kind) {
    return h("button", { type: "button", class: kind, "data-test": name.replace(" ", "-"), onclick: () => decide(name) }, text, h("kbd", {}, key));
  }

  async function decide(name) {
    const { shown } = state;
    const draft = state.isEditing ? detail.querySelector("#draft-text").value : null;
    const isQuestion = shown.gate === "question";
    const answers = name === "answer" ? readAnswers() : {};
    if (answers === null) return;
    let text = "";
    if (name === "send back") {
      text = await ask({ title: `Send ${shown.item} back`, confirm: "Send back", input: { label: shown.has_feedback ? "What should change (empty: the reviewer's feedback)" : "What should change", required: !shown.has_feedback } });
    } else if (name === "reject") {
      text = await ask({ title: `Reject ${shown.item}?`, text: isQuestion ? "It ends as failed." : "It ends as needs revision.", confirm: "Reject", danger: true, input: { label: "Reason" } });
    }
    if (text === null) return;
    try {
      const answer = await post(path("reviews", shown.item), { project: shown.project, number: shown.number, action: name, text, ...(draft === null ? {} : { draft }), ...(name === "answer" ? { answers } : {}) });
      toast(`${answer.item}: ${answer.next}. ${answer.run_alive ? "Its run continues it." : `Resume with: ${answer.command}`}`);
      announce(`${answer.item} decided`);
      if (answer.warning) toast(answer.warning, null, "bad");
    } catch (error) {
      const isDecided = error.status === 409 || error.status === 404;
      const isEdited = draft !== null && draft !== shown.draft_text;
      toast(isDecided && isEdited ? `${error.message}. Your text is still here: copy what you need.` : error.message, null, "bad");
      if (!isDecided || isEdited) return;
    }
    state.isEditing = false;
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

  await choose(open().find((entry) => entry.item === wantedItem && (!wantedProject || entry.project === wantedProject)) ?? open()[0]);
  const timer = setInterval(async () => {
    const next = await get(path("reviews")).catch(() => null);
    if (!next || state.isEditing) return;
    queue = next;
    const current = queue.items.find((entry) => same(entry, state.item));
    if (JSON.stringify(open().map((entry) => [entry.item, entry.number])) !== list.dataset.known) drawQueue();
    list.dataset.known = JSON.stringify(open().map((entry) => [entry.item, entry.number]));
    if (!state.item && open().length) choose(open()[0]);
    else if (state.shown && (!current || current.decision !== null || current.number !== state.shown.number) && !document.querySelector("dialog[open]")) {
      toast(`${state.item.item} has been decided meanwhile.`);
      choose(open()[0]);
    }
  }, 3000);

  return {
    unmount() { clearInterval(timer); },
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
