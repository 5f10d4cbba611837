"""Count the words of files, three at a time: python examples/side_by_side.py FILE..."""

import sys
from pathlib import Path

from agentos.parallel import OutputPrefixer, ParallelCoordinator


def count_words(path: Path, credential: str | None) -> dict[str, int]:
    words = len(path.read_text("utf-8").split())
    with OutputPrefixer(sys.stdout, path.name) as out:
        print(f"{words} words", file=out)
    return {"words": words}


coordinator = ParallelCoordinator()
files = [Path(argument) for argument in sys.argv[1:]] or sorted(Path(__file__).parent.glob("*.py"))
stats, results = coordinator.execute_parallel(files, count_words, lambda path: path.name)
for result in results:
    if not result.success:
        print(f"{result.item_id} failed: {result.error}")
print(f"{stats.success_count} of {stats.total}, {sum(r.metadata.get('words', 0) for r in results)} words")
if interrupted := coordinator.get_checkpoints():
    print("interrupted:", *interrupted)
