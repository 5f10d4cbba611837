"""What a command says goes on with a run works as typed, in whatever folder it is read."""

import signal
import subprocess
from pathlib import Path

from .stage import PROGRAMS, Done, Stage


def read_in(stage: Stage, folder: Path, *words: str) -> Done:
    done = subprocess.run(
        [PROGRAMS / "agentos", *words],
        cwd=folder,
        env=stage.environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def typed_in(stage: Stage, folder: Path, command: str) -> Done:
    """In a shell that has no AGENTOS_HOME of its own."""
    around = {name: value for name, value in stage.environment().items() if name != "AGENTOS_HOME"}
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder, env=around, capture_output=True, text=True, timeout=60
    )
    return Done(done.returncode, done.stdout, done.stderr)


def interrupted(stage: Stage, *words: object) -> None:
    witness = stage.server()
    with witness.holding():
        running = stage.start(*words)
        running.says("Executing: N1_design")
        running.signal(signal.SIGINT)
        assert running.end().code == 130


def test_every_command_says_how_to_go_on_from_another_folder(stage: Stage) -> None:
    stage.issues(42)
    interrupted(stage, "42", "-j", 3)
    want = f"(cd {stage.project} && AGENTOS_HOME={stage.home} lld-workflow 42 -j 3)"
    for words in (["status"], ["wait"], ["watch"], ["stop"], ["pause"]):
        said = read_in(stage, stage.root, *words)
        assert f"Go on with: {want}" in said.out + said.err, (words, said)
        near = read_in(stage, stage.project, *words)
        assert "Go on with: lld-workflow 42 -j 3\n" in near.out + near.err, (words, near)
    done = typed_in(stage, stage.root, want)
    assert done.code == 0 and "resumes at" not in done.err, done
    assert stage.document(42).exists() and not stage.databases()


def test_an_interrupted_demo_goes_on_from_inside_its_folder(stage: Stage) -> None:
    running = stage.start("demo", program="agentos")
    running.says("Executing: N1_design")
    running.signal(signal.SIGINT)
    assert running.end().code == 130
    inside = stage.project / "agentos-demo"
    home = {"AGENTOS_HOME": str(inside / ".agentos-home")}
    stage.surroundings.update(home)
    command = read_in(stage, inside, "status").lines[-1].partition("Go on with: ")[2]
    assert command.startswith(f"(cd {stage.project} && AGENTOS_HOME=agentos-demo/.agentos-home lld-workflow")
    done = typed_in(stage, inside, command.replace("--all", "--dry-run --all"))
    assert done.code == 0 and "Dry run mode" in done.out, done


def test_who_watches_from_another_folder_reads_where_the_documents_are(stage: Stage) -> None:
    stage.issues(42)
    witness = stage.server()
    with witness.holding():
        running = stage.start("42")
        running.says("Executing: N1_design")
        watching = subprocess.Popen(
            [PROGRAMS / "agentos", "watch"], cwd=stage.root, env=stage.environment(), stdout=subprocess.PIPE
        )
        assert watching.stdout and b"Watching" in watching.stdout.readline()
    out, _ = watching.communicate(timeout=60)
    assert running.end().lines[-1] == "[COORDINATOR] Read them: ls docs/lld/active"
    last = out.decode().splitlines()[-1]
    assert last == f"[COORDINATOR] Read them: ls {stage.project}/docs/lld/active"


def test_what_waits_for_a_person_is_decided_and_goes_on_from_another_folder(stage: Stage) -> None:
    stage.issues(42)
    stage.server()
    assert stage.run("42", "--review", "draft").code == 0
    *_, decide, go_on = read_in(stage, stage.root, "status").lines
    listed = read_in(stage, stage.root, *decide.partition("agentos ")[2].split())
    assert listed.lines[-1] == f"Read one and decide: agentos review LLD-42 --repo {stage.project}"
    words = listed.lines[-1].partition("agentos ")[2].split()
    approved = read_in(stage, stage.root, *words, "--approve")
    assert approved.code == 0 and approved.lines[-1].strip() == go_on.partition("with: ")[2]
    assert typed_in(stage, stage.root, approved.lines[-1]).code == 0
    assert stage.document(42).exists()
