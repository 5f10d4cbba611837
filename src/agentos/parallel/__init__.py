"""agentos as a library: run functions in parallel and share rate-limited API keys between them.

- `ParallelCoordinator` runs a function for many items, in threads or processes.
- `CredentialCoordinator` shares API keys between threads; each key has one holder at a time.
- `run_parallel` runs coroutines, retrying those that fail.
- `TaskLock` locks tasks between processes, `OutputPrefixer` labels lines of output.
- `AdaptiveBackoff` and `WorkerHealth` are the retry policies behind them.

The names in `__all__` are stable.
"""

from agentos.core.quota.credentials import Credential
from agentos.parallel.coordinator import (
    DEFAULT_PARALLELISM,
    MAX_PARALLELISM,
    ParallelCoordinator,
    ParallelResult,
    ProgressStats,
    WorkflowResult,
)
from agentos.parallel.credentials import (
    CredentialCoordinator,
    CredentialPoolExhaustedException,
    PoolStats,
    ReservedCredential,
    credentials_from_environment,
)
from agentos.parallel.locks import TaskLock
from agentos.parallel.prefix import OutputPrefixer
from agentos.parallel.tasks import AdaptiveBackoff, TaskResult, WorkerHealth, run_parallel

__all__ = [
    "DEFAULT_PARALLELISM",
    "MAX_PARALLELISM",
    "AdaptiveBackoff",
    "Credential",
    "CredentialCoordinator",
    "CredentialPoolExhaustedException",
    "OutputPrefixer",
    "ParallelCoordinator",
    "ParallelResult",
    "PoolStats",
    "ProgressStats",
    "ReservedCredential",
    "TaskLock",
    "TaskResult",
    "WorkerHealth",
    "WorkflowResult",
    "credentials_from_environment",
    "run_parallel",
]
