"""Who gets nothing from the page: other users, other sites, other ports, other names; and what every answer says."""

import re
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentos.page.access import MAX_FAILURES, HostCheck, LoginRefused, PageSessions, cookie_of, origin_problem
from tests.scenarios.harness import PROGRAMS, RunHarness, wait_until

from .served import Answer, ServedPage, serve

SITE = "https://evil.example"
PATHS = (
    "/",
    "/static/main.js",
    "/static/nothing",
    "/api/runs",
    "/api/keys",
    "/api/machines",
    "/api/reviews",
    "/nothing",
    "/api/runs/x/events",
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPage]:
    with RunHarness.open(tmp_path_factory.mktemp("access") / "harness") as harness:
        yield serve(harness)


def test_without_a_token_every_path_but_the_login_answers_401(page: ServedPage) -> None:
    assert {path: page.call(path).status for path in PATHS} == dict.fromkeys(PATHS, 401)
    posts = ("/api/runs/x/requests", "/api/reviews/LLD-1", "/api/keys/key-1", "/api/links", "/api/logout")
    assert {path: page.call(path, {}).status for path in posts} == dict.fromkeys(posts, 401)
    assert page.call("/login").status == 200 and page.call("/login/login.js").status == 200
    wrong = page.call("/api/runs", headers={"authorization": "Bearer wrong"})
    assert wrong.status == 401
    opened = page.call("/", headers={"sec-fetch-mode": "navigate"})
    assert opened.status == 401 and b"Open the address that" in opened.body
    assert b'<form id="password-form" hidden>' in opened.body


def test_a_login_token_works_once_and_until_then_also_as_bearer(page: ServedPage) -> None:
    token = page.token
    bearer = {"authorization": f"Bearer {token}"}
    assert page.call("/api/runs", headers=bearer).status == 200
    first = page.call("/login", {"token": token})
    page.links_used += 1
    assert first.status == 200 and first.json["session"]
    assert page.call("/login", {"token": token}).status == 401
    assert page.call("/api/runs", headers=bearer).status == 401
    cookie = first.headers["set-cookie"]
    assert re.search("HttpOnly", cookie) and re.search("SameSite=strict", cookie, re.IGNORECASE)
    assert page.token != token


def test_a_cookie_without_the_second_half_opens_nothing(page: ServedPage) -> None:
    """A browser sends a cookie to every port of a host: whoever listens on another one could have seen it."""
    login = page.call("/login", {"token": page.token})
    page.links_used += 1
    cookie = login.headers["set-cookie"].split(";")[0]
    assert page.call("/api/runs", headers={"cookie": cookie}).status == 401
    whole = {"cookie": cookie, "x-agentos-session": login.json["session"]}
    assert page.call("/api/runs", headers=whole).status == 200
    assert page.call("/api/runs", headers={"x-agentos-session": login.json["session"]}).status == 401
    assert page.call("/", headers={"cookie": cookie}).status == 200
    assert page.call("/api/logout", {}, whole).status == 200
    assert page.call("/api/runs", headers=whole).status == 401


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"])
def test_another_site_gets_nothing_with_any_method(page: ServedPage, method: str) -> None:
    token = {"authorization": f"Bearer {page.token}"}
    body: object = {} if method in ("POST", "PUT", "PATCH") else None
    headers: dict[str, str]
    for headers in (
        {"origin": SITE},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://127.0.0.1:1"},
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example"},
    ):
        for path in ("/api/runs", "/login", "/api/links"):
            answer = page.call(path, body, {**token, **headers}, method)
            assert answer.status == 403, (path, headers)
            assert not any(name.startswith("access-control") for name in answer.headers)


def test_a_link_elsewhere_may_open_the_login_page_but_not_frame_or_fetch_it(page: ServedPage) -> None:
    navigation = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert page.call("/login", headers=navigation).status == 200
    assert page.call("/login", headers={**navigation, "sec-fetch-dest": "iframe"}).status == 403
    assert page.call("/login", headers={**navigation, "sec-fetch-mode": "no-cors"}).status == 403
    assert page.call("/", headers=navigation).status == 403


