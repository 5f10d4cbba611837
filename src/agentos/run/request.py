"""One `agentos run`, as asked for."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentos.config.settings import Settings

if TYPE_CHECKING:
    from agentos.core.planning.plan import Selection


@dataclass(frozen=True, slots=True)
class RunRequest:
    """`offline_arguments` are for the built-in model server."""

    workflow: str
    selection: "Selection"
    settings: Settings
    command: str
    offline: bool = False
    json: bool = False
    offline_arguments: tuple[str, ...] = ()
    display: str = "auto"
