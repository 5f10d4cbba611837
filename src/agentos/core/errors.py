"""Every error that agentos raises on purpose.

AgentosError
├── UsageError          the words on the command line            exit 2
├── PreflightError      config, project or home is unusable      exit 3
│   ├── UnsupportedFormat  the journal of a run was written by another version of agentos
│   └── BrokenWorkflow  somebody's workflow cannot be used as it is
├── NoCredentials       no key that could be used                exit 4
├── NothingMatches      what was named or labelled is not there  exit 5
├── LimitReached        a limit outside lasts longer than may be waited; resumable  exit 75
├── TrackerError        the place of the issues cannot be used   exit 3
├── ItemError           the item cannot be done as it is; trying again would not help
│   └── InvalidSpec     its text cannot be a spec
└── ModelError          one call to a model did not give an answer
    ├── CallRefused     the key or the provider said no; another call may succeed
    └── BadRequest      the call itself is wrong; another key would say the same
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentos.core.ratelimit.refusals import Refusal


class AgentosError(Exception):
    """Base of the tree; `exit_code` is what a command ends with."""

    exit_code = 1


class UsageError(AgentosError):
    exit_code = 2


class PreflightError(AgentosError):
    exit_code = 3


class UnsupportedFormat(PreflightError):
    pass


class BrokenWorkflow(PreflightError):
    pass


class NoCredentials(AgentosError):
    exit_code = 4


class NothingMatches(AgentosError):
    exit_code = 5


class LimitReached(AgentosError):
    exit_code = 75


class TrackerError(AgentosError):
    """`retryable` when trying again could help."""

    exit_code = 3

    def __init__(self, message: str, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class ItemError(AgentosError):
    """Ends the item at once; `details` are lines for people."""

    def __init__(self, message: str, details: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.details = details


class InvalidSpec(ItemError):
    def __init__(self, details: tuple[str, ...]) -> None:
        super().__init__("Invalid spec format", details)


class ModelError(AgentosError):
    pass


class CallRefused(ModelError):
    def __init__(self, refusal: "Refusal") -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


class BadRequest(ModelError):
    pass