def test_every_answer_carries_the_policy(page: ServedPage) -> None:
    answers = [
        page.call("/login"),
        page.call("/api/runs"),
        page.get("/api/runs"),
        page.get("/static/main.js"),
    ]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy and "http" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers


def test_no_file_of_the_browser_has_an_inline_script_a_style_or_another_host() -> None:
    folder = Path(__file__).parents[2] / "src/agentos/page/static"
    for file in folder.iterdir():
        text = file.read_text("utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text
        ), file
        assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", text), file
        if file.suffix == ".html":
            assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", text), file


def test_a_body_that_is_too_large_or_no_json_is_refused(page: ServedPage) -> None:
    token = {"authorization": f"Bearer {page.token}"}
    assert page.call("/api/preview", {"text": "x" * 3_000_000}, token).status == 413
    assert page.call("/api/preview", {"text": "# Title"}, token).status == 200
    assert page.call("/api/preview", {"text": "x"}, {**token, "content-type": "text/plain"}).status == 400
    assert page.call("/api/preview", [1], token).status == 400
    assert page.call("/api/preview", {"text": 1}, token).status == 400


def test_a_chunked_body_is_bounded_too(page: ServedPage) -> None:
    host, port = page.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 20) as connection:
        head = f"POST /api/preview HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {page.token}\r\n"
        connection.sendall(
            f"{head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        try:
            for _ in range(64):
                connection.sendall(chunk)
            answer = connection.recv(100)
        except ConnectionError:
            answer = b"HTTP/1.1 413"
    assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "path", ["/static/..%2f__init__.py", "/static/../access.py", "/login/..%2fpage.html", "/login/page.html"]
)
def test_no_path_leads_out_of_the_static_files(page: ServedPage, path: str) -> None:
    answer: Answer = page.get(path)
    assert answer.status in (200, 404)
    assert b"import" not in answer.body and b"def " not in answer.body


def test_wrong_passwords_are_counted_and_then_refused_for_a_while() -> None:
    now = [0.0]
    sessions = PageSessions(lambda: now[0], "a long password")
    for _ in range(MAX_FAILURES):
        with pytest.raises(LoginRefused, match="wrong password"):
            sessions.log_in("guess")
    with pytest.raises(LoginRefused, match="too many"):
        sessions.log_in("a long password")
    assert sessions.log_in(sessions.login_token).cookie, "guesses must not lock out whoever has the link"
    now[0] = 61.0
    assert sessions.log_in("a long password").cookie


def test_a_session_ends_after_twelve_hours() -> None:
    now = [0.0]
    sessions = PageSessions(lambda: now[0])
    session = sessions.log_in(sessions.login_token)
    bearer = sessions.issue_bearer(sessions.login_token)
    assert sessions.allows(session.cookie, session.key, "") and sessions.allows("", "", f"Bearer {bearer}")
    now[0] = 12 * 3600.0
    assert not sessions.allows(session.cookie, session.key, "") and not sessions.is_browser(session.cookie)
    assert not sessions.allows("", "", f"Bearer {bearer}")


def test_hosts_are_compared_by_name_and_beyond_loopback_any_address_is_accepted() -> None:
    local, open_to_all = HostCheck.of("127.0.0.1"), HostCheck.of("0.0.0.0")
    assert all(local.accepts(host) for host in ("127.0.0.1:80", "localhost:9000", "[::1]:1", "LOCALHOST"))
    assert not any(local.accepts(host) for host in ("", "evil", "10.0.0.7", "127.0.0.1.nip.io", "[::2]:1"))
    assert open_to_all.accepts("10.0.0.7:8484") and open_to_all.accepts(socket.gethostname())
    assert not open_to_all.accepts("evil.example:8484")


