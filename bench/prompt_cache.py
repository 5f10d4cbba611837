"""Cost of an agent's session on one key and on ten: the gateway keeps a session on the key whose cache it has filled.

`python -m bench.prompt_cache [--calls 20] [--keys 10]`. The provider is a model of prompt caching: each key is a project
of its own, and a prompt whose beginning the project has seen within five minutes is read from its cache, from 1,024
tokens on. Every call of the session repeats the conversation so far and adds a turn. The last row sends every call with
another key, as a client that rotates keys would.
"""

import argparse
import asyncio
import contextlib
import http.client
import itertools
import json
import os
import queue
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from agentos.config.file import price_list
from agentos.core.protocol.events import CallCompleted
from agentos.core.protocol.results import Usage
from agentos.gateway.child import start_gateway
from agentos.http.connection import Connection, HttpRequest
from agentos.http.server import listening

MODEL = "claude-sonnet-4-5"
MIN_CACHED_TOKENS = 1024
SYSTEM = "You are an agent. Tools: read, edit, run. " * 600  # about 6,300 tokens
TURN = "The file has been read and the next step is this one. " * 40
TOKEN = 4  # characters
AIM = 0.10  # how much more the session may cost on ten keys


@dataclass
class CachingProvider:
    """Answers Anthropic's messages, with one prompt cache per key."""

    cached: dict[str, int] = field(default_factory=dict)
    """The tokens of the longest prompt by key: every prompt of the session begins with the one before."""
    usage: Usage = field(default_factory=Usage)

    async def answer(self, request: HttpRequest, out: Connection) -> None:
        key = dict(request.headers)["x-api-key"]
        sent = json.loads(request.body)
        prompt = len(sent["system"][0]["text"]) + sum(len(turn["content"]) for turn in sent["messages"])
        counted = self._count(key, prompt // TOKEN)
        self.usage += counted
        body = json.dumps(
            {
                "type": "message",
                "role": "assistant",
                "model": MODEL,
                "content": [{"type": "text", "text": TURN}],
                "stop_reason": "end_turn",
                "usage": {
                    "input_tokens": 0,
                    "cache_read_input_tokens": counted.cache_read_tokens,
                    "cache_creation_input_tokens": counted.cache_write_tokens,
                    "output_tokens": counted.output_tokens,
                },
            }
        ).encode()
        out.begin(200, [("content-type", "application/json"), ("content-length", str(len(body)))])
        out.put(body)
        out.finish()

    def _count(self, key: str, tokens: int) -> Usage:
        found = self.cached.get(key, 0)
        read = found if found >= MIN_CACHED_TOKENS else 0
        self.cached[key] = tokens
        return Usage(1, tokens, len(TURN) // TOKEN, cache_read_tokens=read, cache_write_tokens=tokens - read)


@dataclass(frozen=True)
class SessionCost:
    """What a session cost by the gateway's own count, by the provider's, and how much of its input came from the cache."""

    reported: float
    billed: float
    cached_share: float


def run_session(calls: int, keys: int, *, rotate: bool = False) -> SessionCost:
    """One agent's session through a gateway with so many keys; with `rotate`, straight to the provider key by key."""
    provider = CachingProvider()
    with _serving(provider) as url:
        if rotate:
            _talk(url, calls, [f"key-{number % keys}" for number in range(calls)])
            reported = _price(provider.usage)
        else:
            reported = _through_gateway(url, calls, keys)
    usage = provider.usage
    return SessionCost(reported, _price(usage), usage.cache_read_tokens / usage.input_tokens)


def _price(usage: Usage) -> float:
    price = price_list().of(MODEL)
    assert price
    return price.cost_of(usage)


def _through_gateway(url: str, calls: int, keys: int) -> float:
    """The cost that the gateway reports for the session."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {"PATH": os.environ["PATH"], "HOME": folder, "AGENTOS_HOME": str(Path(folder) / "home")}
        for number in range(1, keys + 1):
            variables[f"ANTHROPIC_API_KEY_{number}"] = f"key-{number}-of-the-bench"
            variables[f"ANTHROPIC_BASE_URL_{number}"] = url
        with contextlib.closing(start_gateway(variables)) as gateway:
            agent = gateway.environment("session")
            _talk(agent["ANTHROPIC_BASE_URL"], calls, [agent["ANTHROPIC_API_KEY"]] * calls)
            ended = (event for event in gateway.events() if isinstance(event, CallCompleted))
            return sum(event.cost or 0.0 for event in itertools.islice(ended, calls))


def _talk(url: str, calls: int, keys: list[str]) -> None:
    """An agent's loop: send everything said so far, append the answer and the next step."""
    address = urlsplit(url)
    messages = [{"role": "user", "content": TURN}]
    for key in keys[:calls]:
        body = {
            "model": MODEL,
            "max_tokens": 1000,
            "system": [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}],
            "messages": messages,
        }
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
        headers = {"x-api-key": key, "content-type": "application/json"}
        connection.request("POST", f"{address.path}/v1/messages", json.dumps(body), headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        text = json.loads(answer.read())["content"][0]["text"]
        connection.close()
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": TURN}]


@contextlib.contextmanager
def _serving(provider: CachingProvider) -> Iterator[str]:
    ready: queue.Queue[tuple[str, Callable[[], object]]] = queue.Queue()

    async def serve() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        async with listening(provider.answer) as url:
            ready.put((url, lambda: loop.call_soon_threadsafe(stop.set)))
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    url, stop = ready.get(timeout=30)
    try:
        yield url
    finally:
        stop()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--keys", type=int, default=10)
    args = parser.parse_args()
    rows = {
        "gateway, 1 key": run_session(args.calls, 1),
        f"gateway, {args.keys} keys": run_session(args.calls, args.keys),
        f"rotation, {args.keys} keys": run_session(args.calls, args.keys, rotate=True),
    }
    print(f"{'route':<20} {'billed':>8} {'reported':>9} {'input from the cache':>21}")
    for name, cost in rows.items():
        print(f"{name:<20} {cost.billed:>8.4f} {cost.reported:>9.4f} {cost.cached_share:>20.1%}")
    one, many = list(rows.values())[:2]
    more = many.billed / one.billed - 1
    print(f"{args.keys} keys cost {more:+.1%} (aim: within {AIM:.0%})")


if __name__ == "__main__":
    main()
