"""The issues of a repository, as pages that workflows read."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from agentos.workflows.github.client import GitHub, Json
from agentos.workflows.sources.markdown import Page, page_of


async def open_pages(github: GitHub, repository: str) -> list[Page]:
    """Every open issue; pull requests, which GitHub lists among them, are none."""
    found, _ = await github.list("/issues", state="open", sort="created", direction="asc")
    return [page for issue in found if (page := as_page(issue, repository))]


def as_page(issue: Json, repository: str) -> Page | None:
    number = issue.get("number")
    if type(number) is not int or number < 1 or "pull_request" in issue:
        return None
    title, body = str(issue.get("title") or ""), str(issue.get("body") or "")
    text = f"# {title}\n\n{body.replace(chr(13), '')}".rstrip() + "\n"
    page = page_of(Path(f"{repository}#{number}"), text)
    return replace(page, number=number, labels=_labels(issue.get("labels")))


def _labels(value: Any) -> tuple[str, ...]:
    entries = value if isinstance(value, list) else []
    names = [entry.get("name") if isinstance(entry, dict) else entry for entry in entries]
    return tuple(name for name in names if isinstance(name, str))
