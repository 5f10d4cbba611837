"""The job of one client process, and its report. Standard library only: peers import it in their own venvs."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class KnownLimit:
    """At most `amount` in `seconds`."""

    amount: float
    seconds: float


@dataclass(frozen=True, slots=True)
class JobKey:
    """A key, with its limits if the client is given them."""

    name: str
    secret: str
    requests: KnownLimit | None = None
    tokens: KnownLimit | None = None
    bucket: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """`names_limits`: whether the client may use the limits that refusals name.

    `folder` is shared by all processes of the job; empty if there is only one. `sizes` are the prompts' lengths, if they
    do not just cover the range of `characters`.
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
    sizes: tuple[int, ...] = ()

    def prompt(self, call: int) -> str:
        """The same for every client: sizes cover the range evenly, in a scattered order."""
        low, high = self.characters
        size = self.sizes[call] if self.sizes else low + (high - low) * (call * 37 % 101) // 100
        return f"call {self.process}-{call} ".ljust(size, "x")


@dataclass(frozen=True, slots=True)
class Report:
    """`served`: calls per caller; `seconds`: from the start to the end of the last call."""

    served: tuple[int, ...]
    seconds: float
    cpu: float
    peak_mb: float
    error_text: str = ""


def job_line(job: Job) -> str:
    return json.dumps(asdict(job))


def read_job(line: str) -> Job:
    found = json.loads(line)
    keys = tuple(_key(**key) for key in found.pop("keys"))
    characters, sizes = found.pop("characters"), tuple(found.pop("sizes"))
    return Job(keys=keys, characters=(characters[0], characters[1]), sizes=sizes, **found)


def report_line(report: Report) -> str:
    return json.dumps(asdict(report))


def read_report(line: str) -> Report:
    found = json.loads(line)
    return Report(served=tuple(found.pop("served")), **found)


def _key(
    name: str, secret: str, requests: dict[str, float] | None, tokens: dict[str, float] | None, bucket: str
) -> JobKey:
    return JobKey(
        name,
        secret,
        KnownLimit(**requests) if requests else None,
        KnownLimit(**tokens) if tokens else None,
        bucket,
    )
