"""Values that follow a JSON schema and values that do not, with the place of the first problem."""

from typing import Any

import pytest

from agentos.core.text.json_schema import schema_problem

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "score": {"type": "integer", "minimum": 1, "maximum": 5},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
        "name": {"anyOf": [{"type": "string", "minLength": 2}, {"type": "null"}]},
        "part": {"$ref": "#/$defs/Part"},
    },
    "required": ["score"],
    "additionalProperties": False,
    "$defs": {
        "Part": {
            "type": "object",
            "properties": {"parts": {"type": "array", "items": {"$ref": "#/$defs/Part"}}},
            "additionalProperties": {"type": ["number", "boolean"]},
        }
    },
}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"score": 3, "tags": ["a"], "name": None, "part": {"parts": [{"x": 1.5, "y": True}]}}, ""),
        ({"score": 3.0}, ""),
        ([], "expected object, found array"),
        ({}, "score: is missing"),
        ({"score": True}, "score: expected integer, found boolean"),
        ({"score": 6}, "score: expected at most 5, found 6"),
        ({"score": 1, "tags": ["a", "c"]}, "tags[1]: expected one of ['a', 'b'], found 'c'"),
        ({"score": 1, "tags": ["a", "a", "a"]}, "tags: expected a size of at most 2, found 3"),
        ({"score": 1, "name": "x"}, "name: expected a size of at least 2, found 1"),
        ({"score": 1, "sore": 2}, "sore: is unknown: expected score, tags, name, part"),
        (
            {"score": 1, "part": {"parts": [{"x": "1"}]}},
            "part.parts[0].x: expected number or boolean, found string",
        ),
    ],
)
def test_the_first_problem_is_named_with_its_place(value: object, problem: str) -> None:
    assert schema_problem(value, SCHEMA) == problem


def test_a_schema_that_refers_to_itself_ends() -> None:
    assert schema_problem({}, {"$ref": "#"}) == ""
    assert schema_problem({}, {"$ref": "#/nowhere"}) == ""
