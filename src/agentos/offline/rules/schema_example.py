"""Builds the smallest value that follows a JSON schema: what the rule engine answers to a schema that it does not know."""

import json
from functools import lru_cache
from typing import Any

TEXT = "An example by offline-rules-1, which is not a language model."
REVIEW_FIELDS = {"verdict", "rationale"}
MAX_DEPTH = 20  # nested schemas
SHALLOW = 4  # from here on, null is preferred, so that recursive schemas end


def is_review(schema: str) -> bool:
    """Whether an answer by the review rules follows the schema."""
    return set(json.loads(schema).get("properties") or ()) >= REVIEW_FIELDS


@lru_cache(maxsize=256)
def schema_example(schema: str) -> str:
    root = json.loads(schema)
    return json.dumps(_example(root, root, 0))


def _example(schema: Any, root: Any, depth: int) -> Any:
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return None
    if reference := schema.get("$ref"):
        return _example(_resolve(str(reference), root), root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if choices := schema.get("enum"):
        return choices[0]
    if options := schema.get("anyOf") or schema.get("oneOf"):
        nulls = [option for option in options if _kind(option) == "null"]
        others = [option for option in options if option not in nulls] or options
        return _example((nulls if nulls and depth >= SHALLOW else others)[0], root, depth + 1)
    if parts := schema.get("allOf"):
        examples = [_example(part, root, depth + 1) for part in parts]
        objects = [each for each in examples if isinstance(each, dict)]
        return {key: value for each in objects for key, value in each.items()} if objects else examples[0]
    return _plain_example(schema, root, depth)


def _plain_example(schema: dict[str, Any], root: Any, depth: int) -> Any:
    match _kind(schema):
        case "object":
            properties = schema.get("properties") or {}
            names = schema.get("required") or ()
            return {name: _example(properties.get(name, {}), root, depth + 1) for name in names}
        case "array":
            entry = [_example(schema.get("items"), root, depth + 1)]
            return entry * max(int(schema.get("minItems") or 0), depth < SHALLOW)
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return False
        case "null":
            return None
    return TEXT.ljust(int(schema.get("minLength") or 0), ".")[: schema.get("maxLength")]


def _number(schema: dict[str, Any]) -> Any:
    least = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
    most = schema.get("maximum", schema.get("exclusiveMaximum", max(least, 0) + 1) - 1)
    return min(max(0, least), most)


def _kind(schema: Any) -> str:
    """The type in lower case, as Gemini's own schemas have it in upper case; the first one that is not null."""
    found = schema.get("type") if isinstance(schema, dict) else None
    names = [str(name).lower() for name in (found if isinstance(found, list) else [found]) if name]
    if not names and isinstance(schema, dict) and "properties" in schema:
        return "object"
    return next((name for name in names if name != "null"), names[0] if names else "")


def _resolve(reference: str, root: Any) -> Any:
    found = root
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    return found
