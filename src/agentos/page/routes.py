"""The routes of the page: the login, the page's own files, and the JSON API."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from agentos.core.errors import NothingMatches, UsageError
from agentos.core.text.secrets import Redactor
from agentos.page.access import SESSION_SECONDS, HostCheck, PageSessions, cookie_of
from agentos.page.actions import RunControl, parse_decision
from agentos.page.event_stream import EventResponse, EventStreams, parse_position
from agentos.page.guard import Guard
from agentos.page.item_view import diff_json, document_json, item_view_json, output_json
from agentos.page.json_http import (
    Endpoint,
    ReadOnlyPage,
    json_body,
    number_of,
    package_file,
    problem,
    translated,
)
from agentos.page.markdown import parse_markdown
from agentos.page.reviews import ReviewQueue
from agentos.page.run_view import RunView, RunViews
from agentos.page.views import Json, compare_json, log_json, run_view_json, runs_json, timeline_json

MAX_LOG_LINES = 5000


@dataclass(slots=True)
class PageApp:
    """The state that the routes share, and the handlers."""

    sessions: PageSessions
    read_only: bool
    redact: Callable[[], Redactor]
    link: Callable[[str], str]
    cookie_name: str
    runs_shown: RunViews
    reviews: ReviewQueue
    streams: EventStreams
    control: RunControl

    @property
    def _kind(self) -> Json:
        return {"read_only": self.read_only, "is_fleet": self.control.is_fleet}

    # The login and the page's own files.

    @property
    def login_html(self) -> bytes:
        """Its form is shown only if there is a password."""
        page = bytes(package_file("login.html").body)
        return page.replace(b" hidden>", b">") if self.sessions.password else page

    async def login_page(self, request: Request) -> Response:
        return HTMLResponse(self.login_html)

    async def login_file(self, request: Request) -> Response:
        return package_file(request.path_params["name"])

    async def log_in(self, request: Request) -> Response:
        body = await json_body(request)
        secret = body.get("token")
        if not isinstance(secret, str):
            raise UsageError('expected {"token": "..."}')
        if body.get("bearer") is True:
            return JSONResponse({"bearer": self.sessions.issue_bearer(secret)})
        session = self.sessions.log_in(secret)
        response = JSONResponse({"session": session.key})
        response.set_cookie(
            self.cookie_name, session.cookie, max_age=int(SESSION_SECONDS), httponly=True, samesite="strict"
        )
        return response

    async def log_out(self, request: Request) -> Response:
        self.sessions.log_out(cookie_of(request.headers.get("cookie", ""), self.cookie_name))
        response = JSONResponse({})
        response.delete_cookie(self.cookie_name)
        return response

    async def page(self, request: Request) -> Response:
        return package_file("page.html")

    async def static(self, request: Request) -> Response:
        return package_file(request.path_params["name"])

    # Reading.

    async def runs(self, request: Request) -> Response:
        return await self._json(lambda: {**runs_json(self.runs_shown), **self._kind})

    async def run(self, request: Request) -> Response:
        view = await self._view(request)
        return await self._json(lambda: {**run_view_json(view), "read_only": self.read_only})

    async def events(self, request: Request) -> Response:
        view = await self._view(request)
        if self.streams.is_full:
            return problem(503, "too many open event streams: close some pages")
        wanted = request.headers.get("last-event-id") or request.query_params.get("after", "")
        with_output = request.query_params.get("output") == "1"
        return EventResponse(self.streams, view, parse_position(wanted, view), with_output)  # type: ignore[return-value]

    async def log(self, request: Request) -> Response:
        view, query = await self._view(request), request.query_params
        level = query.get("level", "")
        if level not in ("", "info", "warning", "error"):
            raise UsageError("invalid level: expected info, warning or error")
        limit = max(1, min(number_of(request, "limit", 500), MAX_LOG_LINES))
        item = query.get("item", "")

        def lines() -> Json:
            with view.lock:  # the offset is that of these lines
                return {"offset": view.offset, "lines": log_json(view.log_lines(item, level, limit))}

        return await self._json(lines)

    async def timeline(self, request: Request) -> Response:
        view = await self._view(request)
        first, count = number_of(request, "from", 0), number_of(request, "count", 100)
        return await self._json(timeline_json, view, first, count)

    async def item(self, request: Request) -> Response:
        return await self._json(item_view_json, await self._view(request), request.path_params["item"])

    async def document(self, request: Request) -> Response:
        item, name = request.path_params["item"], request.path_params["name"]
        return await self._json(document_json, await self._view(request), item, name)

    async def diff(self, request: Request) -> Response:
        query = request.query_params
        first, second = query.get("from", ""), query.get("to", "")
        return await self._json(
            diff_json, await self._view(request), request.path_params["item"], first, second
        )

    async def output(self, request: Request) -> Response:
        offset = number_of(request, "after", -1)
        return await self._json(output_json, await self._view(request), request.path_params["item"], offset)

    async def compare(self, request: Request) -> Response:
        first = await self._named_view(request.query_params.get("first", ""))
        second = await self._named_view(request.query_params.get("second", ""))
        return await self._json(compare_json, first, second)

    async def keys(self, request: Request) -> Response:
        return await self._json(self.control.keys_json)

    async def machines(self, request: Request) -> Response:
        return await self._json(self.control.machines_json)

    async def review_list(self, request: Request) -> Response:
        return await self._json(lambda: {**self.reviews.overview(), **self._kind})

    async def review(self, request: Request) -> Response:
        project = request.query_params.get("project", "")
        return await self._json(self.reviews.show, request.path_params["item"], project)

    async def preview(self, request: Request) -> Response:
        text = (await json_body(request)).get("text")
        if not isinstance(text, str):
            raise UsageError('expected {"text": "..."}')
        return await self._json(lambda: {"nodes": parse_markdown(text)})

    # Changing.

    async def request(self, request: Request) -> Response:
        self._check_writable()
        view, body = await self._view(request), await json_body(request)
        return await self._json(self.control.request, view, body)

    async def decision(self, request: Request) -> Response:
        self._check_writable()
        wanted = parse_decision(request.path_params["item"], await json_body(request))
        return await self._json(self.reviews.decide, wanted)

    async def key(self, request: Request) -> Response:
        self._check_writable()
        return await self._json(
            self.control.change_key, request.path_params["name"], await json_body(request)
        )

    async def new_link(self, request: Request) -> Response:
        self._check_writable()
        return JSONResponse({"url": self.link(self.sessions.login_token)})

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyPage("this page is read-only: it was started with --read-only")

    async def _view(self, request: Request) -> RunView:
        return await self._named_view(request.path_params["run"])

    async def _named_view(self, run: str) -> RunView:
        view = await asyncio.to_thread(self.runs_shown.find, run)
        if view is None:
            raise NothingMatches(f"no run with id {run[:40]!r}")
        return view

    async def _json(self, function: Callable[..., Json], *arguments: object) -> Response:
        """Call the function in a thread; secrets known to this home are redacted from its response."""

        def encode() -> bytes:
            text = json.dumps(function(*arguments), ensure_ascii=False, separators=(",", ":"))
            return self.redact()(text).encode("utf-8", "replace")

        return Response(await asyncio.to_thread(encode), media_type="application/json")


def build_app(page: PageApp, hosts: HostCheck) -> ASGIApp:
    get: dict[str, Endpoint] = {
        "/": page.page,
        "/login": page.login_page,
        "/login/{name}": page.login_file,
        "/static/{name}": page.static,
        "/api/runs": page.runs,
        "/api/runs/{run}": page.run,
        "/api/runs/{run}/events": page.events,
        "/api/runs/{run}/log": page.log,
        "/api/runs/{run}/timeline": page.timeline,
        "/api/runs/{run}/items/{item}": page.item,
        "/api/runs/{run}/items/{item}/documents/{name}": page.document,
        "/api/runs/{run}/items/{item}/diff": page.diff,
        "/api/runs/{run}/items/{item}/output": page.output,
        "/api/compare": page.compare,
        "/api/keys": page.keys,
        "/api/machines": page.machines,
        "/api/reviews": page.review_list,
        "/api/reviews/{item}": page.review,
    }
    post: dict[str, Endpoint] = {
        "/login": page.log_in,
        "/api/logout": page.log_out,
        "/api/preview": page.preview,
        "/api/links": page.new_link,
        "/api/runs/{run}/requests": page.request,
        "/api/reviews/{item}": page.decision,
        "/api/keys/{name}": page.key,
    }
    routes = [
        *(Route(path, translated(handler), methods=["GET"]) for path, handler in get.items()),
        *(Route(path, translated(handler), methods=["POST"]) for path, handler in post.items()),
    ]
    login_page = page.login_html
    app = Starlette(routes=routes, exception_handlers={404: _no_route, 405: _no_route})
    return Guard(app, page.sessions, hosts, page.cookie_name, lambda: login_page)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = (
        f"no such address: {request.url.path[:80]}"
        if error.status_code == 404
        else f"{request.method} is not possible here"
    )
    return JSONResponse({"error": text}, error.status_code, error.headers)
