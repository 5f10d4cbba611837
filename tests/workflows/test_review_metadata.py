"""Review metadata in a document's front matter."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentos.core.protocol.results import Verdict
from agentos.workflows.markdown import read_page
from agentos.workflows.review_loop import ReviewMetadata, read_metadata, with_metadata

EVIDENCE = ReviewMetadata(
    "LLD-42", Verdict.APPROVED, 2, "gemini-pro", "gemini-pro", "2026-07-01", "issues/42.md", "ab" * 32
)


def read(tmp_path: Path, text: str) -> ReviewMetadata | None:
    (tmp_path / "LLD-042.md").write_text(text, "utf-8")
    return read_metadata(tmp_path / "LLD-042.md")


@pytest.mark.parametrize("verdict", list(Verdict))
def test_metadata_is_read_as_it_was_written(tmp_path: Path, verdict: Verdict) -> None:
    metadata = replace(EVIDENCE, status=verdict)
    assert read(tmp_path, with_metadata(metadata, "# A design\n\ntext\n")) == metadata


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(model=words, source=words, body=words)
def test_arbitrary_values_and_bodies_survive_a_round_trip(
    tmp_path: Path, model: str, source: str, body: str
) -> None:
    metadata = replace(EVIDENCE, reviewer=model, source=source)
    assert read(tmp_path, with_metadata(metadata, body)) == metadata


def test_the_metadata_is_valid_yaml_front_matter(tmp_path: Path) -> None:
    (tmp_path / "42.md").write_text(with_metadata(EVIDENCE, "# A design\n\ntext\n"))
    page = read_page(tmp_path / "42.md")
    assert page.problems == () and page.body == "\n# A design\n\ntext\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# A design of somebody's own\n",
        "---\n",
        "---\nstatus: approved\n---\n",
        "---\ntitle: x\n---\n# A design\n",
        "---\nno colon\n---\n",
    ],
)
def test_a_document_written_by_somebody_else_has_no_metadata(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) is None


def test_an_unknown_status_or_field_is_not_metadata(tmp_path: Path) -> None:
    text = with_metadata(EVIDENCE, "text")
    assert read(tmp_path, text.replace('"approved"', '"Approved"')) is None
    assert read(tmp_path, text.replace("rounds: 2\n", "")) is None
    assert read(tmp_path, text.replace("rounds: 2", "colour: 2")) is None


def test_metadata_in_the_body_is_ignored(tmp_path: Path) -> None:
    revised = replace(EVIDENCE, status=Verdict.NEEDS_REVISION)
    found = read(tmp_path, with_metadata(revised, with_metadata(EVIDENCE, "# A design\n")))
    assert found == revised


def test_an_unreadable_file_has_no_metadata(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"---\n\xff\n")
    assert read_metadata(tmp_path / "binary") is None
    assert read_metadata(tmp_path / "nothing") is None
    assert read_metadata(tmp_path) is None
