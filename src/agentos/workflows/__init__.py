"""The public API for writing workflows: these names are stable."""

from agentos.core.errors import InvalidSpec, ItemError
from agentos.core.planning.gates import Gate, GateRequest, ReviewAction, ReviewDecision
from agentos.core.planning.items import Candidate, Item, ItemStatus, SkippedFile, SkipReason
from agentos.core.protocol.ports import Documents, ModelRequest, ModelResponse
from agentos.core.protocol.results import Verdict
from agentos.workflows.base import Conclusion, GraphOptions, Workflow
from agentos.workflows.file_issue import Filing, file_issue
from agentos.workflows.graph_workflow import GraphItem
from agentos.workflows.markdown import (
    Page,
    folder_items,
    markdown_files,
    page_item,
    read_page,
    skipped_files,
)
from agentos.workflows.node_context import LineageFile, NodeContext

__all__ = [
    "Candidate",
    "Conclusion",
    "Documents",
    "Filing",
    "Gate",
    "GateRequest",
    "GraphItem",
    "GraphOptions",
    "InvalidSpec",
    "Item",
    "ItemError",
    "ItemStatus",
    "LineageFile",
    "ModelRequest",
    "ModelResponse",
    "NodeContext",
    "Page",
    "ReviewAction",
    "ReviewDecision",
    "SkipReason",
    "SkippedFile",
    "Verdict",
    "Workflow",
    "file_issue",
    "folder_items",
    "markdown_files",
    "page_item",
    "read_page",
    "skipped_files",
]
