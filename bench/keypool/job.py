"""What one client process is given to do, and what it reports; known to every client, in whatever venv."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Told:
    """At most `amount` in `seconds`, as a user would know it."""

    amount: float
    seconds: float


@dataclass(frozen=True, slots=True)
class JobKey:
    """A key, with its limits where the client is told."""

    name: str
    secret: str
    requests: Told | None = None
    tokens: Told | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """`names_limits`: whether what refusals say of limits by name and value may be read.

    `folder` is shared by the processes of one load; empty where there is only one.
    """

    url: str
    keys: tuple[JobKey, ...]
    calls: int
    callers: int
    characters: tuple[int, int]
    concurrency: int
    seconds: float
    names_limits: bool
    folder: str
    process: int

    def prompt(self, call: int) -> str:
        """The same for every client: sizes run evenly through the span, in a scattered order."""
        low, high = self.characters
        size = low + (high - low) * (call * 37 % 101) // 100
        return f"call {self.process}-{call} ".ljust(size, "x")


@dataclass(frozen=True, slots=True)
class Report:
    """`served` by caller; `seconds` from the start to the last end."""

    served: tuple[int, ...]
    seconds: float
    cpu: float
    peak_mb: float
    trouble: str = ""


def job_line(job: Job) -> str:
    return json.dumps(asdict(job))


def read_job(line: str) -> Job:
    found = json.loads(line)
    keys = tuple(_key(**key) for key in found.pop("keys"))
    characters = tuple(found.pop("characters"))
    return Job(keys=keys, characters=(characters[0], characters[1]), **found)


def report_line(report: Report) -> str:
    return json.dumps(asdict(report))


def read_report(line: str) -> Report:
    found = json.loads(line)
    return Report(served=tuple(found.pop("served")), **found)


def _key(
    name: str, secret: str, requests: dict[str, float] | None, tokens: dict[str, float] | None
) -> JobKey:
    return JobKey(name, secret, Told(**requests) if requests else None, Told(**tokens) if tokens else None)
