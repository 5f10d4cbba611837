"""Prompts and the verdict schema, read from the files that come with the package."""

import functools
from importlib import resources


@functools.cache
def load_prompt_file(name: str) -> str:
    """The text of one file; read once per process and shared with processes forked from it."""
    return (resources.files("agentos.workflows") / "prompts" / name).read_text("utf-8")


def load_all_prompt_files() -> None:
    """Read every file now, so that processes forked later do not depend on the files."""
    for entry in (resources.files("agentos.workflows") / "prompts").iterdir():
        if entry.name.endswith((".md", ".json")):
            load_prompt_file(entry.name)
