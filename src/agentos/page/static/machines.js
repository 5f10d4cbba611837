// The machines of a fleet: what each is at, and the keys of the gateway that they share.

import { get, now, path } from "./api.js";
import { clear, h } from "./dom.js";
import { count, duration } from "./format.js";
import { showProgress } from "./attention.js";
import { hostKeys } from "./keys.js";

const INTERVAL = 3000; // ms
const SILENT_AFTER = 120; // seconds; an idle worker asks Temporal about once a minute
const HEADS = ["Machine", "State", "Last asked for items", "Takes", "At work", "Had before"];

export async function machinesView(main) {
  const summary = h("p", { class: "quiet", role: "status" });
  const problems = h("div", { class: "notices" });
  const body = h("tbody");
  const where = h("p", { class: "quiet" });
  const host = h("div", { class: "key-cards" });
  clear(main,
    h("div", { class: "head" }, h("h1", {}, "Machines"), summary), problems,
    h("div", { class: "card scroll flush", tabindex: 0, role: "region", "aria-label": "Machines of the fleet" },
      h("table", { class: "plain-table" },
        h("thead", {}, h("tr", {}, HEADS.map((text, index) => h("th", { scope: "col", class: index === 5 ? "number" : "" }, text)))), body)),
    h("h2", {}, "Gateway"), where, host,
    h("p", { class: "quiet" }, "Its keys are enabled, disabled and rested on its own machine: ", h("code", {}, "agentos keys disable NAME")));

  function draw(answer) {
    const atWork = answer.machines.filter((machine) => machine.items.length);
    const items = answer.machines.reduce((sum, machine) => sum + machine.items.length, 0);
    summary.textContent = `${count(answer.machines.filter(isAsking).length, "machine")} asking for items, ${count(items, "item")} at work`;
    clear(problems, answer.problems.map((text) => h("p", { class: "notice bad" }, text)));
    clear(body, answer.machines.map(row), answer.machines.length ? null : h("tr", {}, h("td", { colspan: HEADS.length, class: "quiet" }, "No machine yet. On each, type: ", h("code", {}, "agentos worker --parallel 3"))));
    where.textContent = answer.gateway ?? "";
    showProgress(`${count(atWork.length, "machine")} at work - agentos`, atWork.length ? 0.5 : 1, atWork.length ? "running" : "ended");
  }

  function isAsking(machine) {
    return machine.seen !== null && now() - machine.seen < SILENT_AFTER;
  }

  function row(machine) {
    const [state, tone] = machine.items.length ? ["at work", "live"] : isAsking(machine) ? ["idle", "good"] : ["gone", "plain"];
    return h("tr", {},
      h("th", { scope: "row" }, machine.machine),
      h("td", {}, h("span", { class: `pill ${tone}` }, state)),
      h("td", {}, machine.seen === null ? "-" : `${duration(Math.max(0, now() - machine.seen))} ago`),
      h("td", {}, machine.workflows.join(", ") || "-"),
      h("td", {}, machine.items.flatMap((entry) => [h("a", { href: `#/runs/${encodeURIComponent(entry.run)}/items/${encodeURIComponent(entry.item)}` }, entry.item), " "])),
      h("td", { class: "number" }, count(machine.ended, "item")));
  }

  draw(await get(path("machines")));
  const keys = hostKeys(host, true);
  const timer = setInterval(() => get(path("machines")).then(draw).catch((error) => clear(problems, h("p", { class: "notice bad" }, error.message))), INTERVAL);
  const ticking = setInterval(keys.tick, 1000);
  return { unmount() { clearInterval(timer); clearInterval(ticking); keys.unmount(); } };
}
