"""Tokens of an item that needs five reviews: sections and numbered points against whole drafts and all feedback.

`python -m bench.revision_cost`. The model is scripted: a design of eight sections, and four reviews that each find one
problem in one section. The loop is the product's own; of the earlier way, which rewrote the whole document in every round
and sent all verdicts again, the prompts are put together here in the same way. A token is four characters.
"""

import asyncio
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agentos.core.planning.items import Item
from agentos.core.protocol.ports import ModelRequest, ModelResponse
from agentos.core.protocol.results import Usage, Verdict
from agentos.models import CHARS_PER_TOKEN
from agentos.storage.files import ProjectFolder
from agentos.workflows.material import CodeState, Material
from agentos.workflows.node_context import NodeContext
from agentos.workflows.review_loop import ReviewLoop

ROUNDS = 5
SECTIONS = (
    "Context",
    "Requirements",
    "Design",
    "Interfaces",
    "Failure modes",
    "Test plan",
    "Rollout",
    "Open questions",
)
REVISED = ("Failure modes", "Test plan", "Interfaces", "Rollout")
OLD_DRAFT_PROMPT, OLD_REVIEW_PROMPT = (
    3_586,
    3_094,
)  # characters of the earlier prompt files without their material
SENTENCE = "The page shows the newest 3 rows within 200 ms, and says so when the store cannot be reached. "
ISSUE = "# Show rows\n\n" + SENTENCE * 12
PRICES = {"claude-sonnet-4-5": (3.0, 15.0), "gemini-2.5-pro": (1.25, 10.0)}  # dollars per million tokens
AIM = 0.25  # the share of the cost that is to be saved


@dataclass(slots=True)
class TokenCount:
    sent: int = 0
    written: int = 0

    def add(self, prompt: int, answer: str) -> None:
        self.sent += prompt // CHARS_PER_TOKEN
        self.written += len(answer) // CHARS_PER_TOKEN

    def cost(self, model: str) -> float:
        price_in, price_out = PRICES[model]
        return (self.sent * price_in + self.written * price_out) / 1e6


class NoCode(Material):
    """A project without code: nothing to show, nothing to check."""

    def texts(self, state: CodeState, source: str) -> Mapping[str, str]:
        return {"project": "", "code": ""}


def section(name: str, version: int) -> str:
    return f"## {name}\n\nVersion {version}. {SENTENCE * 9}".strip()


def document(version: int) -> str:
    """The design after so many revisions, each of which changed one section."""
    versions = {name: number for number, name in enumerate(REVISED[:version], 1)}
    return "\n\n".join(["# Low-level design: Show rows", *(section(n, versions.get(n, 0)) for n in SECTIONS)])


def verdict(number: int) -> dict[str, object]:
    """The scripted review: one new point in each round but the last, the earlier one resolved."""
    is_last = number == ROUNDS
    issue = {"severity": "critical", "description": f"Point of round {number}: " + SENTENCE * 3}
    return {
        "verdict": "APPROVED" if is_last else "REVISE",
        "rationale": SENTENCE * 2,
        "earlier_points": [{"point": number - 1, "status": "resolved"}] if number > 1 else [],
        "blocking_issues": [] if is_last else [{"section": REVISED[number - 1], **issue}],
    }


def by_sections() -> TokenCount:
    """The product's loop with the scripted model."""
    counted = TokenCount()

    async def ask(call: str, request: ModelRequest) -> ModelResponse:
        role, number = call.split("-")[0], int(call.split("-")[1])
        revision = section(REVISED[number - 2], number - 1) if number > 1 else document(0)
        text = revision if role == "draft" else json.dumps(verdict(number))
        counted.add(request.size, text)
        return ModelResponse(text, "scripted", Usage(1))

    async def run(folder: Path) -> None:
        item = Item("LLD-1", "lld", 1, "Show rows", "issues/001.md", "digest")
        context = NodeContext(item, ProjectFolder(folder), ask, lambda line: None, ROUNDS)
        loop = ReviewLoop(context, "lld", "issue", NoCode())
        state = await loop.load(ISSUE, ())
        for _ in range(ROUNDS):
            state |= await loop.draft(state)
            state |= await loop.review(state)
        assert state["verdict"] == Verdict.APPROVED.value
        assert (folder / state["draft"]["path"]).read_text().strip() == document(ROUNDS - 1).strip()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))
    return counted


def by_whole_drafts() -> TokenCount:
    """The earlier way: every draft is the whole document, with all verdicts so far in the prompt."""
    counted = TokenCount()
    feedback = draft = ""
    for number in range(1, ROUNDS + 1):
        before, draft = draft, document(number - 1)
        counted.add(OLD_DRAFT_PROMPT + len(ISSUE + before + feedback), draft)
        answer = {key: value for key, value in verdict(number).items() if key != "earlier_points"}
        counted.add(OLD_REVIEW_PROMPT + len(ISSUE + draft), json.dumps(answer))
        feedback += f"# Review {number}: needs revision\n\nReviewer: scripted\n\n{json.dumps(answer)}\n\n"
    return counted


def main() -> None:
    old, new = by_whole_drafts(), by_sections()
    print(f"{'way':<26} {'tokens in':>10} {'out':>7}  " + "  ".join(f"{model:>18}" for model in PRICES))
    for name, count in (("whole drafts, all feedback", old), ("sections, numbered points", new)):
        costs = "  ".join(f"{'$':>10}{count.cost(model):8.4f}" for model in PRICES)
        print(f"{name:<26} {count.sent:>10,} {count.written:>7,}  {costs}")
    saved = {model: 1 - new.cost(model) / old.cost(model) for model in PRICES}
    print("saved: " + ", ".join(f"{share:.0%} ({model})" for model, share in saved.items()))
    if min(saved.values()) < AIM:
        raise SystemExit(f"less than {AIM:.0%} saved")


if __name__ == "__main__":
    main()
