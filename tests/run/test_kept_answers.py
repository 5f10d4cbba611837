"""A kept answer that cannot be used is dropped once and asked for again."""

import asyncio
import json
from pathlib import Path

import pytest

from agentos.core.errors import ItemError
from agentos.storage.checkpoints import open_checkpoint
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
