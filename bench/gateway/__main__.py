"""Sends the same calls directly to a server, through our gateway and through LiteLLM's proxy, alternating in one run.

python -m bench.gateway [--calls N] [--peers FOLDER] [--alone]

The overhead is the median time of a call minus the median of a direct call, for whole responses and for the first byte
of a stream. The calls of all routes are interleaved, so that load on the machine affects all of them equally.
"""

import argparse
import contextlib
import http.client
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from bench.gateway import peers

MODEL = "gpt-5"
SECRET = "bench-key-0123456789"
PROMPT = "Say something. " * 40


@dataclass
class Route:
    """A way to send a call: URL and key, with the measured times in seconds."""

    name: str
    url: str
    key: str
    whole: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        address = urlsplit(self.url)
        self._path = f"{address.path}/chat/completions"
        self._wire = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)

    def ask(self, *, stream: bool) -> float:
        """Seconds to the first byte of a stream, or to the last byte of a whole response."""
        body = json.dumps(
            {"model": MODEL, "stream": stream, "messages": [{"role": "user", "content": PROMPT}]}
        )
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        started = time.perf_counter()
        self._wire.request("POST", self._path, body, headers)
        answer = self._wire.getresponse()
        if stream:
            answer.read(1)
            seconds = time.perf_counter() - started
            answer.read()
        else:
            answer.read()
            seconds = time.perf_counter() - started
        assert answer.status == 200, f"{self.name}: {answer.status}"
        return seconds


def main() -> None:
    args = _arguments()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(_server())
        routes = [Route("direct", f"{server}/v1", SECRET), stack.enter_context(_ours(server, folder))]
        program = None if args.alone else peers.litellm(args.peers)
        if program:
            routes.append(stack.enter_context(_litellm(program, server, folder)))
        _measure(routes, args.calls)
    _print_results(routes)


def _measure(routes: list[Route], calls: int) -> None:
    for number in range(calls + 5):
        for route in routes:
            whole, first = route.ask(stream=False), route.ask(stream=True)
            if number >= 5:
                route.whole.append(whole)
                route.first.append(first)


def _print_results(routes: list[Route]) -> None:
    print("route      median    overhead  first byte  overhead")
    whole, first = (statistics.median(times) for times in (routes[0].whole, routes[0].first))
    for route in routes:
        median, median_first = statistics.median(route.whole), statistics.median(route.first)
        print(
            f"{route.name:<9} {median * 1e3:>5.2f} ms  {(median - whole) * 1e3:>6.2f} ms "
            f"{median_first * 1e3:>8.2f} ms {(median_first - first) * 1e3:>6.2f} ms"
        )
    if len(routes) > 2:
        ratio = (statistics.median(routes[2].whole) - whole) / (statistics.median(routes[1].whole) - whole)
        print(f"LiteLLM's proxy adds {ratio:.1f} times as much to a call as ours")


@contextlib.contextmanager
def _server() -> Iterator[str]:
    command = [
        sys.executable,
        "-m",
        "agentos",
        "offline-server",
        "--key",
        f"bench={SECRET}",
        "--die-with-parent",
    ]
    with _process(command, dict(os.environ)) as process:
        assert process.stdout
        yield json.loads(process.stdout.readline())["url"]


@contextlib.contextmanager
def _ours(server: str, folder: Path) -> Iterator[Route]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "AGENTOS_HOME": str(folder / "home")}
    environment |= {"OPENAI_API_KEY_1": SECRET, "OPENAI_BASE_URL_1": server}
    command = [sys.executable, "-m", "agentos", "gateway", "--format", "json"]
    with _process(command, environment) as process:
        assert process.stdout
        agent = json.loads(process.stdout.readline())["items"]["agent"]
        yield Route("ours", agent["OPENAI_BASE_URL"], agent["OPENAI_API_KEY"])


@contextlib.contextmanager
def _litellm(program: Path, server: str, folder: Path) -> Iterator[Route]:
    model = {"model": f"openai/{MODEL}", "api_base": f"{server}/v1", "api_key": SECRET}
    config = folder / "litellm.yaml"
    config.write_text(json.dumps({"model_list": [{"model_name": MODEL, "litellm_params": model}]}))
    port = _free_port()
    master = "sk-" + secrets.token_hex(32)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MASTER_KEY": master,
    }
    command = [str(program), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    with _process(command, environment) as process:
        _wait_until_open(port, process)
        yield Route("litellm", f"http://127.0.0.1:{port}/v1", master)


@contextlib.contextmanager
def _process(command: list[str], environment: dict[str, str]) -> "Iterator[subprocess.Popen[str]]":
    """Runs a program; only its standard output can be read."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def _wait_until_open(port: int, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    raise SystemExit("LiteLLM's proxy did not start")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--peers", type=Path, default=peers.FOLDER, help="a folder with LiteLLM's venv")
    parser.add_argument("--alone", action="store_true", help="measure our gateway only, install nothing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
