"""The texts that come with the package: prompts, and the schema of a verdict."""

import functools
from importlib import resources


@functools.cache
def load_prompt_file(name: str) -> str:
    """Read once in a process, and in those that are forked from it."""
    return (resources.files("agentos.workflows") / "prompts" / name).read_text("utf-8")
