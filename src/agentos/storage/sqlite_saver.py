"""LangGraph's SQLite saver, which here drops the output of tasks that were cut short. Imported only when needed."""

from typing import Any

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from agentos.storage.task_writes import whole_output


class WholeOutputSaver(AsyncSqliteSaver):
    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        await super().aput_writes(config, whole_output(writes), task_id, task_path)
