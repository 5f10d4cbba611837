"""Every error that agentos raises on purpose.

AgentosError
├── UsageError          invalid command line                     exit 2
├── PreflightError      config, project or home is unusable      exit 3
│   ├── UnsupportedFormat  the journal of a run was written by another version of agentos
│   ├── ServiceAway  Postgres or Temporal does not answer at the moment; another attempt may succeed
│   └── BrokenWorkflow  a user's workflow is invalid
├── NoCredentials       no usable key                            exit 4
├── NothingMatches      no item or run matches                   exit 5
├── LimitReached        an external limit lasts longer than --max-wait; resumable  exit 75
├── TrackerError        the issue tracker cannot be used         exit 3
├── ItemError           the item cannot be done; a retry would not help
│   └── InvalidSpec     its text is not a valid spec
└── ModelError          a call to a model failed
    ├── CallRefused     refused by the provider; another call may succeed
    ├── StreamCut       an answer ended early after parts of it were passed on; asking again may help
    └── BadRequest      the request is invalid, whatever the key
        └── EmptyAnswer     the model answered without text
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentos.core.ratelimit.refusals import Refusal


class AgentosError(Exception):
    """Base of the tree; `exit_code` is the exit code of the command that it ends."""

    exit_code = 1


class UsageError(AgentosError):
    exit_code = 2


class PreflightError(AgentosError):
    exit_code = 3


class UnsupportedFormat(PreflightError):
    pass


class ServiceAway(PreflightError):
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
    """The issue tracker cannot be used; `retryable` if trying again could help."""

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
    """The provider refused the call or failed to answer it.

    `blame_after`: after this many equal failures in a row, while other calls are answered, the call itself is taken to be
    the cause; None if it cannot be.
    """

    def __init__(self, refusal: "Refusal", *, blame_after: int | None = 3) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal
        self.blame_after = blame_after


class StreamCut(ModelError):
    pass


class BadRequest(ModelError):
    pass


class EmptyAnswer(BadRequest):
    """The model returned no text; `finish` says why it stopped."""

    def __init__(self, finish: str, detail: str) -> None:
        super().__init__(f"the model returned no text ({detail})")
        self.finish = finish
