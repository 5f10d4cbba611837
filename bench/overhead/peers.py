"""Command lines of the alternatives; snakemake is installed into its own venv on demand."""

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
VENV = HERE / ".venv"
PARALLEL_MISSING = "GNU parallel not found; on Debian or Ubuntu: apt-get install parallel"
Command = list[str]


def gnu_parallel(project: Path, workers: int) -> Command | None:
    """A new Python process for every item."""
    program = shutil.which("parallel")
    if program is None:
        print(PARALLEL_MISSING, file=sys.stderr)
        return None
    issues = sorted(str(path) for path in (project / "issues").glob("*.md"))
    item = [sys.executable, str(HERE / "item.py"), "{}", f"{project}/out/{{/}}"]
    return [program, "--will-cite", "-j", str(workers), *item, ":::", *issues]


def process_pool(project: Path, workers: int) -> Command:
    script = str(HERE / "pool.py")
    return [sys.executable, script, str(workers), str(project / "issues"), str(project / "out")]


def snakemake(project: Path, workers: int) -> Command | None:
    program = VENV / "bin" / "snakemake"
    if not program.exists() and not _install():
        return None
    config = ["--config", f"python={sys.executable}", f"script={HERE / 'item.py'}"]
    options = ["-s", str(HERE / "Snakefile"), "-d", str(project), "-j", str(workers), "--quiet", "all"]
    return [str(program), *options, *config]


def _install() -> bool:
    print(f"Setting up snakemake in {VENV} ...", file=sys.stderr)
    pip = [str(VENV / "bin" / "pip"), "--disable-pip-version-check", "install", "--quiet", "snakemake"]
    commands = ([sys.executable, "-m", "venv", str(VENV)], pip)
    return not any(subprocess.run(command, check=False).returncode for command in commands)
