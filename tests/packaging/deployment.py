"""Reads the files in `deploy/`: which containers run agentos, with which arguments and variables."""

import functools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from tests.audits.tree import ROOT

DEPLOY = ROOT / "deploy"
IMAGE = "agentos"
Document = dict[str, Any]


@dataclass(frozen=True)
class Container:
    """One container that runs our image. `where` names its file and the container."""

    where: str
    arguments: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)  # empty values come from a secret

    @property
    def command(self) -> str:
        return shlex.join(["agentos", *self.arguments])


@functools.cache
def documents(name: str) -> tuple[Document, ...]:
    """The YAML documents of a file in `deploy/`."""
    return tuple(yaml.safe_load_all((DEPLOY / name).read_text("utf-8")))


def yaml_files() -> list[str]:
    return sorted(str(path.relative_to(DEPLOY)) for path in DEPLOY.rglob("*.yaml"))


def manifests() -> list[Document]:
    return [found for name in yaml_files() if name.startswith("kubernetes/") for found in documents(name)]


def manifest(kind: str, name: str) -> Document:
    return next(found for found in manifests() if (found["kind"], found["metadata"]["name"]) == (kind, name))


def containers() -> list[Container]:
    return [*_services(), *_pods()]


def comment_commands() -> list[str]:
    """The command lines of agentos in the comments: behind `--` or the name of a service of compose."""
    found = []
    for path in sorted(DEPLOY.rglob("*.yaml")):
        for line in re.findall(r"^#   (.+)$", path.read_text("utf-8"), re.MULTILINE):
            _, _, rest = line.partition(" -- ") if " -- " in line else line.partition("--rm gateway ")
            found.append(rest if rest.startswith("agentos ") else f"agentos {rest}")
    return found


def _services() -> Iterator[Container]:
    for name, service in documents("compose.yaml")[0]["services"].items():
        if service["image"] == IMAGE:
            variables = {key: str(value) for key, value in service.get("environment", {}).items()}
            yield Container(f"compose.yaml, {name}", tuple(service["command"]), variables)


def _pods() -> Iterator[Container]:
    for found in manifests():
        for container in found["spec"].get("template", {}).get("spec", {}).get("containers", ()):
            variables = {entry["name"]: entry.get("value", "") for entry in container["env"]}
            where = f"{found['kind']} {found['metadata']['name']}, {container['name']}"
            yield Container(where, tuple(container["args"]), variables)