def test_a_program_without_browser_headers_is_no_other_site() -> None:
    assert origin_problem("POST", "/api/links", {"host": "127.0.0.1:1"}) is None
    assert origin_problem("POST", "/x", {"host": "127.0.0.1:1", "origin": "http://127.0.0.1:1"}) is None
    assert cookie_of("a=1; b=2; b=3", "b") == "2" and cookie_of("", "b") == ""


def test_behind_a_server_that_adds_tls_the_page_is_itself(page: ServedPage) -> None:
    own = page.url.removeprefix("http://")
    assert page.call("/login", {"token": "wrong"}, {"origin": f"https://{own}"}).status == 401
    assert page.call("/login", {"token": "wrong"}, {"origin": f"https://{own}0"}).status == 403


def test_beyond_loopback_a_password_file_is_demanded_with_the_ssh_line(harness: RunHarness) -> None:
    refused = harness.run("page", "--host", "0.0.0.0", "--port", "8484", program="agentos")
    assert refused.code == 2
    assert "--password-file" in refused.err and "ssh -N -L 8484:127.0.0.1:8484 " in refused.err


@pytest.mark.parametrize(
    ("content", "mode", "problem"),
    [
        ("a long password\n", 0o644, "chmod 600"),
        ("short\n", 0o600, "5 characters"),
        ("", 0o600, "0 characters"),
    ],
)
def test_a_weak_password_file_is_refused(harness: RunHarness, content: str, mode: int, problem: str) -> None:
    file = harness.root / "password"
    file.write_text(content)
    file.chmod(mode)
    refused = harness.run("page", "--password-file", file, program="agentos")
    assert refused.code == 3 and problem in refused.err


def test_with_a_password_the_page_asks_for_it(harness: RunHarness) -> None:
    file = harness.root / "password"
    file.write_text("correct horse battery\n")
    file.chmod(0o600)
    page = serve(harness, "--password-file", str(file))
    assert b'<form id="password-form">' in page.call("/login").body
    assert page.call("/login", {"token": "wrong horse battery"}).status == 401
    assert page.call("/login", {"token": "correct horse battery"}).status == 200
    assert page.call("/login", {"token": "correct horse battery"}).status == 200


def test_the_token_is_in_no_argument_and_no_file_that_others_can_read(harness: RunHarness) -> None:
    browser = harness.root / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" > {harness.root}/arguments\n')
    browser.chmod(0o755)
    command = harness.start("page", "--open", program="agentos", BROWSER=f"{browser} %s &")
    page = ServedPage(command)
    token = page.token
    wait_until(
        lambda: (harness.root / "arguments").exists() and (harness.root / "arguments").read_text().strip()
    )
    opened = (harness.root / "arguments").read_text().strip()
    assert opened.startswith("file://") and token not in opened
    file = Path(opened.removeprefix("file://"))
    assert token in file.read_text() and stat.S_IMODE(file.stat().st_mode) == 0o600
    assert token not in Path(f"/proc/{command.pid}/cmdline").read_text()
    command.process.terminate()
    assert command.process.wait(10) == 0 and not file.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_page_with_0_and_says_nothing_more(
    harness: RunHarness, number: signal.Signals
) -> None:
    page = serve(harness)
    page.command.process.send_signal(number)
    done = page.command.wait()
    assert done.code == 0 and done.err == ""


def test_a_port_in_use_is_said(harness: RunHarness) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = harness.run("page", "--port", port, program="agentos")
    assert refused.code == 3 and f"cannot listen on 127.0.0.1:{port}" in refused.err


def test_without_the_extra_the_command_names_it(harness: RunHarness) -> None:
    hidden = "import sys; sys.modules['starlette'] = None; from agentos.cli import main; main()"
    for words in (["page"], ["run", "lld", "--all", "--page"]):
        harness.issue(1)
        done = subprocess.run(
            [PROGRAMS / "python", "-c", hidden, *words],
            cwd=harness.project,
            env=harness.environment(),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 3
        assert "pip install 'agentos-runner[page]'" in done.stderr
