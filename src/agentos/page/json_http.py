"""Reads JSON requests, and responds with JSON, package files and error messages."""

import functools
import json
import traceback
from collections.abc import Awaitable, Callable
from importlib import resources

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agentos.config.settings import wants_traceback
from agentos.core.errors import AgentosError, NothingMatches, ServiceAway, UsageError
from agentos.page.access import LoginRefused
from agentos.page.guard import BodyTooLarge
from agentos.page.reviews import DecidedMeanwhile
from agentos.page.views import Json

TYPES = {"css": "text/css", "html": "text/html", "js": "text/javascript", "svg": "image/svg+xml"}
Endpoint = Callable[[Request], Awaitable[Response]]


class ReadOnlyPage(AgentosError):
    """A change was requested from a page that was started with --read-only."""


def translated(handler: Endpoint) -> Endpoint:
    """Turn errors into JSON responses with a status; the message says what to do, as on the command line."""

    @functools.wraps(handler)
    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except BodyTooLarge as error:
            return problem(413, str(error))
        except LoginRefused as error:
            status = 429 if error.retry_after else 401
            headers = {"retry-after": str(error.retry_after)} if error.retry_after else None
            return JSONResponse({"error": str(error)}, status, headers)
        except AgentosError as error:
            return problem(_status(error), str(error))
        except OSError as error:
            return problem(500, f"{error.strerror or error}: {error.filename or 'no file'}")
        except Exception as error:
            if wants_traceback():
                traceback.print_exc()
            return problem(
                500, f"{type(error).__name__}: run agentos page with AGENTOS_DEBUG=1, and report it"
            )

    return handle


def _status(error: AgentosError) -> int:
    match error:
        case ReadOnlyPage():
            return 403
        case DecidedMeanwhile():
            return 409
        case ServiceAway():
            return 503
        case NothingMatches():
            return 404
        case UsageError():
            return 400
    return 500


def problem(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status)


def package_file(name: str) -> Response:
    """A file of the package. Names that are not listed there, such as `..`, are not found."""
    folder = resources.files("agentos.page") / "static"
    found = next((entry for entry in folder.iterdir() if entry.name == name and entry.is_file()), None)
    if found is None:
        return problem(404, "no such file")
    return Response(found.read_bytes(), media_type=TYPES.get(name.rpartition(".")[2], "text/plain"))


async def json_body(request: Request) -> Json:
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise UsageError("expected a JSON body, with content-type: application/json")
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise UsageError("the body is not JSON") from error
    if not isinstance(body, dict):
        raise UsageError("expected a JSON object")
    return body


def number_of(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not text.removeprefix("-").isdecimal() or len(text) > 15:
        raise UsageError(f"invalid {name}: expected a whole number")
    return int(text)
