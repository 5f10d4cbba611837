"""Draws docs/images/timeline.svg from a real run: `.venv/bin/python docs/images/make_timeline_svg.py`."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from agentos.outputs.report.svg_timeline import render_svg
from agentos.storage.runs import load_run_record

HERE = Path(__file__).parent
AGENTOS = Path(sys.executable).parent / "agentos"


def main() -> int:
    """Runs the demo with more workers than keys, so that the picture shows waits."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(AGENTOS), "demo", "shop", "--parallel", "5"]
        subprocess.run(command, cwd=folder, env=dict(os.environ), check=True, stdout=subprocess.DEVNULL)
        run = Path(folder) / "shop/.agentos-home/logs/parallel/latest"
        (HERE / "timeline.svg").write_text(render_svg(load_run_record(run)) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
