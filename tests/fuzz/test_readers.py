"""Whatever the input, each reader returns a result or raises its own error."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentos.core.errors import AgentosError, UnsupportedFormat
from agentos.core.planning.review_parser import UnreadableReview, read_review
from agentos.core.protocol.codec import CodecError, decode, loads
from agentos.core.protocol.results import Verdict
from agentos.core.text.line_assembler import CUT_MARK, MAX_LINE, LineAssembler
from agentos.models.anthropic import refusals
from agentos.models.gemini import refusals as gemini_refusals
from agentos.models.openai import refusals as openai_refusals
from agentos.storage.credentials.reader import CredentialSource
from agentos.storage.journal import NAME, read_journal
from agentos.storage.peer_log import read_note
from agentos.workflows.github.client import rate_limit_wait
from agentos.workflows.github.tracker import as_page
from agentos.workflows.markdown import read_page, split_front_matter
from agentos.workflows.review_loop import read_metadata

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KINDS = st.sampled_from(
    ["node_started", "lease_released", "grant_lease", "call_started", "item_ended", "Nothing"]
)
NAMES = st.sampled_from(
    ["item", "node", "lease", "usage", "refusal", "outcome", "at", "run", "secret", "boot"]
)
RECORDS = st.builds(lambda kind, rest: {"type": kind, **rest}, KINDS, st.dictionaries(NAMES, JSON))
LINES = st.one_of(
    st.binary(max_size=400),
    RECORDS.map(lambda record: json.dumps(record).encode()),
    JSON.map(json.dumps).map(str.encode),
)
VERDICTS = st.dictionaries(
    st.sampled_from(["verdict", "rationale", "blocking_issues", "extra"]),
    JSON | st.sampled_from(["APPROVED", "REVISE", "approved"]) | st.lists(JSON, max_size=2),
)
BODIES = st.one_of(
    JSON, st.dictionaries(st.sampled_from(["error", "details", "type", "code"]), JSON), st.binary()
)
HEADERS = st.dictionaries(
    st.sampled_from(["retry-after", "x-ratelimit-limit-requests", "anthropic-ratelimit-requests-limit"]),
    st.text(max_size=30),
)


@given(LINES)
def test_the_codec_returns_a_message_or_raises_codec_error(line: bytes) -> None:
    with contextlib.suppress(CodecError):
        loads(line)


@given(JSON | RECORDS)
def test_any_record_is_decoded_or_raises_codec_error(record: object) -> None:
    with contextlib.suppress(CodecError):
        decode(record)


@given(LINES)
def test_any_peer_note_is_read_or_ignored(line: bytes) -> None:
    read_note(line)


@given(lines=st.lists(LINES, max_size=6))
def test_any_journal_can_be_read_or_is_of_another_version(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    (folder / NAME).write_bytes(b"\n".join(lines))
    with contextlib.suppress(UnsupportedFormat):
        list(read_journal(folder))


@given(st.text() | VERDICTS.map(json.dumps))
def test_only_a_valid_verdict_approves(text: str) -> None:
    try:
        review = read_review(text)
    except UnreadableReview:
        return
    if review.verdict is Verdict.APPROVED:
        record = json.loads(text)
        assert record["verdict"] == "APPROVED" and not record.get("blocking_issues")


@given(st.integers(100, 599), BODIES, HEADERS)
def test_any_error_response_is_a_refusal_or_none(code: int, body: Any, headers: dict[str, str]) -> None:
    for reader in (gemini_refusals, refusals, openai_refusals):
        reader.read_refusal(code, body, headers, 1_800_000_000.0)


ISSUES = st.dictionaries(
    st.sampled_from(["number", "title", "body", "labels", "state", "pull_request", "user"]),
    JSON | st.integers(1, 99) | st.lists(st.fixed_dictionaries({"name": JSON}), max_size=2),
)


@given(ISSUES)
def test_any_github_issue_is_a_page_or_none(issue: Any) -> None:
    page = as_page(issue, "acme/shop")
    if page is not None:
        assert page.number == issue["number"] and all(isinstance(label, str) for label in page.labels)


@given(
    st.sampled_from([200, 403, 429]),
    st.dictionaries(
        st.sampled_from(["retry-after", "x-ratelimit-remaining", "x-ratelimit-reset", "date"]),
        st.text(max_size=30) | st.integers(0, 10**40).map(str) | st.just("Wed, 21 Oct 2026 07:28:00 GMT"),
    ),
    JSON,
)
def test_a_github_limit_is_always_a_finite_wait(status: int, headers: dict[str, str], body: Any) -> None:
    seconds = rate_limit_wait(status, headers, body)
    assert seconds is None or 1.0 <= seconds <= 10**12


@given(st.text(max_size=300), st.sampled_from(["---", "+++"]))
def test_any_front_matter_can_be_read(text: str, fence: str) -> None:
    split_front_matter(f"{fence}\n{text}\n{fence}\n# Title\n")


@given(content=st.binary(max_size=400))
def test_any_file_is_read_as_a_page_with_or_without_metadata(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("page") / "042-x.md"
    path.write_bytes(content)
    read_page(path)
    read_metadata(path)


TOML = st.one_of(
    st.binary(max_size=300),
    st.lists(
        st.tuples(
            st.sampled_from(["name", "key", "rpm", "enabled", "provider", "bucket", "concurrency", "kei"]),
            st.one_of(
                st.integers().map(str),
                st.booleans().map(lambda b: str(b).lower()),
                st.text(max_size=9).map(json.dumps),
            ),
        ),
        max_size=5,
    ).map(lambda pairs: ("[[credential]]\n" + "".join(f"{k} = {v}\n" for k, v in pairs)).encode()),
)


@given(content=TOML)
@settings(max_examples=60)
def test_any_credentials_file_gives_keys_or_a_readable_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path: Path = tmp_path_factory.mktemp("home") / "credentials.toml"
    path.write_bytes(content)
    path.chmod(0o600)
    with contextlib.suppress(AgentosError):
        CredentialSource(path, {}).read()


@given(st.lists(st.binary(max_size=200), max_size=8))
def test_lines_are_complete_clean_and_short_whatever_the_bytes(chunks: list[bytes]) -> None:
    assembler = LineAssembler(str)
    lines = [line for chunk in chunks for line in assembler.feed(chunk)] + assembler.close()
    for line in lines:
        assert len(line) <= MAX_LINE + len(CUT_MARK)
        assert not any(
            (ord(character) < 32 and character != "\t") or character == "\x7f" for character in line
        )
