"""Input that random generation hardly ever finds: deep nesting, huge numbers, lone surrogates."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from agentos.config.settings import Flags, read_settings
from agentos.core.errors import AgentosError
from agentos.core.planning.review_parser import UnreadableReview, read_review
from agentos.core.protocol.codec import CodecError, loads
from agentos.core.protocol.events import NodeStarted
from agentos.core.protocol.results import Verdict
from agentos.models.anthropic import refusals
from agentos.models.gemini import refusals as gemini_refusals
from agentos.models.openai import refusals as openai_refusals
from agentos.storage.credentials.reader import CredentialSource
from agentos.storage.journal import NAME, read_journal
from agentos.storage.peer_log import NOTES_FILE, read_findings
from agentos.workflows.markdown import read_page
from agentos.workflows.review_loop import read_metadata

PATHOLOGICAL = {
    "lists": b"[" * 100_000,
    "tables": b'{"a":' * 100_000,
    "a list in a message": b'{"type":"node_started","item":' + b"[" * 100_000,
    "a long number": b"1" * 5000,
    "a longer time": b'{"type":"cooldown_started","boot":"x","wall":1' + b"0" * 400 + b',"clock":1}',
    "half a character": b'{"type":"node_started","item":"\\ud800","node":"N","round":1,"at":1}',
    "no number": b'{"type":"node_started","item":"x","node":"N","round":NaN,"at":Infinity}',
    "zeros": bytes(4096),
    "a bomb of references": b"a: &a [x, x]\n"
    + b"".join(b"%c: &%c [%s]\n" % (98 + n, 98 + n, b", ".join([b"*%c" % (97 + n)] * 9)) for n in range(8))
    + b"title: *i\nnumber: *i\nlabels: *i",
    "itself": b"number: &a [*a]\nlabels: *a",
    "a date that is none": b"number: 2001-99-99\ntitle: !!timestamp x",
    "code": b"number: !!python/object/apply:os.system [id]",
}
Reader = Callable[[Path, bytes], object]


def wire(folder: Path, content: bytes) -> None:
    with contextlib.suppress(CodecError):
        loads(content)


def journal(folder: Path, content: bytes) -> None:
    (folder / NAME).write_bytes(content + b"\n" + content)
    assert {entry.event for entry in read_journal(folder)} <= {NodeStarted("\ud800", "N", 1)}


def notes(folder: Path, content: bytes) -> None:
    (folder / NOTES_FILE).write_bytes(content + b"\n" + content)
    assert read_findings(folder) == []


def verdict(folder: Path, content: bytes) -> None:
    with contextlib.suppress(UnreadableReview):
        assert read_review(content.decode()).verdict is not Verdict.APPROVED


def refusal(folder: Path, content: bytes) -> None:
    for vendor in (gemini_refusals, refusals, openai_refusals):
        vendor.read_refusal(429, content, {"retry-after": content[:300].decode()}, 1_800_000_000.0)


def page(folder: Path, content: bytes) -> None:
    path = folder / "042-x.md"
    for fence in (b"---", b"+++"):
        for name in (b"", b"number = ", b"number: "):
            path.write_bytes(b"%s\n%s%s\n%s\n# Title\n" % (fence, name, content, fence))
            read_page(path)
            read_metadata(path)


def credentials(folder: Path, content: bytes) -> None:
    path = folder / "credentials.toml"
    for text in (
        content,
        b"[[credential]]\nkey = " + content,
        b"[[credential]]\nkey = 'x'\nrpm = " + content,
    ):
        path.write_bytes(text)
        path.chmod(0o600)
        with pytest.raises(AgentosError):
            CredentialSource(path, {}).read()


def settings(folder: Path, content: bytes) -> None:
    for name in (b"", b"parallel = ", b"prices = "):
        (folder / "agentos.toml").write_bytes(name + content)
        with pytest.raises(AgentosError):
            read_settings(Flags(repo=folder), {"AGENTOS_HOME": str(folder / "home")})


@pytest.mark.parametrize("name", PATHOLOGICAL)
@pytest.mark.parametrize("read", [wire, journal, notes, verdict, refusal, page, credentials, settings])
def test_no_reader_breaks_on_pathological_input(tmp_path: Path, read: Reader, name: str) -> None:
    read(tmp_path, PATHOLOGICAL[name])
