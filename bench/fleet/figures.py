"""One measured figure, and the fleet that it is measured on."""

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.fleet.harness import PROGRAMS, Fleet
from tests.fleet.servers import running_servers

KEYS = 4


@dataclass(frozen=True, slots=True)
class Figure:
    """`wanted` is the most that `value` may be, or the least if `at_least`; None if it is only told."""

    name: str
    value: float
    unit: str
    wanted: float | None = None
    at_least: bool = False

    @property
    def is_reached(self) -> bool:
        if self.wanted is None:
            return True
        return self.value >= self.wanted if self.at_least else self.value <= self.wanted

    def __str__(self) -> str:
        text = f"{self.name}: {self.value:,.3g} {self.unit}" if self.value < 100 else ""
        text = text or f"{self.name}: {self.value:,.0f} {self.unit}"
        if self.wanted is None:
            return text
        bound = "at least" if self.at_least else "at most"
        return f"{text} (wanted: {bound} {self.wanted:g}){'' if self.is_reached else '  SHORT OF IT'}"


@contextlib.contextmanager
def model_server(folder: Path, *flags: str) -> Iterator[tuple[str, list[str]]]:
    """Its address and keys; its log of calls is `calls.jsonl` in the folder."""
    process = subprocess.Popen(
        [
            PROGRAMS / "agentos",
            "offline-server",
            "--die-with-parent",
            "--ledger",
            folder / "calls.jsonl",
            *flags,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"},
    )
    assert process.stdin and process.stdout
    try:
        ready = json.loads(process.stdout.readline())
        yield ready["url"], ready["keys"]
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(10)


def write_credentials(home: Path, url: str, keys: list[str], concurrency: int) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    file = home / "credentials.toml"
    file.write_text(
        "\n".join(
            f'[[credential]]\nname = "key-{number}"\nprovider = "gemini"\nkey = "{key}"\nbase_url = "{url}"\n'
            f"concurrency = {concurrency}\n"
            for number, key in enumerate(keys, 1)
        )
    )
    file.chmod(0o600)


@contextlib.contextmanager
def bench_fleet(latency: str) -> Iterator[Fleet]:
    """Servers, a gateway with keys without rate limits, the tables; no worker yet."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentos-bench-")))
        postgres, temporal = stack.enter_context(running_servers())
        url, keys = stack.enter_context(model_server(folder, "--keys", str(KEYS), "--latency", latency))
        write_credentials(folder / "gateway", url, keys, 10)
        write_credentials(folder / "local", url, keys, 10)
        fleet = stack.enter_context(Fleet(folder, postgres, temporal, postgres.admin_url))
        done = fleet.run("agentos", "fleet", "init")
        assert done.returncode == 0, done.stderr
        yield fleet
