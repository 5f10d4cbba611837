"""All items as a script over concurrent.futures: processes that stay, each with a client of its own.

python pool.py WORKERS ISSUES RESULTS
"""

import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import item  # type: ignore[import-not-found]  # it stands beside this script, which is run by its path
from google import genai

_clients: list[genai.Client] = []


def _begin() -> None:
    _clients.append(item.client())


def _carry(issue: Path, result: Path) -> None:
    item.carry(_clients[0], issue, result)


def main(workers: int, issues: Path, results: Path) -> None:
    found = sorted(issues.glob("*.md"))
    with ProcessPoolExecutor(workers, initializer=_begin) as pool:
        list(pool.map(_carry, found, [results / issue.name for issue in found]))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
