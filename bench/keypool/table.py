"""The results as lines of text."""

from bench.keypool.harness import Result

HEAD = (
    f"{'scenario':<15} {'limits':<8} {'client':<16} {'efficiency':>10} {'seconds':>8} {'refused':>8} "
    f"{'failed':>7} {'wasted':>7} {'fairness':>9} {'CPU s':>7} {'peak MB':>8}"
)


def line_of(result: Result) -> str:
    case, counts = result.case, result.counts
    return (
        f"{case.scenario.name:<15} {case.knowledge:<8} {case.spec.name:<16} {result.efficiency:>10.3f} "
        f"{result.seconds:>8.2f} {counts.refused:>8} {result.failed:>7} {counts.wasted:>7} "
        f"{result.fairness:>9.3f} {result.cpu:>7.2f} {result.peak_mb:>8.0f}"
    )
