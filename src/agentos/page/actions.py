"""What users can do in the page: send requests to runs, change keys, and decide on items."""

import time
import typing
from dataclasses import dataclass
from typing import Protocol

from agentos.control.client import NotListening, ask
from agentos.core.errors import NothingMatches, UsageError
from agentos.core.planning.gates import ReviewAction
from agentos.core.protocol import events
from agentos.core.protocol.codec import WIRE_NAMES, CodecError, decode
from agentos.diagnostics.key_admin import cool_down_key, set_key_enabled, view_keys
from agentos.outputs.format import AnnouncedEvent, event_text
from agentos.outputs.key_rows import key_json
from agentos.outputs.report.facts import plain
from agentos.page.reviews import DecisionRequest
from agentos.page.run_view import RunView
from agentos.page.views import Json

STOP_SIGNAL = "SIGTERM"
MAX_COOLDOWN = 86400.0  # seconds
KEY_ACTIONS = ("enable", "disable", "cooldown")


class RunControl(Protocol):
    """What can be done with the runs that the page shows, and with their keys and machines."""

    @property
    def is_fleet(self) -> bool: ...

    def request(self, view: RunView, body: Json) -> Json:
        """Pause, resume, stop, retry or change the number of workers. Raises UsageError with the reason if impossible."""
        ...

    def keys_json(self) -> Json: ...

    def change_key(self, name: str, body: Json) -> Json: ...

    def machines_json(self) -> Json: ...


@dataclass(frozen=True, slots=True)
class HomeControl:
    """Runs and keys of this machine."""

    is_fleet: bool = False

    def request(self, view: RunView, body: Json) -> Json:
        return send_request(view, body)

    def keys_json(self) -> Json:
        """The keys on this host, as `agentos keys --json` shows them."""
        return {"now": time.time(), "keys": [key_json(row) for row in view_keys()]}

    def change_key(self, name: str, body: Json) -> Json:
        return _change_key(name, body)

    def machines_json(self) -> Json:
        raise NothingMatches("this page shows one machine; for a fleet, start it with --fleet")


def parse_request(body: Json) -> events.Request:
    """Decode a request to a run; a request to stop always becomes a SIGTERM."""
    try:
        request = decode(body)
    except CodecError as error:
        raise UsageError(f"invalid request: {error}") from error
    if not isinstance(request, events.Request):
        known = ", ".join(sorted(WIRE_NAMES[kind] for kind in typing.get_args(events.Request)))
        raise UsageError(f"{body['type']} is not a request: expected one of {known}")
    return events.StopRequested(STOP_SIGNAL) if isinstance(request, events.StopRequested) else request


def send_request(view: RunView, body: Json) -> Json:
    """Send a request to the run's control socket; return the events that it caused."""
    try:
        replies = ask(view.folder, parse_request(body))
    except NotListening as error:
        raise UsageError(
            f"run {view.id} is no longer in progress; start it again with: agentos resume {view.id}"
        ) from error
    declined = [reply for reply in replies if isinstance(reply, events.RequestDeclined)]
    if refused := [reply for reply in declined if reply.exit_code]:
        raise UsageError(plain(refused[0].reason))
    now = time.time()
    texts = [reply.reason for reply in declined]
    texts += [
        text
        for reply in replies
        if isinstance(reply, AnnouncedEvent) and not isinstance(reply, events.RequestDeclined)
        if (text := event_text(reply, now))
    ]
    return {"changed": not declined and bool(replies), "texts": [plain(text) for text in texts]}


def _change_key(name: str, body: Json) -> Json:
    """Enable, disable or cool down a key, in every run on this host."""
    action, seconds = body.get("action"), body.get("seconds", 600)
    if action not in KEY_ACTIONS:
        raise UsageError(f"invalid action: expected one of {', '.join(KEY_ACTIONS)}")
    if action == "cooldown":
        if (
            not isinstance(seconds, int | float)
            or isinstance(seconds, bool)
            or not 0 < seconds <= MAX_COOLDOWN
        ):
            raise UsageError(f"invalid seconds: expected a number from 1 to {MAX_COOLDOWN:.0f}")
        cool_down_key(name, float(seconds))
    else:
        set_key_enabled(name, enabled=action == "enable")
    return {"key": name, "action": action}


def parse_decision(item: str, body: Json) -> DecisionRequest:
    """Check and convert the decision that was sent for an item. Raises UsageError."""
    number, action, text, draft = (body.get(name) for name in ("number", "action", "text", "draft"))
    project = body.get("project", "")
    if not isinstance(number, int) or isinstance(number, bool):
        raise UsageError("invalid number: expected the number of the gate, from GET /api/reviews/ITEM")
    if action not in list(ReviewAction):
        raise UsageError(f"invalid action: expected one of {', '.join(ReviewAction)}")
    if not isinstance(text, str | None) or not isinstance(draft, str | None) or not isinstance(project, str):
        raise UsageError("invalid text, draft or project: expected text")
    answers = body.get("answers")
    if answers is not None and not isinstance(answers, dict):
        raise UsageError(
            "invalid answers: expected an object that maps the id of each question to its answer"
        )
    return DecisionRequest(item, number, ReviewAction(str(action)), text or "", draft, project, answers)
