"""The numbered Markdown files of a folder, as items."""

from pathlib import Path
from typing import Protocol

from agentos.core.planning.items import Item
from agentos.workflows.sources.markdown import Page, markdown_files, read_page


class WorkflowIdentity(Protocol):
    name: str
    prefix: str


def folder_items(workflow: WorkflowIdentity, project: Path, folder: str) -> list[Item]:
    """By number: the one in the front matter, else in the file's name; a file without any is left out."""
    pages = [read_page(path) for path in markdown_files(project / folder)]
    items = [page_item(workflow, page, page.number, folder) for page in pages if page.number is not None]
    return sorted(items, key=lambda item: (item.number, item.source))


def page_item(workflow: WorkflowIdentity, page: Page, number: int, folder: str) -> Item:
    return Item(
        id=f"{workflow.prefix}-{number}",
        workflow=workflow.name,
        number=number,
        title=page.title,
        source=f"{folder}/{page.path.name}",
        digest=page.digest,
        labels=page.labels,
    )
