"""The parts of agentos for other people's programs; these names are stable."""

from agentos.core.quota.credentials import Credential
from agentos.parallel.coordinator import (
    DEFAULT_PARALLELISM,
    MAX_PARALLELISM,
    ParallelCoordinator,
    ParallelResult,
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
from agentos.parallel.recovery import AdaptiveBackoff, WorkerHealth
from agentos.parallel.results import ProgressStats, WorkflowResult
from agentos.parallel.tasks import TaskResult, run_parallel

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
