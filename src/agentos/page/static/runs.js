// All runs of the home, live ones first.

import { get, now, path } from "./api.js";
import { clear, h, setText } from "./dom.js";
import { ago, count, day, dollars, duration, folderName, tone } from "./format.js";
import { notifyEnd, showProgress } from "./attention.js";

const INTERVAL = 2000; // ms

export async function runsView(main) {
  const state = { runs: [], text: "", only: "", chosen: new Set(), isFleet: false };
  const search = h("input", { type: "search", id: "run-search", placeholder: "Search project, workflow, id", oninput: (event) => { state.text = event.target.value.toLowerCase(); draw(); } });
  const only = h("select", { id: "run-state", onchange: (event) => { state.only = event.target.value; draw(); } },
    ["", "running", "paused", "suspended", "stopping", "ended", "killed"].map((value) => h("option", { value }, value || "any state")));
  const compare = h("button", { type: "button", disabled: true, onclick: openComparison }, "Compare two");
  const list = h("div", { class: "run-list", id: "run-list" });
  const summary = h("p", { class: "quiet", role: "status" });
  const problem = h("p", { class: "notice bad", role: "status", hidden: true });
  clear(main,
    h("div", { class: "head" }, h("h1", {}, "Runs"), summary),
    problem,
    h("div", { class: "toolbar" },
      h("label", { class: "visually-hidden", for: "run-search" }, "Search runs"), search,
      h("label", { class: "visually-hidden", for: "run-state" }, "State"), only, compare),
    list);

  function openComparison() {
    const [second, first] = [...state.chosen].sort().reverse();
    location.hash = `#/compare/${encodeURIComponent(first)}/${encodeURIComponent(second)}`;
  }

  function choose(run, isChosen) {
    if (isChosen) state.chosen.add(run);
    else state.chosen.delete(run);
    compare.disabled = state.chosen.size !== 2;
    compare.textContent = state.chosen.size === 2 ? "Compare the two" : "Compare two";
  }

  function matches(run) {
    const isWanted = !state.only || run.state === state.only;
    const text = `${run.run} ${run.workflow} ${run.project} ${run.state}`.toLowerCase();
    return isWanted && state.text.split(/\s+/).every((word) => text.includes(word));
  }

  const cards = new Map();

  function draw() {
    const shown = state.runs.filter(matches);
    const live = state.runs.filter(isLive);
    summary.textContent = `${count(state.runs.length, "run")}, ${live.length} in progress`;
    for (const [id, card] of cards) {
      if (!state.runs.some((run) => run.run === id)) { card.element.remove(); cards.delete(id); }
    }
    const elements = shown.map((run) => {
      if (!cards.has(run.run)) cards.set(run.run, runCard(run.run, choose));
      cards.get(run.run).update(run);
      return cards.get(run.run).element;
    });
    if (!elements.length) {
      elements.push(h("div", { class: "card empty" }, h("p", {}, state.runs.length ? "No run matches." : "No runs yet."),
        state.runs.length ? null : h("p", {}, "Start one with: ", h("code", {}, state.isFleet ? "lld-workflow --all --fleet" : "lld-workflow --all --parallel"))));
    }
    if (elements.length !== list.children.length || elements.some((element, index) => element !== list.children[index])) clear(list, elements);
    showTotal(live);
  }

  // Of all runs in progress together.
  function showTotal(live) {
    const [done, items] = ["done", "items"].map((name) => live.reduce((sum, run) => sum + run[name], 0));
    showProgress(live.length ? `${done}/${items} in ${count(live.length, "run")} - agentos` : "Runs - agentos", live.length ? done / Math.max(1, items) : 1, live.length ? "running" : "ended");
  }

  async function load() {
    const answer = await get(path("runs"));
    for (const run of answer.runs) {
      const before = state.runs.find((known) => known.run === run.run);
      if (before && isLive(before) && !isLive(run)) notifyEnd(run);
    }
    state.runs = answer.runs;
    state.isFleet = answer.is_fleet;
    showProblem(answer.problem);
    draw();
  }

  function showProblem(text) {
    problem.hidden = !text;
    setText(problem, text ?? "");
  }

  await load();
  const timer = setInterval(() => load().catch((error) => showProblem(error.message)), INTERVAL);
  return {
    unmount() { clearInterval(timer); },
    onkey(event) {
      const links = [...list.querySelectorAll("a.run-link")];
      const step = { j: 1, k: -1 }[event.key];
      if (!step || !links.length) return;
      const index = links.indexOf(document.activeElement);
      links[Math.min(links.length - 1, Math.max(0, index + step))].focus();
    },
  };
}

function isLive(run) {
  return ["running", "paused", "suspended", "stopping"].includes(run.state);
}

function runCard(id, choose) {
  const link = h("a", { class: "run-link", href: `#/runs/${encodeURIComponent(id)}` });
  const where = h("span", { class: "quiet ellipsis" });
  const pill = h("span");
  const bar = h("progress", { max: 1, value: 0, "aria-label": `Progress of run ${id}` });
  const progress = h("span", { class: "number" });
  const results = h("span", { class: "quiet ellipsis" });
  const figures = h("span", { class: "number quiet" });
  const check = h("input", { type: "checkbox", "aria-label": `Choose run ${id} to compare`, onchange: (event) => choose(id, event.target.checked) });
  const element = h("article", { class: "run-card card" },
    h("div", { class: "run-check" }, check),
    h("div", { class: "run-name" }, link, where),
    h("div", { class: "run-state" }, pill),
    h("div", { class: "run-progress" }, h("div", { class: "row" }, bar, progress), results),
    h("div", { class: "run-figures" }, figures));
  return {
    element,
    update(run) {
      if (run.state === "other version") {
        link.textContent = id;
        where.textContent = "written by another version of agentos";
        return;
      }
      link.textContent = `${run.workflow} in ${folderName(run.project)}`;
      where.textContent = `${day(run.began)} (${ago(run.began, now())}) · ${id}`;
      where.title = run.folder;
      pill.className = `pill ${run.state === "ended" && run.exit_code ? "warn" : tone(run.state)}`;
      pill.textContent = run.state === "ended" && run.exit_code ? `exit ${run.exit_code}` : run.state;
      bar.value = run.items ? run.done / run.items : 1;
      progress.textContent = `${run.done}/${run.items}`;
      results.textContent = resultsText(run.results);
      const left = run.seconds_left ? `, about ${duration(run.seconds_left)} left` : "";
      figures.textContent = `${duration(run.state === "ended" || run.state === "killed" ? run.seconds : now() - run.began)}${left} · ${dollars(run.cost)}`;
    },
  };
}

export function resultsText(results) {
  const names = { approved: "approved", needs_revision: "need revision", failed: "failed", parked: "waiting for a person", interrupted: "interrupted" };
  if (results.needs_revision === 1) names.needs_revision = "needs revision";
  const parts = Object.entries(names).filter(([name]) => results[name]).map(([name, text]) => `${results[name]} ${text}`);
  const done = results.finished - results.approved - results.needs_revision;
  if (done > 0) parts.unshift(`${done} done`);
  return parts.join(", ") || "nothing finished yet";
}
