"""What a model is shown for an issue, and why."""

from pathlib import Path

import pytest

from agentos.codebase.context import ContextBuilder, PartKind
from agentos.codebase.related import RelatedDocument, nearest, read_documents
from agentos.codebase.rendering import cut_lines, folder_lines
from tests.codebase.projects import FILES, indexed, make_project


def test_the_files_that_match_the_issue_are_shown_by_their_signatures(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    with indexed(project, tmp_path / "i.db") as index:
        context = ContextBuilder(index, project, 8000).build(
            "Dark theme", "The article reader needs a dark theme."
        )

    first = next(part for part in context.own if part.kind is PartKind.SIGNATURES)
    assert first.path == "app/reader.py"
    assert 'def render_article(self, article_id: int, *, theme: str = "light") -> str' in first.text
    assert "words of the issue" in first.why
    assert "app/storage/: __init__.py store.py" in context.shared_text
    assert set(context.blobs) >= {"app/reader.py"}


@pytest.mark.parametrize("mention", ["app/storage/store.py", "`search_articles`", "app.storage.store.Store"])
def test_what_the_issue_names_comes_first(tmp_path: Path, mention: str) -> None:
    project = make_project(tmp_path / "p")
    with indexed(project, tmp_path / "i.db") as index:
        context = ContextBuilder(index, project, 8000).build("Slow", f"The reader is slow; see {mention}.")

    assert context.own[0].path == "app/storage/store.py"


@pytest.mark.parametrize("budget", [200, 1000, 4000])
def test_a_context_stays_within_its_budget(tmp_path: Path, budget: int) -> None:
    many = {
        f"pkg{n % 40}/module_{n}.py": f"def dark_theme_{n}(article: str, option: int = {n}) -> None: ...\n"
        for n in range(800)
    }
    project = make_project(tmp_path / "p", {**many, "CONTRIBUTING.md": "Write tests.\n" * 500})
    with indexed(project, tmp_path / "i.db") as index:
        context = ContextBuilder(index, project, budget).build("Dark theme", "An article with a dark theme.")

    assert 0 < context.tokens <= budget
    assert context.tokens > budget * 0.7


def test_one_file_and_one_folder_are_counted_in_the_singular() -> None:
    assert folder_lines(["a/only_file_of_this_folder.py"], 20) == "a/: 1 file"
    assert cut_lines(["app", "tests"], 4, "folder") == "app\n... and 1 more folder"


def test_named_files_and_conventions_are_shown_whole(tmp_path: Path) -> None:
    files = {**FILES, "AGENTS.md": "Use tabs.\n", "docs/api.txt": "the whole api\n"}
    project = make_project(tmp_path / "p", files)
    with indexed(project, tmp_path / "i.db", ("docs/api.txt",)) as index:
        context = ContextBuilder(index, project, 8000, ("docs/api.txt",)).build("Dark", "theme")

    assert [(part.kind, part.path) for part in context.shared[:2]] == [
        (PartKind.NAMED, "docs/api.txt"),
        (PartKind.CONVENTIONS, "AGENTS.md"),
    ]
    assert "the whole api" in context.shared_text and "Use tabs." in context.shared_text


def test_the_two_nearest_approved_designs_are_shown_but_never_the_items_own(tmp_path: Path) -> None:
    designs = {
        "docs/lld/active/LLD-001.md": "---\nitem: 1\n---\n# Low-level design: Dark theme\n\nStores the theme.\n",
        "docs/lld/active/LLD-002.md": "# Low-level design: Theme of the editor\n\nA theme for the editor.\n",
        "docs/lld/active/LLD-003.md": "# Low-level design: Billing\n\nInvoices are sent.\n",
        "docs/lld/active/LLD-042.md": "# Low-level design: Dark theme\n\nDark theme dark theme.\n",
    }
    project = make_project(tmp_path / "p", {**FILES, **designs})
    with indexed(project, tmp_path / "i.db") as index:
        builder = ContextBuilder(index, project, 8000)
        context = builder.build("Dark theme", "A dark theme for the reader.", "docs/lld/active/LLD-042.md")

    shown = [part.path for part in context.own if part.kind is PartKind.DESIGN]
    assert shown == ["docs/lld/active/LLD-001.md", "docs/lld/active/LLD-002.md"]
    assert "item: 1" not in context.own_text


def test_files_that_define_nothing_are_named_at_least(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    with indexed(project, tmp_path / "i.db") as index:
        context = ContextBuilder(index, project, 8000).build("Body colour", "The body color is black in css.")

    others = next(part for part in context.own if part.kind is PartKind.OTHERS)
    assert "static/reader.css" in others.text


def test_related_documents_say_how_near_they_are(tmp_path: Path) -> None:
    issues = {
        "issues/001-dark.md": "# Dark mode for the reader\n\nReaders want a dark background at night.\n",
        "issues/002-pay.md": "# Payment\n\nInvoices by mail.\n",
    }
    documents = read_documents(make_project(tmp_path, issues), "issues")

    found = nearest(documents, "Dark mode\n\nA dark background for readers at night", 3)

    assert [document.path for document in found] == ["issues/001-dark.md"]
    assert found[0].similarity > 0.6
    assert nearest(documents, "", 3) == [] and nearest([], "dark", 3) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Добавить тёмную тему для чтения ночью", "ru.md"),
        ("ダークモードを直す", "ja.md"),
        ("深色模式", "zh.md"),
        ("다크 모드를 추가", "ko.md"),
    ],
)
def test_documents_in_any_script_are_found_by_their_words(text: str, found: str) -> None:
    documents = [
        RelatedDocument("ru.md", "Тёмная тема", "Тёмная тема для чтения ночью"),
        RelatedDocument("ru-2.md", "Экспорт статей", "Экспорт статей в формате EPUB"),
        RelatedDocument("ja.md", "ダークモード", "夜の読書のためのダークモード"),
        RelatedDocument("ja-2.md", "記事の書き出し", "記事をEPUBとして書き出す"),
        RelatedDocument("zh.md", "深色模式", "夜间阅读的深色模式"),
        RelatedDocument("ko.md", "다크모드", "밤에 읽기 위한 다크 모드"),
    ]
    assert [document.path for document in nearest(documents, text, 1)] == [found]
