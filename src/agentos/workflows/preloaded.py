"""Reads every text of the package when it is imported, so that workers do not depend on its files any more."""

from importlib import resources

from agentos.workflows.prompt_files import load_prompt_file

for _entry in (resources.files("agentos.workflows") / "prompts").iterdir():
    if _entry.name.endswith((".md", ".json")):
        load_prompt_file(_entry.name)
