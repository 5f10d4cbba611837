"""Installs what the tests of the fleet need beside .venv: `python -m tests.fleet.setup_servers`.

Debian's Postgres, where it is missing and this user may install it. Temporal's development server comes with .venv.
"""

import os
import shutil
import subprocess
import sys

from tests.fleet.servers import POSTGRES_PACKAGE, MissingServer, postgres_programs, temporal_program


def main() -> int:
    try:
        postgres_programs()
    except MissingServer:
        _install_postgres()
    for find in (postgres_programs, temporal_program):
        try:
            find()
        except MissingServer as error:
            sys.stderr.write(f"the tests of the fleet are skipped: {error}\n")
    return 0


def _install_postgres() -> None:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    sys.stderr.write(f"Installing Debian's {POSTGRES_PACKAGE} ...\n")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--yes", "--no-install-recommends", POSTGRES_PACKAGE]):
        subprocess.run(["apt-get", "--quiet", *command], env=quiet, stdout=subprocess.DEVNULL, check=False)


if __name__ == "__main__":
    sys.exit(main())
