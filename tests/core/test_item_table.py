"""Items from a table: rows become items, columns become variables."""

import pytest

from agentos.core.errors import PreflightError
from agentos.core.planning.items import Column
from agentos.exec.item_table import TableRow, is_table, read_table


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", 'file,title\na.md,"Dark, mode"\nb.md,\n\n'),
        ("t.tsv", "file\ttitle\na.md\tDark, mode\nb.md\t\n"),
        ("t.json", '[{"file": "a.md", "title": "Dark, mode"}, {"file": "b.md", "title": ""}]'),
        ("t.jsonl", '{"file": "a.md", "title": "Dark, mode"}\n\n{"file": "b.md", "title": ""}\n'),
        ("t.csv", '\ufefffile,title\r\na.md,"Dark, mode"\r\nb.md,\r\n'),
        ("t.csv", "\ufefffile;title\na.md;Dark, mode\nb.md;\n"),
        ("t.json", '\ufeff[{"file": "a.md", "title": "Dark, mode"}, {"file": "b.md", "title": ""}]'),
    ],
)
def test_every_format_gives_the_same_rows(name: str, text: str) -> None:
    assert is_table(name) and read_table(name, text) == [
        TableRow("a.md", (Column("file", "a.md"), Column("title", "Dark, mode"))),
        TableRow("b.md", (Column("file", "b.md"), Column("title", ""))),
    ]


def test_the_item_is_the_column_that_names_it_or_the_first() -> None:
    assert read_table("t.csv", "title,id\nDark,7\n")[0].source == "7"
    assert read_table("t.csv", "title,size\nDark,7\n")[0].source == "Dark"
    assert read_table("t.json", '["a", {"n": 3, "deep": [1, {"x": null}]}]') == [
        TableRow("a", ()),
        TableRow("3", (Column("n", "3"), Column("deep", '[1, {"x": null}]'))),
    ]


def test_a_value_may_contain_line_breaks_and_separators() -> None:
    assert read_table("t.csv", 'id,text,\n1,"a\r\nb",\n')[0].columns[1] == Column("text", "a\r\nb")
    assert read_table("t.jsonl", '{"id": "1", "text": "a\u2028b"}\n')[0].columns[1] == Column(
        "text", "a\u2028b"
    )


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("t.csv", "id,title\n1,a\n1,b\n", "rows 1 and 2 are both called '1'"),
        ("t.csv", "id,title\n1,a,b\n", "line 2 has 3 columns, the header has 2"),
        ("t.csv", "id,title\n1,a\n\n2\n", "line 4 has 1 column, the header has 2"),
        ("t.csv", "id,title\n1,Gr\udcf6\udcdfe\n", "line 2 is not UTF-8 (byte 0xf6): save the file as UTF-8"),
        ("t.jsonl", '{"id": "\udce9"}', "line 1 is not UTF-8 (byte 0xe9)"),
        ("t.csv", "id,title,title\n1,a,b\n", "two columns are called 'title'"),
        ("t.csv", "i\0d\0,\0", "is not UTF-8 text; save it as UTF-8"),
        ("t.csv", "id,title\n,a\n", "row 1 has no name in its column 'id'"),
        ("t.json", '{"id": 1}', "expected a list"),
        ("t.json", "[1]", "row 1 is 1; expected an object"),
        ("t.json", "[", "Expecting value"),
        ("t.json", "[" * 100_000, ""),
        ("t.jsonl", '{"id": 1}\n{', "Expecting property name"),
    ],
)
def test_a_table_that_cannot_be_used_says_where_and_why(name: str, text: str, expected: str) -> None:
    with pytest.raises(PreflightError) as caught:
        read_table(name, text)
    assert str(caught.value).startswith(f"{name}: ") and expected in str(caught.value)
