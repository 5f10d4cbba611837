"""Security rules that are checked by calling the package: file modes, redaction, confined writes, verdicts, ids."""

import asyncio
import base64
import contextlib
import json
import os
import stat
import tempfile
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

from agentos.config.settings import worker_environment
from agentos.core.errors import PreflightError
from agentos.core.planning.items import is_safe_id
from agentos.core.planning.review_parser import UnreadableReview, read_review
from agentos.core.protocol.results import Verdict
from agentos.core.text.secrets import Redactor, Secret
from agentos.regular_files import UnsafeFile
from agentos.storage.checkpoints import open_checkpoint
from agentos.storage.credentials.editor import NewCredential, append_credential
from agentos.storage.credentials.reader import CredentialSource
from agentos.storage.files import Folder, private_file
from agentos.storage.home import Home, check_home
from agentos.storage.runs import new_run

CANARY = "canary/key+4711=="
VARIABLES = (
    "GEMINI_API_KEY_1",
    "GOOGLE_API_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL_2",
    "OPENAI_API_KEY",
    "OPENAI_ORG_ID",
    "LANGSMITH_API_KEY",
    "LANGCHAIN_TRACING_V2",
    "AGENTOS_SIMULATE_429",
    "GITHUB_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "PGPASSWORD",
)
INVALID_REVIEWS = (
    "",
    "APPROVED",
    "null",
    "[]",
    "{}",
    '"APPROVED"',
    '{"verdict": "APPROVED"}',
    '{"verdict": "approved", "rationale": "x", "blocking_issues": []}',
    '{"verdict": ["APPROVED"], "rationale": "x"}',
    '{"verdict": "APPROVED", "rationale": 1}',
    '{"verdict": "APPROVED", "rationale": "x", "blocking_issues": ["y"]}',
    '{"verdict": "APPROVED", "rationale": "x", "blocking_issues": [{"section": "a", "severity": "b", '
    '"description": "c"}]}',
    "[" * 100_000,
)
UNSAFE_IDS = ("", ".", "..", "../x", "a/b", "/etc/x", "-rf", ".hidden", "a\0b", "a\nb", "x" * 65, "é", "a b")


@contextlib.contextmanager
def _temporary_folder(umask: int = 0o022) -> Iterator[Path]:
    """A temporary folder; files are created under this umask."""
    before = os.umask(umask)
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
    finally:
        os.umask(before)


def open_modes() -> Iterator[str]:
    with _temporary_folder(umask=0) as folder:
        home = Home(folder / "home").open()
        append_credential(CredentialSource(home.credentials, {}), NewCredential("gemini", CANARY))
        run = new_run(home.runs, 0.0)
        os.close(private_file(run.path / "events.jsonl"))
        run.close()
        asyncio.run(_make_checkpoint(home.checkpoint(folder, "lld", 42)))
        seen = [home.path, *home.path.rglob("*")]
        for path in seen:
            if not path.is_symlink() and (found := _wrong_mode(path)):
                yield f"{path.relative_to(folder)} is {found}"
        if len(seen) < 9:
            yield f"only {len(seen)} files and folders were found"


async def _make_checkpoint(path: Path) -> None:
    async with open_checkpoint(path) as checkpoint:
        await checkpoint.note("node", "N1_design")


def _wrong_mode(path: Path) -> str | None:
    mode = stat.S_IMODE(path.stat().st_mode)
    return f"{mode:04o}" if mode != (0o700 if path.is_dir() else 0o600) else None


def leaking_environment() -> Iterator[str]:
    environment = dict.fromkeys(VARIABLES, CANARY)
    environment |= {"PATH": "/usr/bin", "MY_PROXY": f"http://user:{CANARY}@proxy"}
    found = worker_environment((Secret(CANARY),), environment)
    yield from (f"{name} reaches a worker" for name, value in found.items() if CANARY in value)
    yield from (f"{name} reaches a worker" for name in set(VARIABLES) & set(found))
    if found.get("LANGSMITH_TRACING_V2") != "false":
        yield "LANGSMITH_TRACING_V2 is not false"
    if found.get("PATH") != "/usr/bin":
        yield "PATH was changed"


def unredacted_secrets() -> Iterator[str]:
    redact = Redactor([Secret(CANARY)])
    forms = {
        "plain": CANARY,
        "in JSON": json.dumps({"key": CANARY}),
        "in a URL": urllib.parse.quote(CANARY, safe=""),
        **{f"in base64, shifted by {n}": _encoded("x" * n + CANARY) for n in range(3)},
    }
    for form, text in forms.items():
        if redact(f"before {text} after") == f"before {text} after":
            yield f"not redacted: {form}"
    if CANARY in repr(Secret(CANARY)) or CANARY in str(Secret(CANARY)):
        yield "printing a Secret shows its value"


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def escaping_writes() -> Iterator[str]:
    with _temporary_folder() as folder:
        project, outside = folder / "project", folder / "outside"
        project.mkdir()
        outside.mkdir()
        (project / "docs").symlink_to(outside)
        (project / "note.md").symlink_to(outside / "victim.md")
        documents = Folder(project)
        for name in ("../outside/x", "/tmp/x", "docs/x", "a/../../outside/x", ""):
            with contextlib.suppress(ValueError, OSError, UnsafeFile):
                documents.write(name, b"x")
                yield f"{name!r} was written"
        documents.write("note.md", b"x")
        yield from (f"{path.name} was written outside" for path in outside.iterdir())


def accepted_homes() -> Iterator[str]:
    with _temporary_folder() as folder:
        real = folder / "real"
        real.mkdir()
        linked, shared, file = folder / "linked", folder / "shared", folder / "file"
        linked.symlink_to(real)
        shared.mkdir()
        shared.chmod(0o777)
        file.touch()
        for home in (linked, shared, file):
            with contextlib.suppress(PreflightError):
                check_home(home)
                yield f"a {home.name} home is accepted"
        check_home(real)


def invalid_approvals() -> Iterator[str]:
    for text in INVALID_REVIEWS:
        with contextlib.suppress(UnreadableReview):
            if read_review(text, lenient=True).verdict is Verdict.APPROVED:
                yield f"approved: {text[:60]}"
    valid = read_review('{"verdict": "APPROVED", "rationale": "x", "blocking_issues": []}')
    if valid.verdict is not Verdict.APPROVED:
        yield "a valid approval was not accepted"


def unsafe_ids() -> Iterator[str]:
    yield from (f"{text[:20]!r} is accepted" for text in UNSAFE_IDS if is_safe_id(text))
    if not is_safe_id("LLD-42"):
        yield "LLD-42 is refused"
