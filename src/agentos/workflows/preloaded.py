"""Reads every text of the package when it is imported, so that workers do not depend on its files any more."""

from importlib import resources

from agentos.workflows.texts import package_text

for _entry in (resources.files("agentos.workflows") / "prompts").iterdir():
    if _entry.name.endswith((".md", ".json")):
        package_text(_entry.name)
