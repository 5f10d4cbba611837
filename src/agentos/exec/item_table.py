"""Items from a table: a CSV, TSV, JSON or JSON Lines file, whose columns become variables of the command."""

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agentos.core.errors import PreflightError
from agentos.core.planning.items import Column
from agentos.outputs.format import count

FORMATS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson")
NAME_COLUMNS = ("item", "file", "path", "id")
"""The column that names the item; without one of these, it is the first."""
BYTE_ORDER_MARK = "\ufeff"
"""Spreadsheets write it at the start of UTF-8 files; it is not part of the first column's name."""
_UNDECODED = re.compile("[\udc80-\udcff]")


@dataclass(frozen=True, slots=True)
class TableRow:
    """One item of a table: its name and its columns."""

    source: str
    columns: tuple[Column, ...]


def is_table(name: str) -> bool:
    return Path(name).suffix.lower() in FORMATS


def read_table(name: str, text: str) -> list[TableRow]:
    """The rows of a table, in order. Raises PreflightError if it cannot be read, or if two items have one name.

    `text` was decoded as UTF-8 with surrogates for what is not UTF-8.
    """
    try:
        records = list(_records(Path(name).suffix.lower(), text.removeprefix(BYTE_ORDER_MARK)))
    except (ValueError, RecursionError, csv.Error) as error:
        raise PreflightError(f"{name}: {error}") from error
    rows = [_row(name, number, record) for number, record in enumerate(records, 1)]
    seen: dict[str, int] = {}
    for number, row in enumerate(rows, 1):
        if seen.setdefault(row.source, number) != number:
            raise PreflightError(
                f"{name}: rows {seen[row.source]} and {number} are both called {row.source!r}; expected a different "
                f"value in each row of the column that names the items ({', '.join(NAME_COLUMNS)}, or the first)"
            )
    return rows


def _records(suffix: str, text: str) -> Iterator[object]:
    if "\0" in text:
        raise ValueError("is not UTF-8 text; save it as UTF-8")
    if found := _UNDECODED.search(text):
        line, byte = text.count("\n", 0, found.start()) + 1, ord(found[0]) - 0xDC00
        raise ValueError(
            f"line {line} is not UTF-8 (byte {byte:#04x}): save the file as UTF-8, not as Windows-1252"
        )
    if suffix in (".csv", ".tsv"):
        yield from _csv_records(text, "\t" if suffix == ".tsv" else _delimiter(text))
    elif suffix == ".json":
        found = json.loads(text)
        if not isinstance(found, list):
            raise ValueError("expected a list of objects or strings")
        yield from found
    else:
        # Not splitlines: a JSON string may contain separators such as U+2028.
        yield from (json.loads(line) for line in text.split("\n") if line.strip())


def _csv_records(text: str, delimiter: str) -> Iterator[object]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    header = [name.strip() for name in next(reader, [])]
    if twice := next((name for name in header if name and header.count(name) > 1), None):
        raise ValueError(f"two columns are called {twice!r}; expected a different name for each")
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            raise ValueError(
                f"line {reader.line_num} has {count(len(cells), 'column')}, the header has {len(header)}"
            )
        yield dict(zip(header, cells, strict=True))


def _delimiter(text: str) -> str:
    """Spreadsheets write semicolons where the comma is the decimal separator."""
    header = text.partition("\n")[0]
    return ";" if ";" in header and "," not in header else ","


def _row(name: str, number: int, record: object) -> TableRow:
    if isinstance(record, str) and record:
        return TableRow(record, ())
    if not isinstance(record, dict) or not record:
        raise PreflightError(
            f"{name}: row {number} is {record!r:.80}; expected an object with columns, or a string"
        )
    columns = tuple(Column(str(key), _text(value)) for key, value in record.items())
    values = {column.name: column.value for column in columns}
    source = next((values[key] for key in NAME_COLUMNS if values.get(key)), columns[0].value)
    if not source or "\0" in source:
        raise PreflightError(f"{name}: row {number} has no name in its column {columns[0].name!r}")
    return TableRow(source, columns)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
