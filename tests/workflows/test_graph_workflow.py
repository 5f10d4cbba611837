"""Workflows made from existing graphs: which files are items, what they are called, when they are done."""

from pathlib import Path
from typing import Any

import pytest

from agentos.core.errors import BrokenWorkflow, ItemError
from agentos.core.planning.items import Item, ItemStatus
from agentos.core.planning.plan import merge_duplicates
from agentos.core.protocol.ports import ModelRequest, ModelResponse
from agentos.storage.files import ProjectFolder
from agentos.workflows import GraphItem, NodeContext, Workflow
from agentos.workflows.plugin import Plugin


def plugin(items: Any = "topics/*.md", origin: str = "flow:workflow", **more: Any) -> Plugin:
    arguments = {"input": lambda item: {"topic": item.text}, **more}
    return Plugin.of(origin, Workflow.from_graph(object(), items=items, **arguments))


def write(project: Path, **files: str) -> None:
    (project / "topics").mkdir(exist_ok=True)
    for name, text in files.items():
        (project / "topics" / f"{name}.md").write_text(text)


def context(project: Path, item: Item) -> NodeContext:
    async def ask(name: str, request: ModelRequest) -> ModelResponse:
        raise AssertionError("no model is needed here")

    return NodeContext(item, ProjectFolder(project), ask, lambda line: None, 1)


def ids(workflow: Plugin, project: Path) -> list[str]:
    return [candidate.item.id for candidate in workflow.candidates(project)]


def test_files_with_a_number_come_first_and_others_are_called_by_their_name(tmp_path: Path) -> None:
    write(
        tmp_path, snow="# Snow", **{"12-rain": "# Rain", "2-sun": "plain", ".hidden": "x", "two words": "x"}
    )
    found = ids(plugin(), tmp_path)
    assert found[:3] == ["TOPICS-2", "TOPICS-12", "TOPICS-snow"]
    assert found[3].startswith("TOPICS-two-words-") and len(found) == 4


def test_items_of_subfolders_have_ids_of_their_own(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / "topics" / folder).mkdir(parents=True)
        (tmp_path / "topics" / folder / "x.txt").write_text("text")
    workflow = plugin("topics/**/*.txt")
    assert len(set(ids(workflow, tmp_path))) == 2 and workflow.folders == ("topics",)
    assert len(merge_duplicates(workflow.candidates(tmp_path))) == 2


def test_name_and_prefix_follow_from_the_folder_unless_they_are_given() -> None:
    made, given = plugin("work/open topics/*.md"), plugin(name="essay", prefix="E")
    assert (made.name, made.prefix) == ("open-topics", "OPEN_TOPICS")
    assert (given.name, given.prefix) == ("essay", "E")


@pytest.mark.parametrize("pattern", ["", "/etc/*", "../other/*.md"])
def test_a_pattern_that_leads_out_of_the_project_is_refused(pattern: str) -> None:
    with pytest.raises(BrokenWorkflow, match="expected a pattern inside the project"):
        plugin(pattern)


def test_two_graphs_over_the_same_files_need_a_name_each(tmp_path: Path) -> None:
    write(tmp_path, snow="# Snow")
    [candidate] = plugin().candidates(tmp_path)
    plugin().publish(context(tmp_path, candidate.item), {})
    expected = r'flow:workflow has finished TOPICS-snow.* as in Workflow.from_graph\(..., name="other"\)'
    with pytest.raises(BrokenWorkflow, match=expected):
        plugin(origin="flows.other:workflow").candidates(tmp_path)
    [again] = plugin(origin="flows.other:workflow", name="other").candidates(tmp_path)
    [moved] = plugin(origin="flows.moved:workflow", name="topics").candidates(tmp_path)
    assert (again.status, moved.status) == (ItemStatus.PENDING, ItemStatus.APPROVED)


def test_an_item_is_done_once_its_documents_are_written_and_pending_when_one_is_deleted(
    tmp_path: Path,
) -> None:
    write(tmp_path, snow="# Snow")

    def output(state: dict[str, str], item: GraphItem) -> dict[str, str | bytes]:
        return {f"out/{item.name}.md": state["text"], f"out/{item.id}.bin": b"\0"}

    workflow = plugin(output=output)
    [candidate] = workflow.candidates(tmp_path)
    assert candidate.status is ItemStatus.PENDING
    result = workflow.publish(context(tmp_path, candidate.item), {"text": "white"})
    assert result == "out/snow.md" and (tmp_path / "out/snow.md").read_text() == "white"
    assert workflow.status(tmp_path, candidate.item) is ItemStatus.APPROVED
    (tmp_path / "out/TOPICS-snow.bin").unlink()
    assert workflow.status(tmp_path, candidate.item) is ItemStatus.PENDING


def test_an_item_without_documents_is_done_too(tmp_path: Path) -> None:
    write(tmp_path, snow="# Snow")
    workflow = plugin()
    [candidate] = workflow.candidates(tmp_path)
    assert workflow.publish(context(tmp_path, candidate.item), {}) == ""
    assert workflow.status(tmp_path, candidate.item) is ItemStatus.APPROVED


def test_the_input_sees_text_and_front_matter(tmp_path: Path) -> None:
    write(tmp_path, snow="---\nnumber: 7\nmood: calm\n---\n# Snow\n")
    workflow = plugin(input=lambda item: (item.id, item.title, item.text, item.meta["mood"]))
    [candidate] = workflow.candidates(tmp_path)
    assert workflow.input(context(tmp_path, candidate.item)) == ("TOPICS-7", "Snow", "# Snow\n", "calm")


def test_an_output_that_is_not_documents_is_explained(tmp_path: Path) -> None:
    write(tmp_path, snow="# Snow")
    workflow = plugin(output=lambda state, item: {"out.md": 7})
    [candidate] = workflow.candidates(tmp_path)
    with pytest.raises(ItemError, match="expected a dict of paths in the project and their text"):
        workflow.publish(context(tmp_path, candidate.item), {})


@pytest.mark.parametrize("path", ["../out.md", "/tmp/out.md", "out/../../out.md", "", "a\0b"])
def test_an_output_that_leads_out_of_the_project_is_explained(tmp_path: Path, path: str) -> None:
    write(tmp_path, snow="# Snow")
    workflow = plugin(output=lambda state, item: {path: "text"})
    [candidate] = workflow.candidates(tmp_path)
    with pytest.raises(ItemError, match="expected one inside the project"):
        workflow.publish(context(tmp_path, candidate.item), {})


def test_a_bare_graph_is_recognized() -> None:
    class Graph:
        def get_graph(self) -> None: ...

    with pytest.raises(BrokenWorkflow, match=r"make a workflow of it with Workflow\.from_graph"):
        Plugin.of("flow:graph", Graph())
