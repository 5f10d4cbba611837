"""Six items with 1, 2 and 3 workers: time as a share of the sequential one, and the overhead.

python -m bench.parallel [--items 6] [--latency 1.0]
"""

import argparse
import time

from bench.project import bench_project


def measure(items: int, latency: float, workers: int) -> tuple[float, float]:
    """Wall seconds of the whole command, and the coordination overhead that it measured itself."""
    with bench_project(items, ["--keys", "4", "--latency", f"{latency},{latency}"]) as here:
        began = time.monotonic()
        done = here.run("--all", "--parallel", str(workers))
        seconds = time.monotonic() - began
        assert done.returncode == 0, done.stdout + done.stderr
        overhead = here.summary()["overhead_percent"]
        assert isinstance(overhead, float), (
            "too little work to measure the overhead: raise --latency or --items"
        )
        return seconds, overhead


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=6)
    parser.add_argument("--latency", type=float, default=1.0)
    given = parser.parse_args()
    print(f"{given.items} items, every model call takes {given.latency:g} s, two calls an item")
    print(f"{'workers':>8} {'seconds':>8} {'of sequential':>14} {'overhead':>9}")
    sequential = 0.0
    for workers in (1, 2, 3):
        seconds, overhead = measure(given.items, given.latency, workers)
        sequential = sequential or seconds
        print(f"{workers:>8} {seconds:>8.2f} {100 * seconds / sequential:>13.1f}% {overhead:>8.1f}%")


if __name__ == "__main__":
    main()
