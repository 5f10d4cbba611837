"""A kept answer that cannot be used is dropped once and asked for again."""

import asyncio
import contextlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agentos.core.errors import ItemError
from agentos.core.protocol.codec import pack
from agentos.core.protocol.ports import ModelRequest, ModelResponse
from agentos.core.protocol.results import Usage
from agentos.storage.checkpoints import open_checkpoint
from agentos.worker import model_session
from agentos.worker.model_session import ModelSession, _readable


@pytest.mark.parametrize("kept", ["{", "[]", json.dumps({"text": "\ud800", "model": "m"}), '{"text": 1}'])
def test_a_damaged_answer_is_not_used_and_dropped_only_once(tmp_path: Path, kept: str) -> None:
    assert _readable(kept) is None

    async def drop_twice() -> None:
        async with open_checkpoint(tmp_path / "item.db") as checkpoint:
            session = object.__new__(ModelSession)
            await session._drop(checkpoint, "draft 1", "draft")
            with pytest.raises(ItemError, match="for the second time"):
                await session._drop(checkpoint, "draft 1", "draft")

    asyncio.run(drop_twice())


class FakeCheckpoint:
    """Has checkpoints of one thread, and an answer under any name."""

    def __init__(self, thread_id: str) -> None:
        self.saver = self
        self.asked: list[str] = []
        self._thread_id = thread_id

    async def aget_tuple(self, config: dict[str, dict[str, str]]) -> Any:
        is_known = config["configurable"]["thread_id"] == self._thread_id
        return SimpleNamespace(checkpoint={"id": "step-7"}) if is_known else None

    async def noted(self, name: str) -> str:
        self.asked.append(name)
        return json.dumps(pack(ModelResponse("text", "model", Usage())))


def test_a_call_from_a_thread_of_its_own_belongs_to_the_step_of_the_stores_thread() -> None:
    async def complete() -> list[str]:
        task: Any = SimpleNamespace(
            item=SimpleNamespace(id="LLD-1"), run="run-1", call_timeouts=(), models=(), fleet=None
        )
        channel: Any = SimpleNamespace(send=None)
        store: Any = SimpleNamespace(thread_id="shop/LLD-1")
        checkpoint: Any = FakeCheckpoint("shop/LLD-1")
        await ModelSession(task, channel, store).complete(checkpoint, "", ModelRequest("drafter", "Hello"))
        return list(checkpoint.asked)

    (name,) = asyncio.run(complete())
    assert name.startswith("answer step-7 ")


class ClosedStore:
    """Takes no notes until it was asked `refusals` times."""

    thread_id, place = "shop/LLD-1", "Postgres"

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.kept: list[str] = []

    async def note(self, name: str, text: str) -> None:
        if self.refusals:
            self.refusals -= 1
            raise ConnectionError
        self.kept.append(name)

    def is_unavailable(self, error: BaseException) -> bool:
        return isinstance(error, ConnectionError)

    async def unavailable(self) -> str:
        return self.place if self.refusals else ""


@pytest.mark.parametrize(("refusals", "kept"), [(2, ["answer"]), (100, [])])
def test_a_stopped_item_tries_for_some_time_to_keep_an_answer_that_it_paid_for(
    refusals: int, kept: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_session, "STORE_POLL_INTERVAL", 0.0)

    async def keep() -> list[str]:
        task: Any = SimpleNamespace(
            item=SimpleNamespace(id="LLD-1"), run="run-1", call_timeouts=(), models=(), fleet=None
        )
        store: Any = ClosedStore(refusals)
        session = ModelSession(task, cast(Any, SimpleNamespace(send=lambda event: None)), store)
        session.stopping.set()
        with contextlib.suppress(ConnectionError):
            await session._keep(store, "answer", "text")
        found: list[str] = store.kept
        return found

    assert asyncio.run(keep()) == kept


def test_a_graph_that_runs_again_in_the_same_worker_gets_the_answers_that_are_kept() -> None:
    """As after an outage of the store: the task makes the same calls, in the same order."""

    async def complete() -> list[str]:
        task: Any = SimpleNamespace(
            item=SimpleNamespace(id="LLD-1"), run="run-1", call_timeouts=(), models=(), fleet=None
        )
        channel: Any = SimpleNamespace(send=None)
        store: Any = SimpleNamespace(thread_id="shop/LLD-1")
        checkpoint: Any = FakeCheckpoint("shop/LLD-1")
        session = ModelSession(task, channel, store)
        for _ in range(2):
            session.restart_graph()
            for _ in range(2):
                await session.complete(checkpoint, "task", ModelRequest("drafter", "Hello"))
        return list(checkpoint.asked)

    first, second, *again = asyncio.run(complete())
    assert first != second
    assert again == [first, second]
