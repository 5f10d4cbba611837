"""What is done to a document; these names are all that a workflow of one's own needs."""

from agentos.core.errors import InvalidSpec, ItemError
from agentos.core.items import Item
from agentos.core.plan import Candidate, Standing
from agentos.core.ports import Answer, Documents, Question
from agentos.core.results import Verdict
from agentos.workflows.base import Conclusion, Workflow
from agentos.workflows.desk import Desk, Kept
from agentos.workflows.sources.folder import folder_items, page_item
from agentos.workflows.sources.markdown import Page, markdown_files, read_page

__all__ = [
    "Answer",
    "Candidate",
    "Conclusion",
    "Desk",
    "Documents",
    "InvalidSpec",
    "Item",
    "ItemError",
    "Kept",
    "Page",
    "Question",
    "Standing",
    "Verdict",
    "Workflow",
    "folder_items",
    "markdown_files",
    "page_item",
    "read_page",
]
