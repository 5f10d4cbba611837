"""The parameters of one `agentos run`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentos.config.settings import Settings

if TYPE_CHECKING:
    from agentos.core.planning.plan import Selection


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What the user asked for.

    workflow: a built-in name, a plugin's name, or "module:object".
    selection: which items to run.
    command: the command line, repeated in hints on how to resume.
    offline_arguments: extra arguments for the built-in model server.
    """

    workflow: str
    selection: "Selection"
    settings: Settings
    command: str
    offline: bool = False
    json: bool = False
    offline_arguments: tuple[str, ...] = ()
    display: str = "auto"
