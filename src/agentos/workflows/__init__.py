"""The public API for writing workflows: these names are stable."""

from agentos.core.errors import InvalidSpec, ItemError
from agentos.core.planning.gates import Gate, GateRequest, ReviewAction, ReviewDecision
from agentos.core.planning.items import Candidate, Item, ItemStatus, SkippedFile, SkipReason
from agentos.core.protocol.ports import Documents, ModelRequest, ModelResponse
from agentos.core.protocol.results import Verdict
from agentos.regular_files import UnsafeFile, check_folder, list_folder, read_regular
from agentos.workflows.base import Conclusion, GraphOptions, Workflow
from agentos.workflows.file_issue import Filing, file_issue, slug_of
from agentos.workflows.graph_workflow import GraphItem
from agentos.workflows.markdown import (
    Page,
    file_number,
    folder_items,
    in_file,
    markdown_files,
    page_item,
    page_of,
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
    "UnsafeFile",
    "Verdict",
    "Workflow",
    "check_folder",
    "file_issue",
    "file_number",
    "folder_items",
    "in_file",
    "list_folder",
    "markdown_files",
    "page_item",
    "page_of",
    "read_page",
    "read_regular",
    "skipped_files",
    "slug_of",
]
