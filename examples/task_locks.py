"""Process each task once, with two processes and one list: python examples/task_locks.py"""

import multiprocessing
import tempfile
from pathlib import Path

from agentos.parallel import TaskLock


def work(project: str, worker: str) -> None:
    locks = TaskLock(project)
    for number in range(10):
        with locks.lock(f"task-{number}", worker, timeout=0) as acquired:
            done = Path(project) / f"task-{number}.done"
            if (
                acquired and not done.exists()
            ):  # the other process may have finished it before we got the lock
                done.write_text(worker)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as project:
        processes = [multiprocessing.Process(target=work, args=(project, f"worker-{n}")) for n in (1, 2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        done = [path.read_text() for path in Path(project).glob("*.done")]
        print(f"{len(done)} tasks done, by {', '.join(sorted(set(done)))}")
