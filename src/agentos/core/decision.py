"""What a run decides."""

from dataclasses import dataclass, field

from agentos.core.commands import Command
from agentos.core.events import News


@dataclass(slots=True)
class Decision:
    """Commands to be obeyed, news to be told."""

    commands: list[Command] = field(default_factory=list)
    news: list[News] = field(default_factory=list)
