"""Drafts and reviews as real servers give them, through each vendor's SDK: cut, withheld, empty, wrapped, unreadable."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from bench.revision_cost import NoCode

from agentos.core.errors import ItemError
from agentos.core.planning.items import Item
from agentos.core.planning.worker_task import RoleModel
from agentos.core.protocol.ports import ModelRequest, ModelResponse
from agentos.http.connection import Connection, HttpRequest
from agentos.storage.files import ProjectFolder
from agentos.workflows.node_context import NodeContext
from agentos.workflows.review_loop import ReviewLoop, State
from tests.gateway.scripted import provider
from tests.models.streams import LENGTH, OUTPUT_TOKENS, STOP, LeasedWorker, send_events, whole_stream
from tests.models.test_providers import VENDORS, close_clients

WITHHELD = {"gemini": "RECITATION", "anthropic": "refusal", "openai": "content_filter"}
ISSUE = "# Show rows\n\nPeople cannot see rows.\n\n- The page shows 3 rows.\n"
DRAFT = "# Low-level design: Show rows\n\n## Context\n\nNo rows today.\n\n## Test plan\n\n- one\n"
APPROVED: dict[str, object] = {
    "verdict": "APPROVED",
    "rationale": "Good.",
    "earlier_points": [],
    "blocking_issues": [],
}
REVISE: dict[str, object] = APPROVED | {
    "verdict": "REVISE",
    "blocking_issues": [{"section": "Test plan", "severity": "major", "description": "R1 has no test"}],
}


@dataclass
class Loop:
    """The nodes of the review loop for one issue, with the answers of a scripted server."""

    vendor: str
    runner: asyncio.Runner
    worker: LeasedWorker
    nodes: ReviewLoop
    said: list[str]
    sent: list[str]
    forgotten: list[str]
    answers: list[bytes] = field(default_factory=list)
    state: State = field(default_factory=lambda: State())

    def given(self, *texts: str | dict[str, object], finish: str = "") -> "Loop":
        for text in texts:
            words = text if isinstance(text, str) else json.dumps(text)
            pieces = [words[:9], words[9:]] if words else []
            self.answers.append(whole_stream(self.vendor, pieces, finish or STOP[self.vendor]))
        return self

    def draft(self) -> str:
        self.state |= self.runner.run(self.nodes.draft(self.state))
        return self.nodes._context.read_lineage(self.state["draft"])

    def review(self) -> State:
        self.state |= self.runner.run(self.nodes.review(self.state))
        return self.state

    def failure(self, node: Callable[[], object]) -> ItemError:
        with pytest.raises(ItemError) as caught:
            node()
        return caught.value


@contextmanager
def opened(vendor: str, folder: Path) -> Iterator[Loop]:
    waiting: list[bytes] = []
    sent: list[str] = []

    async def act(incoming: HttpRequest, out: Connection) -> None:
        sent.append(incoming.body.decode())
        send_events(out, waiting.pop(0))

    with provider(act) as url, asyncio.Runner() as runner:
        drafter = LeasedWorker(vendor, url, RoleModel("drafter", (vendor,), ("m",)), 30.0)
        reviewer = LeasedWorker(vendor, url, RoleModel("reviewer", (vendor,), ("m",)), 30.0)
        calls: set[str] = set()

        async def ask(call: str, request: ModelRequest) -> ModelResponse:
            assert call not in calls, "each call has a name of its own"
            calls.add(call)
            worker = drafter if request.role == "drafter" else reviewer
            return await worker.model.complete(call, request)

        async def forget(*names: str) -> None:
            forgotten.extend(names)

        said: list[str] = []
        forgotten: list[str] = []
        item = Item("LLD-1", "lld", 1, "Show rows", "issues/001.md", "digest")
        context = NodeContext(item, ProjectFolder(folder), ask, said.append, 5, forget=forget)
        nodes = ReviewLoop(context, "lld", "issue", NoCode())
        loop = Loop(vendor, runner, drafter, nodes, said, sent, forgotten, waiting)
        loop.state = runner.run(nodes.load(ISSUE, ()))
        try:
            yield loop
        finally:
            for worker in (drafter, reviewer):
                runner.run(close_clients(worker.client))
            runner.run(asyncio.sleep(0.01))  # until the transports have closed, too


@pytest.fixture(params=VENDORS)
def loop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Loop]:
    with opened(request.param, tmp_path) as found:
        yield found


# Drafts


def test_a_draft_that_is_cut_is_asked_for_once_more_with_the_limit(loop: Loop) -> None:
    loop.given("# Low-level design: half", finish=LENGTH[loop.vendor]).given(DRAFT)
    assert loop.draft() == DRAFT
    assert f"cut off at the limit of {OUTPUT_TOKENS:,} tokens" in loop.said[0]
    assert f"cut off at the limit of {OUTPUT_TOKENS:,} tokens" in loop.sent[1]


def test_a_draft_that_is_cut_twice_is_a_named_failure_and_never_reviewed(loop: Loop) -> None:
    loop.given("# Low-level design: half", "# Low-level design: hal", finish=LENGTH[loop.vendor])
    error = loop.failure(loop.draft)
    assert str(error).startswith(
        "no complete draft after two calls: the last answer was cut off at the limit"
    )
    assert error.details == ("raise max_output_tokens in agentos.toml, or split the item",)
    assert loop.forgotten == ["draft-1", "draft-1-again"], "the next run asks again"
    assert "draft" not in loop.state


def test_a_draft_that_the_provider_withholds_is_never_reviewed(loop: Loop) -> None:
    loop.given("# Low-level design: half", "# Low-level", finish=WITHHELD[loop.vendor])
    error = loop.failure(loop.draft)
    assert "withheld or cut off by the provider" in str(error) and WITHHELD[loop.vendor] in str(error)


def test_an_empty_draft_is_asked_for_once_more_and_never_kept(loop: Loop) -> None:
    loop.given("", finish=LENGTH[loop.vendor]).given("<think>only thoughts</think>\n\n```\n\n```")
    error = loop.failure(loop.draft)
    assert "is empty" in str(error) and "is empty" in loop.said[0]
    assert [event.usage.output_tokens for event in loop.worker.released] == [OUTPUT_TOKENS] * 2


def test_thoughts_and_a_fence_around_a_draft_are_taken_off(loop: Loop) -> None:
    loop.given(f"<think>First, rows.</think>\n```markdown\n{DRAFT}```\n")
    assert loop.draft() == DRAFT


# Reviews


@pytest.fixture
def drafted(loop: Loop) -> Loop:
    loop.given(DRAFT)
    loop.draft()
    return loop


def test_an_unreadable_review_is_asked_for_once_more_with_what_is_wrong(drafted: Loop) -> None:
    drafted.given("I like it. APPROVED.", APPROVED)
    assert drafted.review()["verdict"] == "approved"
    assert "it is not JSON" in drafted.said[1] and "it is not JSON" in drafted.sent[2]


def test_a_review_that_stays_unreadable_fails_by_name_and_pays_no_redraft(drafted: Loop) -> None:
    drafted.given("no", '{"verdict": "APPR', finish=LENGTH[drafted.vendor])
    error = drafted.failure(drafted.review)
    assert str(error) == (
        f"the reviewer's answers cannot be read (cut off at {OUTPUT_TOKENS:,} tokens; "
        "does the server support response_format?)"
    )
    assert drafted.forgotten == ["review-1", "review-1-again"]
    assert len(drafted.sent) == 3 and drafted.state["round"] == 1


def test_a_fenced_review_after_thoughts_is_read(drafted: Loop) -> None:
    drafted.given(f"<think>Hm.</think>\n```json\n{json.dumps(APPROVED)}\n```")
    assert drafted.review()["verdict"] == "approved"


def test_a_revision_replaces_a_section_and_the_next_review_sees_the_numbered_point(drafted: Loop) -> None:
    drafted.given(REVISE).review()
    drafted.given("## Test plan\n\n- `test_rows` (R1) passes when: 3 rows are shown.")
    assert drafted.draft() == DRAFT.replace("- one", "- `test_rows` (R1) passes when: 3 rows are shown.")
    resolved = APPROVED | {"earlier_points": [{"point": 1, "status": "resolved"}]}
    assert drafted.given(resolved).review()["verdict"] == "approved"
    assert "Point 1, Test plan** (major): R1 has no test" in drafted.sent[-1]


def test_the_loop_stops_on_a_point_that_stays_open_whatever_its_words(drafted: Loop) -> None:
    drafted.given(REVISE).review()
    drafted.given("## Test plan\n\n- still one").draft()
    still = REVISE | {"earlier_points": [{"point": 1, "status": "open"}], "blocking_issues": []}
    state = drafted.given(still).review()
    assert state["stop_reason"] == "two reviews in a row named the same blocking issues"


def test_the_drafter_sees_the_latest_verdict_whole_and_older_ones_as_a_line(drafted: Loop) -> None:
    drafted.given(REVISE).review()
    drafted.given("## Test plan\n\n- two").draft()
    second = {"section": "Context", "severity": "critical", "description": "It is wrong"}
    answer = {"earlier_points": [{"point": 1, "status": "resolved"}], "blocking_issues": [second]}
    drafted.given(REVISE | answer).review()
    drafted.given("## Context\n\nRight.").draft()
    assert (
        "Review 1: needs revision (open: 1)" in drafted.sent[-1] and "R1 has no test" not in drafted.sent[-1]
    )
    assert "Point 2, Context** (critical): It is wrong" in drafted.sent[-1]


def test_a_revision_without_a_section_is_asked_for_once_more(drafted: Loop) -> None:
    drafted.given(REVISE).review()
    drafted.given("I have added the test.", "## Test plan\n\n- two")
    assert drafted.draft() == DRAFT.replace("- one", "- two")
    assert "contains no section" in drafted.said[-2]
