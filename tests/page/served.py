"""A page served for a test: the real command as a process, and a client that logs in as a program does."""

import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.scenarios.harness import RunHarness, RunningCommand, wait_until

Json = dict[str, Any]
NEXT_LINK = "For another browser: "


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers and body of a response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class ServedPage:
    """A running `agentos page`."""

    command: RunningCommand
    links_used: int = 0
    _bearer: str = ""
    _headers: dict[str, str] = field(default_factory=dict)

    @property
    def link(self) -> str:
        """The newest login link."""
        self.command.wait_for("/login#")
        wait_until(lambda: self.command.out.count("/login#") > self.links_used)
        return next(
            line.split(": ", 1)[1].split()[-1]
            for line in reversed(self.command.out.splitlines())
            if "/login#" in line
        )

    @property
    def url(self) -> str:
        return self.link.partition("/login")[0]

    @property
    def token(self) -> str:
        return self.link.partition("#")[2]

    def call(
        self,
        path: str,
        body: object = None,
        headers: dict[str, str] | None = None,
        method: str | None = None,
    ) -> Answer:
        """One request with exactly these headers, and JSON as its body."""
        data = None if body is None else json.dumps(body).encode()
        sent = {"content-type": "application/json", **(headers or {})}
        request = urllib.request.Request(self.url + path, data, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return Answer(answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, {k.lower(): v for k, v in error.headers.items()}, error.read())

    def log_in(self) -> None:
        token = self.token
        self._bearer = self.call("/login", {"token": token, "bearer": True}).json["bearer"]
        self.links_used += 1

    def get(self, path: str) -> Answer:
        return self.call(path, headers={"authorization": f"Bearer {self._bearer}"})

    def post(self, path: str, body: object) -> Answer:
        return self.call(path, body, {"authorization": f"Bearer {self._bearer}"})

    @contextlib.contextmanager
    def events(self, run: str, last_id: str = "") -> Iterator["EventReader"]:
        headers = {"authorization": f"Bearer {self._bearer}", "last-event-id": last_id}
        request = urllib.request.Request(f"{self.url}/api/runs/{run}/events", headers=headers)
        with urllib.request.urlopen(request, timeout=60) as stream:
            yield EventReader(stream)


@dataclass(slots=True)
class EventReader:
    """Reads server-sent events one at a time."""

    stream: Any
    last_id: str = ""

    def __iter__(self) -> Iterator[tuple[str, Json]]:
        name, data = "", ""
        for raw in self.stream:
            line = raw.decode().rstrip("\n")
            if line.startswith("id: "):
                self.last_id = line[4:]
            elif line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data = line[6:]
            elif not line and name:
                yield name, json.loads(data)
                name, data = "", ""


def serve(harness: RunHarness, *flags: str) -> ServedPage:
    page = ServedPage(harness.start("page", *flags, program="agentos"))
    page.log_in()
    return page


def in_thread(function: Any, *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread
