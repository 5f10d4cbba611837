"""The process that builds an index beside a run."""

from pathlib import Path

from agentos.codebase.index import CodeIndex
from agentos.codebase.index_process import IndexProcess, IndexState, is_being_built, is_indexed, read_progress
from agentos.codebase.indexing import IndexJob, index_lock
from agentos.codebase.source_files import ProjectSource
from tests.codebase.projects import clean_environment, make_project

LONG = 100.0  # seconds


def job_for(tmp_path: Path, files: dict[str, str]) -> IndexJob:
    source = ProjectSource(make_project(tmp_path / "p", files), clean_environment())
    return IndexJob(tmp_path / "code.db", source, source.take_snapshot(), ("README.md",))


def test_it_builds_the_index_and_reports_how_far_it_is(tmp_path: Path) -> None:
    job = job_for(tmp_path, {f"m{n}.py": f"def f{n}(): ...\n" for n in range(300)} | {"README.md": "# x\n"})
    assert not is_indexed(job)
    process = IndexProcess(job)

    try:
        assert process.wait(LONG, lambda progress: None) is IndexState.READY
    finally:
        process.close()

    assert is_indexed(job)
    assert read_progress(job.database).total == 301
    with CodeIndex(job.database, job.snapshot.name) as index:
        assert index.defining("f299") == ["m299.py"]


def test_a_file_that_kills_the_parser_is_left_without_definitions(tmp_path: Path) -> None:
    # Takes the parser minutes: the process is killed by its limit, and started again without this file.
    job = job_for(tmp_path, {"bad.py": ("(" * 80 + "\n") * 2500, "good.py": "def good(): ...\n"})
    process = IndexProcess(job, parse_limit=0.3)

    try:
        assert process.wait(LONG, lambda progress: None) is IndexState.READY
    finally:
        process.close()

    with CodeIndex(job.database, job.snapshot.name) as index:
        bad = index.file("bad.py")
        assert bad is not None and bad.definitions == ()
        assert index.defining("good") == ["good.py"]


def test_a_second_process_waits_for_the_first(tmp_path: Path) -> None:
    job = job_for(tmp_path, {"a.py": "def a(): ...\n"})
    with index_lock(job.database):
        process = IndexProcess(job)
        assert process.wait(0.5, lambda progress: None) is IndexState.BUILDING
        assert is_being_built(job.database)

    try:
        assert process.wait(LONG, lambda progress: None) is IndexState.READY
    finally:
        process.close()
    assert not is_being_built(job.database)


def test_closing_it_early_keeps_what_is_done(tmp_path: Path) -> None:
    job = job_for(tmp_path, {f"m{n}.py": f"def f{n}(): ...\n" for n in range(2000)})
    process = IndexProcess(job)
    process.close()

    assert process.poll() is IndexState.FAILED
    assert not is_being_built(job.database)
