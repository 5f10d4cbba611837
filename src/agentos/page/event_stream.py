"""Server-sent events of a run: every line of its journal, and the resulting state.

A client's position is an offset in the journal, which is also the id of each event. Nothing is queued per client: one
that reads slowly, or reconnects with Last-Event-ID, is served from the file at its own pace and misses nothing.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from starlette.types import Receive, Scope, Send

from agentos.core.protocol.codec import one_line
from agentos.page.run_view import JournalLine, RunView, journal_lines, line_end
from agentos.page.views import log_json, state_json
from agentos.storage.journal import Follower

POLL_INTERVAL = 0.2  # seconds
INTERVAL_PER_WATCHER = 0.0025  # seconds: with 200 watchers, two updates a second
KEEP_ALIVE = 15.0  # seconds without an event
STALL_TIMEOUT = 60.0  # seconds without a client reading anything
MAX_STREAMS = 400
CHUNK = 256 * 1024  # bytes of the journal at a time
MAX_DIGITS = 15  # of a position
RECENT = 50  # chunks kept for clients that are a little behind
RETRY = b"retry: 2000\n\n"
KEEP_ALIVE_COMMENT = b": keep-alive\n\n"
END = b"event: end\ndata: {}\n\n"


@dataclass(frozen=True, slots=True)
class _Chunk:
    """What one poll found, encoded once for all clients that have read up to `begin`. `version` orders the polls."""

    version: int
    begin: int
    end: int
    content: bytes


@dataclass(slots=True)
class Cursor:
    """How far one client has read: its offset in the journal, the state it knows, and the version of the feed."""

    position: int
    stated: int
    version: int


@dataclass(slots=True)
class RunFeed:
    """Follows one run for as long as anyone watches it; all watchers share one reader and one encoding."""

    view: RunView
    watchers: int = 0
    version: int = 0
    _chunks: deque[_Chunk] = field(default_factory=lambda: deque(maxlen=RECENT))
    _output: deque[_Chunk] = field(default_factory=lambda: deque(maxlen=RECENT))
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _task: "asyncio.Task[None] | None" = None

    def join(self) -> None:
        self.watchers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._poll())

    def leave(self) -> None:
        self.watchers -= 1
        if not self.watchers and self._task:
            self._task.cancel()
            self._task = None

    async def wait(self, cursor: Cursor) -> None:
        """Return when there is something newer than the cursor, or after KEEP_ALIVE seconds."""
        if self.version == cursor.version and cursor.position == self.view.offset:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), KEEP_ALIVE)

    async def read(self, cursor: Cursor) -> bytes:
        """Return what comes after the cursor, and move it: from shared chunks if possible, otherwise from the file."""
        version, content = self.version, b""
        for chunk in self._chunks:
            if chunk.version > cursor.version and chunk.begin == cursor.position == cursor.stated:
                content += chunk.content
                cursor.position = cursor.stated = chunk.end
        if cursor.position < self.view.offset:
            content += await asyncio.to_thread(_encode, self.view, cursor)
        cursor.version = version
        return content

    def output_behind(self, version: int) -> bytes:
        """The lines that workers wrote after this version, as far as they are still kept."""
        return b"".join(chunk.content for chunk in self._output if chunk.version > version)

    async def _poll(self) -> None:
        follower: Follower | None = None
        while True:
            before, output = self.view.offset, b""
            changed = await asyncio.to_thread(self.view.refresh)
            with contextlib.suppress(OSError):  # the log is being removed with its run
                if follower is None:
                    follower = await asyncio.to_thread(Follower, self.view.folder)
                output = await asyncio.to_thread(_encode_output, follower)
            if changed or output:
                version, cursor = self.version + 1, Cursor(before, before, 0)
                if changed:
                    content = await asyncio.to_thread(_encode, self.view, cursor)
                    if cursor.stated == cursor.position:
                        self._chunks.append(_Chunk(version, before, cursor.position, content))
                if output:
                    self._output.append(_Chunk(version, before, before, output))
                self.version = version
                self._changed.set()
                self._changed = asyncio.Event()
            await asyncio.sleep(max(POLL_INTERVAL, INTERVAL_PER_WATCHER * self.watchers))


def _encode(view: RunView, cursor: Cursor) -> bytes:
    """The events after the cursor, and the state if these are the last ones; moves the cursor past them."""
    content = b""
    for line in journal_lines(view.folder, cursor.position, CHUNK):
        if line.end > view.offset:  # not in the record yet
            break
        content += _encode_line(line)
        cursor.position = line.end
    with view.lock:
        if cursor.position == view.offset:
            content += _message("state", one_line(state_json(view, cursor.stated)))
            cursor.stated = cursor.position
    return content


def _encode_line(line: JournalLine) -> bytes:
    log = line.log
    words = one_line(log_json([log])[0]) if log else "null"
    event = line.text.decode("utf-8", "replace")
    return b"id: %d\n" % line.end + _message("journal", f'{{"event":{event},"log":{words}}}')


def _encode_output(follower: Follower) -> bytes:
    for _ in follower.new_events():  # finds the logs of items that have started
        pass
    now = time.time()
    lines = [
        {"at": now, "item": line.item, "level": "info", "text": line.text} for line in follower.log_lines()
    ]
    return _message("output", one_line(lines)) if lines else b""


def _message(name: str, data: str) -> bytes:
    # JSON on one line: a line break inside would end the field.
    return f"event: {name}\ndata: {data}\n\n".encode("utf-8", "replace")


@dataclass(slots=True)
class EventStreams:
    """All open streams; refuses more than MAX_STREAMS."""

    feeds: dict[str, RunFeed] = field(default_factory=dict)
    count: int = 0

    @property
    def is_full(self) -> bool:
        return self.count >= MAX_STREAMS

    @contextlib.contextmanager
    def joined(self, view: RunView) -> Iterator[RunFeed]:
        feed = self.feeds.setdefault(view.id, RunFeed(view))
        self.count += 1
        feed.join()
        try:
            yield feed
        finally:
            self.count -= 1
            feed.leave()
            if not feed.watchers:
                self.feeds.pop(view.id, None)


@dataclass(frozen=True, slots=True)
class EventResponse:
    """An ASGI response that streams the events of one run from a position until the run is over."""

    streams: EventStreams
    view: RunView
    position: int
    with_output: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        sending = asyncio.create_task(self._send_all(send))
        gone = asyncio.create_task(_disconnected(receive))
        done, pending = await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for task in done:
            with contextlib.suppress(TimeoutError, OSError):
                task.result()

    async def _send_all(self, send: Send) -> None:
        async for content in self._content():
            message = {"type": "http.response.body", "body": content, "more_body": True}
            await asyncio.wait_for(send(message), STALL_TIMEOUT)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _content(self) -> AsyncIterator[bytes]:
        yield RETRY
        with self.streams.joined(self.view) as feed:
            cursor = Cursor(self.position, self.position, feed.version)
            while True:
                is_over, seen = self.view.is_over, cursor.version
                content = await feed.read(cursor)
                if self.with_output:
                    content += feed.output_behind(seen)
                yield content or KEEP_ALIVE_COMMENT
                if is_over and cursor.position == self.view.offset:
                    yield END
                    return
                await feed.wait(cursor)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def parse_position(last_event_id: str, view: RunView) -> int:
    """The offset that a client sent, moved to the end of its line; 0 if this journal has no such offset."""
    is_number = last_event_id.isdecimal() and len(last_event_id) <= MAX_DIGITS
    if not is_number or not 0 < (offset := int(last_event_id)) <= view.offset:
        return 0
    return line_end(view.folder, offset)
