"""The promises, checked against the model server's log, the campaign's triggers in Postgres, Temporal's histories and files."""

import asyncio
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from temporalio.client import Client

from agentos.core.planning.submission import thread_id
from tests.fleet.chaos.cluster import CONCURRENCY, Cluster
from tests.fleet.chaos.faults import DEATHS, Fault, Injected
from tests.fleet.chaos.observer import Seen, observed, of_kind

CALLS_PER_ITEM = 6  # three drafts, three reviews
DRAIN_GRACE = 1.5  # seconds; a drained worker abandons a call that has not ended after 2 s
Call = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Turns:
    """What Temporal says about one item: turns that had an earlier attempt, and the most failures that it counted."""

    status: str
    turns: int
    repeated_attempts: int
    tries: int


@dataclass(frozen=True, slots=True)
class FleetEvidence:
    """Everything that was recorded, by others than the product."""

    items: list[int]
    calls: list[Call]
    seen: list[Seen]
    turns: dict[str, Turns]
    injected: list[Injected]
    documents: list[str]
    lineages: list[str]
    said: str

    def accepted(self) -> list[Call]:
        """Calls that cost money: answered, also when nobody waited for the answer."""
        return [call for call in self.calls if call["status"] == 200 or call["ending"] == "dropped"]


def collect_evidence(cluster: Cluster, items: list[int], injected: list[Injected]) -> FleetEvidence:
    fleet = cluster.fleet
    names = [f"LLD-{number}" for number in items]
    return FleetEvidence(
        items,
        cluster.calls(),
        observed(cluster.postgres.admin_url),
        asyncio.run(_turns(cluster.temporal.address, fleet.name, names)),
        sorted(injected, key=lambda each: each.began),
        fleet.documents(),
        sorted(path.name for path in (fleet.project / "docs/lineage/done").glob("*")),
        "".join(path.read_text("utf-8", "replace") for path in fleet.folder.glob("*.log")),
    )


def keep_evidence(evidence: FleetEvidence, file: Path) -> None:
    """For whoever looks into a violation: the databases are gone by then."""
    file.write_text(json.dumps(asdict(evidence), default=str, indent=1))


async def _turns(address: str, project: str, items: Sequence[str]) -> dict[str, Turns]:
    client = await Client.connect(address)
    found = {}
    for item in items:
        handle = client.get_workflow_handle(thread_id(project, item))
        history = await handle.fetch_history()
        scheduled = [
            json.loads(event.activity_task_scheduled_event_attributes.input.payloads[0].data)
            for event in history.events
            if event.HasField("activity_task_scheduled_event_attributes")
        ]
        attempts = [
            event.activity_task_started_event_attributes.attempt
            for event in history.events
            if event.HasField("activity_task_started_event_attributes")
        ]
        status = (await handle.describe()).status
        found[item] = Turns(
            status.name if status else "",
            len(scheduled),
            sum(attempts) - len(attempts),
            max((turn["tries"] for turn in scheduled), default=0),
        )
    return found


def check_promises(evidence: FleetEvidence) -> dict[str, list[str]]:
    found = {
        "lost": lost(evidence),
        "failed": failed(evidence),
        "done twice": done_twice(evidence),
        "documents twice": documents_twice(evidence),
        "finished nodes repeated": repeated_nodes(evidence),
        "calls repeated without a death": repeated_calls(evidence),
        "attempts used up without a death": attempts_used_up(evidence),
        "keys over their limit": keys_over_their_limit(evidence),
        "tracebacks": (line for line in evidence.said.splitlines() if "Traceback (most" in line),
    }
    return {promise: list(against) for promise, against in found.items()}


def lost(evidence: FleetEvidence) -> Iterator[str]:
    done = {entry.item for entry in of_kind(evidence.seen, "done")}
    for number in evidence.items:
        if f"LLD-{number:03}.md" not in evidence.documents:
            yield f"LLD-{number} has no document"
        if f"{number}-lld" not in evidence.lineages:
            yield f"LLD-{number} has no lineage"
        if f"LLD-{number}" not in done:
            yield f"LLD-{number} is not done in Postgres"
    prompts: dict[str, set[str]] = defaultdict(set)
    for call in evidence.accepted():
        prompts[call["item"]].add(f"{call['role']} {call['prompt_sha256']}")
    for number in evidence.items:
        if (count := len(prompts[f"Thing {number}"])) != CALLS_PER_ITEM:
            yield f"LLD-{number} has {count} different calls, not {CALLS_PER_ITEM}"


def failed(evidence: FleetEvidence) -> Iterator[str]:
    for entry in of_kind(evidence.seen, "outcome"):
        if entry.detail not in ("finished", "finished_by_other_run"):
            yield f"{entry.item} ended as {entry.other[:200]}"
    for item, turns in evidence.turns.items():
        if turns.status != "COMPLETED":
            yield f"the workflow of {item} is {turns.status}"


def done_twice(evidence: FleetEvidence) -> Iterator[str]:
    counts = Counter(entry.item for entry in of_kind(evidence.seen, "done"))
    yield from (f"{item} was done {count} times" for item, count in counts.items() if count > 1)
    over: set[str] = set()
    for entry in evidence.seen:
        if entry.kind == "done":
            over.add(entry.item)
        elif entry.kind in ("step", "document") and entry.item in over:
            yield f"{entry.item}: {entry.kind} {entry.detail} after it was done"


def documents_twice(evidence: FleetEvidence) -> Iterator[str]:
    for name, count in Counter(evidence.documents).items():
        if count > 1:
            yield f"{name} is in {count} folders"
    texts: dict[tuple[str, str], set[str]] = defaultdict(set)
    for entry in of_kind(evidence.seen, "document"):
        if entry.detail.startswith("docs/lld/") and entry.other != "removed":
            texts[entry.item, entry.detail.rpartition("/")[2]].add(f"{entry.detail} {entry.other}")
    for (item, name), versions in texts.items():
        if len(versions) > 1:
            yield f"{item}: {name} was written with {len(versions)} texts or places"


