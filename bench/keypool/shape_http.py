"""Every shape of limits over real HTTP: the pool through its doors, and what a user would write instead.

python -m bench.keypool.shape_http [--shape NAME ...] [--client NAME ...] [--jobs N] [--long] [--scale 1]

The limiter is a process of its own that shares no code with the product. Durations of most shapes are scaled down to a
fifth, so that the whole table takes minutes. The pool's own seconds do not shrink with them, so it looks worse than with
--scale 1, where all durations are as in the table of shapes.
efficiency is the time of a sender that knows the limits and wastes nothing, divided by the time taken.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from bench.keypool import peers
from bench.keypool.harness import ClientEnded, ClientSpec, LimitKnowledge, start_together, started
from bench.keypool.job import Job, JobKey, KnownLimit, Report
from bench.keypool.limiters import Limit
from bench.keypool.shape_run import OUTPUT_TOKENS, Load, best_seconds
from bench.keypool.shape_server import Counts, ShapeServer, scaled, served_shape
from bench.keypool.shapes import GATEWAY_LOADS, NAMES, Shape, shape_named

SCALE = 0.2
# Without a hint, with one in whole seconds, or with so many calls, a shape in less time would be another one.
UNSCALED = (
    *("whole-seconds", "no-hint", "concurrency", "concurrency-no-hint", "bucket", "no-limit"),
    *(shape.name for shape in GATEWAY_LOADS),
)
BUSY = ("no-limit", "fifty-callers")
"""They load the machine, so they are measured alone."""
CHARACTERS_A_TOKEN = 4
BOTH = (LimitKnowledge.UNKNOWN, LimitKnowledge.KNOWN)
CLIENTS = (
    ClientSpec("ours", BOTH, is_peer=False),
    ClientSpec("gateway", BOTH, is_peer=False),
    ClientSpec("library", (LimitKnowledge.UNKNOWN,), is_peer=False),
    ClientSpec("tenacity", (LimitKnowledge.UNKNOWN,)),
    ClientSpec("litellm", (LimitKnowledge.UNKNOWN,)),
    ClientSpec("litellm-patient", (LimitKnowledge.UNKNOWN,)),
    ClientSpec("inspect_ai", (LimitKnowledge.UNKNOWN,)),
)
ALL_NAMES = (*NAMES, *(shape.name for shape in GATEWAY_LOADS))
HEAD = f"{'shape':<22} {'limits':<8} {'client':<16} {'efficiency':>10} {'seconds':>8} {'refused':>8} {'failed':>7}"


@dataclass(frozen=True, slots=True)
class Case:
    shape: Shape
    spec: ClientSpec
    knowledge: LimitKnowledge
    long: bool
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Result:
    case: Case
    counts: Counts
    efficiency: float
    seconds: float
    failed: int
    error_text: str

    def line(self) -> str:
        case, sent = self.case, self.counts.admitted + self.counts.refused
        refused = f"{self.counts.refused / max(1, sent):.1%}"
        return (
            f"{case.shape.name:<22} {case.knowledge:<8} {case.spec.name:<16} {self.efficiency:>10.3f} "
            f"{self.seconds:>8.2f} {refused:>8} {self.failed:>7}  {self.error_text.partition(chr(10))[0][:60]}"
        ).rstrip()


def run(case: Case) -> Result:
    calls = case.shape.calls(long=case.long)
    shape, load = scaled(case.shape, case.scale), Load.of(scaled(case.shape, case.scale), calls, seed=1)
    with (
        served_shape(case.shape.name, case.scale, calls) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        job = _job(case, shape, load, server)
        try:
            with started(case.spec, [job], Path(folder) / "errors") as processes:
                report = start_together(processes)[0]
        except ClientEnded as error:
            report = Report((0,), 1.0, 0.0, 0.0, str(error))
        done = sum(report.served)
        best = best_seconds(shape, Load(load.tokens[:done], load.latency[:done])) if done else 0.0
        failed = calls - done
        return Result(case, server.counts(), best / report.seconds, report.seconds, failed, report.error_text)


def _job(case: Case, shape: Shape, load: Load, server: ShapeServer) -> Job:
    is_told = case.knowledge is LimitKnowledge.KNOWN
    return Job(
        url=server.url,
        keys=tuple(_key(shape, number, secret, is_told) for number, secret in enumerate(server.secrets)),
        calls=len(load.tokens),
        callers=shape.callers,
        characters=(0, 0),
        concurrency=shape.concurrency if is_told and shape.concurrency else shape.slots,
        seconds=3 * best_seconds(shape, load) + 10,
        names_limits=False,
        folder="",
        process=0,
        sizes=tuple(CHARACTERS_A_TOKEN * (tokens - OUTPUT_TOKENS) for tokens in load.tokens),
    )


def _key(shape: Shape, number: int, secret: str, is_told: bool) -> JobKey:
    place, key = shape.keys[number], JobKey(f"key-{number + 1}", secret)
    if not is_told:
        return key
    bucket = f"quota-{place}" if len(set(shape.keys)) < len(shape.keys) else ""
    known = {limit.tokens: _known(limit) for limit in shape.quotas[place]}
    if shape.rate_when_told:
        known[False] = KnownLimit(shape.rate_when_told, 60.0)
    return replace(key, bucket=bucket, requests=known.get(False), tokens=known.get(True))


def _known(limit: Limit) -> KnownLimit:
    burst = limit.burst or limit.amount
    return KnownLimit(burst, limit.seconds * burst / limit.amount)


def _cases(shapes: list[str], clients: list[ClientSpec], *, long: bool, scale: float) -> Iterator[Case]:
    for name in shapes:
        shape, its_scale = shape_named(name), 1.0 if name in UNSCALED else scale
        for spec in clients:
            for knowledge in spec.knowledge_levels:
                is_told = knowledge is LimitKnowledge.KNOWN
                has_limits = shape.quotas[0] or shape.concurrency or shape.rate_when_told
                if is_told and (shape.changes or not has_limits):
                    continue
                yield Case(shape, spec, knowledge, long, its_scale)


def _run_and_print(case: Case) -> Result:
    """Prints each result as soon as it is measured: the whole table takes minutes."""
    result = run(case)
    print(result.line(), file=sys.stderr, flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [spec.name for spec in CLIENTS]
    parser.add_argument("--shape", nargs="+", choices=ALL_NAMES, default=ALL_NAMES)
    parser.add_argument("--client", nargs="+", choices=names, default=names)
    parser.add_argument("--jobs", type=int, default=8, help="cases at a time; most of the time they wait")
    parser.add_argument("--long", action="store_true", help="25 windows instead of 4")
    parser.add_argument("--scale", type=float, default=SCALE, help="factor of the durations of most shapes")
    given = parser.parse_args()
    requested = [spec for spec in CLIENTS if spec.name in given.client]
    clients = [spec for spec in requested if not spec.is_peer or peers.installable(spec.name)]
    results: list[Result] = []
    for jobs, is_busy in ((given.jobs, False), (1, True)):
        shapes = [name for name in given.shape if (name in BUSY) == is_busy]
        with ThreadPoolExecutor(jobs) as threads:
            results += threads.map(
                _run_and_print, _cases(shapes, clients, long=given.long, scale=given.scale)
            )
    print(HEAD)
    for result in results:
        print(result.line())


if __name__ == "__main__":
    main()
