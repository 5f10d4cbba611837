"""The versions that pyproject.toml declares, as requirements for pip: `python -m tests.audits.lowest [lowest|newest|langchain]`.

Packages that agentos imports are pinned to their lower bounds, or stay as declared for the newest; LangChain's packages
for the vendors can be added. The tools that the tests need stay as declared.
"""

import re
import sys
import tomllib

from .tree import ROOT

TEST_TOOLS = ("flit_core", "hypothesis", "pyte", "pytest", "pytest-timeout", "pytest-xdist")
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[a-z,]+\])?>=(?P<lowest>[^,;]+)")


LANGCHAIN = (
    "langchain>=1.4",
    "langchain-anthropic>=1.7",
    "langchain-google-genai>=4.4",
    "langchain-openai>=1.7",
)


def requirements(wanted: str = "lowest") -> list[str]:
    """Everything that `make lowest` installs: `click==8.4`, ..., `pytest>=9.0`; or `make newest`, or `make langchain`."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project = declared["project"]
    extras = project["optional-dependencies"].values()
    runtime = [*project["dependencies"], *(requirement for extra in extras for requirement in extra)]
    tools = [
        tool for tool in declared["dependency-groups"]["dev"] if re.split(r"[>=<]", tool)[0] in TEST_TOOLS
    ]
    if wanted == "lowest":
        return [_lowest(requirement) for requirement in runtime] + tools
    return [*runtime, *(LANGCHAIN if wanted == "langchain" else ()), *tools]


def _lowest(requirement: str) -> str:
    found = REQUIREMENT.match(requirement)
    if found is None:
        raise ValueError(f"pyproject.toml: {requirement} has no lower bound")
    return f"{found['name']}=={found['lowest']}"


if __name__ == "__main__":
    sys.stdout.write("".join(f"{requirement}\n" for requirement in requirements(*sys.argv[1:])))
