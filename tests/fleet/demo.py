"""A fleet on one machine, for people: `make fleet-demo`. One of the two workers is killed; nothing is lost."""

import sys
import tempfile
import time
from pathlib import Path

from tests.fleet.harness import Fleet
from tests.fleet.servers import MissingServer, running_servers

ITEMS = 12


def main() -> int:
    try:
        _say("Starting Postgres, Temporal and the gateway with the built-in model server ...")
        with (
            tempfile.TemporaryDirectory(prefix="agentos-fleet-") as folder,
            running_servers() as (postgres, temporal),
            Fleet(Path(folder), postgres, temporal, postgres.admin_url) as fleet,
        ):
            return _run(fleet)
    except MissingServer as error:
        sys.stderr.write(f"{error}\n")
        return 3


def _run(fleet: Fleet) -> int:
    sys.stdout.write(fleet.run("agentos", "fleet", "init").stdout)
    fleet.issues(*range(1, ITEMS + 1))
    _say("Starting two workers: agentos worker --parallel 2")
    first = fleet.worker(parallel=2)
    fleet.worker(parallel=2)
    started_at = time.monotonic()
    _say("$ lld-workflow --all --fleet")
    follower = fleet.start("lld-workflow", "--all", "--fleet")
    assert follower.stdout is not None
    is_killed = False
    for line in follower.stdout:
        if ">>> Executing" not in line and "Check of" not in line:
            sys.stdout.write(line)
        if not is_killed and "Draft 2 written" in line:
            is_killed = True
            fleet.kill(first)
            _say(
                "kill -9 of the first worker: its items go on at the second one after the heartbeat timeout (30 s)"
            )
    code = follower.wait(30)
    _say(
        f"{len(fleet.documents())} of {ITEMS} documents, exit code {code}, {time.monotonic() - started_at:.0f} s"
    )
    return code


def _say(text: str) -> None:
    sys.stdout.write(f"\n== {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