def repeated_nodes(evidence: FleetEvidence) -> Iterator[str]:
    """A step that Postgres has committed is never committed again."""
    counts = Counter((entry.item, entry.detail) for entry in of_kind(evidence.seen, "step"))
    for (item, step), count in counts.items():
        if count > 1:
            yield f"{item}: step {step} was committed {count} times"


def repeated_calls(evidence: FleetEvidence) -> Iterator[str]:
    """Each repeated call needs a death of its own, of the machine that had the item or of the gateway, after the call that
    it repeats began."""
    for item, calls in _repeats(evidence).items():
        excuses = [each for each in evidence.injected if _may_repeat(evidence, each, item)]
        for first, second in calls:
            excuse = next((each for each in excuses if _explains(each, first, second)), None)
            if excuse is None:
                yield f"{item}: calls {first['seq']} and {second['seq']} ({first['ending']}, {first['status']})"
            else:
                excuses.remove(excuse)


def extra_calls(evidence: FleetEvidence) -> int:
    return sum(len(pairs) for pairs in _repeats(evidence).values())


def _repeats(evidence: FleetEvidence) -> dict[str, list[tuple[Call, Call]]]:
    same: dict[tuple[str, ...], list[Call]] = defaultdict(list)
    for call in sorted(evidence.accepted(), key=lambda call: float(call["started"])):
        same[call["item"], call["role"], call["prompt_sha256"]].append(call)
    found: dict[str, list[tuple[Call, Call]]] = defaultdict(list)
    for (title, *_), calls in same.items():
        found[title.replace("Thing ", "LLD-")] += pairwise(calls)
    return found


def _may_repeat(evidence: FleetEvidence, injected: Injected, item: str) -> bool:
    if injected.fault is Fault.GATEWAY:
        return True
    if injected.fault not in (*DEATHS, Fault.DRAIN):
        return False
    return injected.machine in _machines(evidence, item, injected.began, injected.ended)


def _explains(injected: Injected, first: Call, second: Call) -> bool:
    if injected.fault is Fault.DRAIN:  # it waits for calls, but not for longer than this
        return bool(first["started"] < injected.ended and first["ended"] > injected.began + DRAIN_GRACE)
    return bool(first["started"] <= injected.ended and injected.began <= second["started"])


def _machines(evidence: FleetEvidence, item: str, began: float, ended: float) -> set[str]:
    """Those that had claimed the item at some moment of this time."""
    claims = [entry for entry in of_kind(evidence.seen, "claim") if entry.item == item]
    ends = [*(entry.at.timestamp() for entry in claims[1:]), float("inf")]
    return {
        entry.other
        for entry, end in zip(claims, ends, strict=True)
        if entry.at.timestamp() <= ended and began <= end
    }


def attempts_used_up(evidence: FleetEvidence) -> Iterator[str]:
    """Temporal counts an attempt for each death of a machine, and nothing else."""
    for entry in of_kind(evidence.seen, "retried"):
        yield f"{entry.item} used up a try: {entry.detail[:200]}"
    for item, turns in evidence.turns.items():
        if turns.tries:
            yield f"{item}: {turns.tries} turns counted as failed"
    claims: dict[str, list[_ClaimSeen]] = defaultdict(list)
    for entry in of_kind(evidence.seen, "claim"):
        submission, turn, attempt = map(int, re.findall(r"\d+", entry.detail))
        claims[entry.item].append(_ClaimSeen((submission, turn), attempt, entry.other, entry.at.timestamp()))
    for item, entries in claims.items():
        for before, claim in pairwise([None, *entries]):
            assert claim is not None
            if missing := _deaths_missing(evidence, before, claim):
                yield f"{item}: attempt {claim.attempt} of turn {claim.turn[1]}, {missing} of them without a death"


@dataclass(frozen=True, slots=True)
class _ClaimSeen:
    turn: tuple[int, int]
    attempt: int
    machine: str
    at: float


def _deaths_missing(evidence: FleetEvidence, before: _ClaimSeen | None, claim: _ClaimSeen) -> int:
    """How many attempts between two claims no death explains. The machine that had the item must have died since; an attempt
    without a claim was on any machine that died before its process had claimed it."""
    same = before if before and before.turn == claim.turn else None
    needed = claim.attempt - (same.attempt if same else 1)
    since = before.at if before else 0.0
    deaths = [
        each
        for each in evidence.injected
        if each.fault in DEATHS and each.ended >= since and each.began <= claim.at
    ]
    if same and needed and not any(each.machine == same.machine for each in deaths):
        return needed
    return max(0, needed - len(deaths))


def keys_over_their_limit(evidence: FleetEvidence) -> Iterator[str]:
    """The model server refuses what is over a key's rate; how many calls run at once is for us to keep."""
    for call in evidence.calls:
        if call["status"] == 429:
            yield f"call {call['seq']} with {call['key']} was refused at {call['started']:.1f}"
    by_key: dict[str, list[Call]] = defaultdict(list)
    for call in evidence.calls:
        by_key[call["key"]].append(call)
    for key, calls in by_key.items():
        # Those that end first at the same moment.
        moments = sorted([(call["started"], 1) for call in calls] + [(call["ended"], -1) for call in calls])
        at_once = most = 0
        for _, change in moments:
            at_once += change
            most = max(most, at_once)
        if most > CONCURRENCY:
            yield f"{key}: {most} calls at once, {CONCURRENCY} allowed"
