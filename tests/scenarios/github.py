"""A fake of GitHub's REST API on loopback that records the requests it receives."""

import calendar
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

REPOSITORY = "acme/shop"
TOKEN = "ghp_canaryToken0123456789abcdef"
Json = dict[str, Any]


class FakeGitHub:
    """Holds issues, pull requests, and the faults to apply to the next requests."""

    def __init__(self) -> None:
        self.issues: list[Json] = []
        self.pulls: list[Json] = []
        self.asked: list[str] = []
        self.faults: list[tuple[str, str]] = []
        self.scopes: str | None = "repo"
        self.repository: Json = {"full_name": REPOSITORY, "has_issues": True, "archived": False}
        self.url = ""
        self.let_go = threading.Event()
        # Protects the lists, which the server's threads change while the test reads them.
        self.lock = threading.Lock()

    def add(self, number: int, title: str, body: str, **more: Any) -> None:
        issue = {"number": number, "title": title, "body": body, "state": "open", "labels": []}
        page = f"https://github.example/{REPOSITORY}/issues/{number}"
        self.issues.append({**issue, "html_url": page, "updated_at": time.time(), **more})

    def create(self, body: Json) -> Json:
        with self.lock:
            number = max([0, *(issue["number"] for issue in self.issues)]) + 1
            self.add(number, body["title"], body["body"], labels=[{"name": name} for name in body["labels"]])
            return self.issues[-1]

    def fault(self, method: str) -> str:
        with self.lock:
            for entry in self.faults:
                if entry[0] == method:
                    self.faults.remove(entry)
                    return entry[1]
        return ""

    @contextlib.contextmanager
    def serve(self, tls: ssl.SSLContext | None = None) -> Iterator["FakeGitHub"]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Handler,), {"github": self}))
        server.daemon_threads = True
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
        try:
            yield self
        finally:
            self.let_go.set()
            server.shutdown()
            server.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    github: FakeGitHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._handle("GET", {})

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        self._handle("POST", json.loads(self.rfile.read(length)))

    def _handle(self, method: str, body: Json) -> None:
        self.github.asked.append(f"{method} {self.path}")
        fault = self.github.fault(method)
        if fault in ("lost", "hang"):
            self.github.create(body)
            if fault == "hang":
                self.github.let_go.wait(30)
            self.close_connection = True
            return None
        if fault:
            return self._fail(fault)
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            return self._send(401, {"message": "Bad credentials"})
        path = urlsplit(self.path).path
        if path == f"/repos/{REPOSITORY}/issues" and method == "POST":
            return self._send(201, self.github.create(body))
        if path == f"/repos/{REPOSITORY}/issues":
            return self._list()
        if path == f"/repos/{REPOSITORY}/pulls":
            if method == "POST":
                address = f"https://github.example/{REPOSITORY}/pull/{len(self.github.pulls) + 1}"
                self.github.pulls.append({**body, "head": {"ref": body["head"]}, "html_url": address})
            return self._send(200, self.github.pulls[-1] if method == "POST" else self.github.pulls)
        if path == f"/repos/{REPOSITORY}":
            scopes = {} if self.github.scopes is None else {"X-OAuth-Scopes": self.github.scopes}
            return self._send(200, self.github.repository, scopes)
        return self._send(404, {"message": "Not Found"})

    def _fail(self, fault: str) -> None:
        kind, _, value = fault.partition(":")
        match kind:
            case "primary":
                reset = str(int(time.time()) + int(value))
                headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": reset}
                self._send(403, {"message": "API rate limit exceeded"}, headers)
            case "secondary":
                self._send(
                    403, {"message": "You have exceeded a secondary rate limit"}, {"Retry-After": value}
                )
            case "ungranted":
                # GitHub's answer to a fine-grained token with read-only access.
                message = "Resource not accessible by personal access token"
                self._send(403, {"message": message}, {"X-Accepted-GitHub-Permissions": value})
            case "moved":
                self._send(301, {"message": "Moved Permanently"}, {"Location": value})
            case _:
                self._send(int(kind), {"message": "injected by the test"})

    def _list(self) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        size, page = int(query.get("per_page", 30)), int(query.get("page", 1))
        wanted = [i for i in self.github.issues if query.get("state") == "all" or i["state"] == "open"]
        if since := query.get("since"):
            updated_since = calendar.timegm(time.strptime(since, "%Y-%m-%dT%H:%M:%SZ"))
            wanted = [issue for issue in wanted if issue["updated_at"] >= updated_since]
        items = wanted[(page - 1) * size : page * size]
        headers = {}
        if page * size < len(wanted):
            following = urlencode({**query, "page": page + 1})
            headers["Link"] = f'<{self.github.url}{urlsplit(self.path).path}?{following}>; rel="next"'
        self._send(200, items, headers)

    def _send(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(body).encode()
        self.send_response_only(status)
        for name, value in {"Date": formatdate(usegmt=True), **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
