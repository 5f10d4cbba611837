"""Processes all items with concurrent.futures: persistent processes, each with its own client.

python pool.py WORKERS ISSUES RESULTS
"""

import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import item  # type: ignore[import-not-found]  # in the same folder as this script, which is run by path
from google import genai

_clients: list[genai.Client] = []


def _create_client() -> None:
    _clients.append(item.client())


def _run_item(issue: Path, result: Path) -> None:
    item.run_item(_clients[0], issue, result)


def main(workers: int, issues: Path, results: Path) -> None:
    paths = sorted(issues.glob("*.md"))
    with ProcessPoolExecutor(workers, initializer=_create_client) as pool:
        list(pool.map(_run_item, paths, [results / issue.name for issue in paths]))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
