"""Prints the bill of materials of the runtime lock file as CycloneDX JSON: `python -m tests.audits.sbom`."""

import json
import re
import sys
import tomllib
from typing import Any

import agentos

from .tree import ROOT

LOCK = ROOT / "requirements" / "run.txt"
_ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)(?:\s*;\s*(.*?))?\s*((?:--hash=sha256:[0-9a-f]{64}\s*)+)$")


def bill() -> dict[str, Any]:
    """Built from the lock file alone, so that it is the same on every machine."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "name": project["name"], "version": agentos.__version__}
        },
        "components": [_component(line) for line in locked()],
    }


def locked() -> list[str]:
    """The requirements of the lock file, one line each."""
    text = LOCK.read_text("utf-8").replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def text() -> str:
    return json.dumps(bill(), indent=1) + "\n"


def _component(line: str) -> dict[str, Any]:
    found = _ENTRY.match(line)
    if found is None:
        raise ValueError(f"{LOCK.name}: not a pinned requirement with hashes: {line[:60]}")
    name, version, condition, hashes = found.groups()
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": f"pkg:pypi/{_plain(name)}@{version}",
        "name": _plain(name),
        "version": version,
        "purl": f"pkg:pypi/{_plain(name)}@{version}",
        "properties": [
            {"name": "lock:sha256", "value": digest.removeprefix("--hash=sha256:")}
            for digest in hashes.split()
        ],
    }
    if condition:
        component["properties"].append({"name": "lock:marker", "value": condition.strip()})
    return component


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).casefold()


if __name__ == "__main__":
    sys.stdout.write(text())
