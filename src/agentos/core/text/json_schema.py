"""Validates a JSON value against the part of JSON Schema that tools and structured answers use."""

from collections.abc import Iterator
from typing import Any

MAX_DEPTH = 50  # nested schemas
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def schema_problem(value: object, schema: Any) -> str:
    """The first violation of the schema, with its path in the value; empty if the value is valid.

    Checks types, enumerations, required and additional properties, items, sizes, references and alternatives, and
    ignores other keywords, such as formats.
    """
    return next(_problems(value, schema, schema, "", 0), "")


def _problems(value: Any, schema: Any, root: Any, place: str, depth: int) -> Iterator[str]:
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return
    if "type" in schema and not _has_type(value, schema["type"]):
        yield _at(place, f"expected {_type_names(schema['type'])}, found {_type_of(value)}")
        return
    yield from _value_problems(value, schema, place)
    yield from _size_problems(value, schema, place)
    yield from _other_schemas(value, schema, root, place, depth)
    if isinstance(value, dict):
        yield from _property_problems(value, schema, root, place, depth)
    elif isinstance(value, list) and "items" in schema:
        for index, entry in enumerate(value):
            yield from _problems(entry, schema["items"], root, f"{place}[{index}]", depth + 1)


def _value_problems(value: Any, schema: dict[str, Any], place: str) -> Iterator[str]:
    if isinstance(schema.get("enum"), list) and value not in schema["enum"]:
        yield _at(place, f"expected one of {schema['enum']}, found {value!r}")
    if "const" in schema and value != schema["const"]:
        yield _at(place, f"expected {schema['const']!r}, found {value!r}")


def _other_schemas(value: Any, schema: dict[str, Any], root: Any, place: str, depth: int) -> Iterator[str]:
    """Violations of the schemas that this one refers to: the value must match `$ref`, every schema in `allOf`, and at least one
    in each of `anyOf` and `oneOf`."""
    reference = schema.get("$ref")
    resolved = [_resolve(reference, root)] if isinstance(reference, str) else []
    for part in (*resolved, *(schema.get("allOf") or ())):
        yield from _problems(value, part, root, place, depth + 1)
    for keyword in ("anyOf", "oneOf"):
        parts = schema.get(keyword) or ()
        found = [next(_problems(value, part, root, place, depth + 1), "") for part in parts]
        if found and all(found):
            yield found[0]


def _property_problems(
    value: dict[str, Any], schema: dict[str, Any], root: Any, place: str, depth: int
) -> Iterator[str]:
    properties = schema.get("properties") or {}
    for name in schema.get("required") or ():
        if name not in value:
            yield _at(f"{place}.{name}", "is missing")
    for name, entry in value.items():
        if name in properties:
            yield from _problems(entry, properties[name], root, f"{place}.{name}", depth + 1)
        elif schema.get("additionalProperties") is False:
            yield _at(f"{place}.{name}", f"is unknown: expected {', '.join(properties) or 'nothing'}")
        elif isinstance(schema.get("additionalProperties"), dict):
            yield from _problems(entry, schema["additionalProperties"], root, f"{place}.{name}", depth + 1)


def _size_problems(value: Any, schema: dict[str, Any], place: str) -> Iterator[str]:
    number = value if type(value) in (int, float) else None
    size = len(value) if isinstance(value, str | list) else None
    least, most = ("minLength", "maxLength") if isinstance(value, str) else ("minItems", "maxItems")
    for found, low, high in ((number, "minimum", "maximum"), (size, least, most)):
        what = "" if low == "minimum" else "a size of "
        if found is not None and found < schema.get(low, found):
            yield _at(place, f"expected {what}at least {schema[low]}, found {found}")
        if found is not None and found > schema.get(high, found):
            yield _at(place, f"expected {what}at most {schema[high]}, found {found}")


def _has_type(value: object, wanted: object) -> bool:
    names = wanted if isinstance(wanted, list) else [wanted]
    if isinstance(value, bool):
        return "boolean" in names
    if isinstance(value, float) and value.is_integer() and "integer" in names:
        return True
    return any(isinstance(value, _TYPES.get(str(name), (object,))) for name in names)


def _resolve(reference: str, root: Any) -> Any:
    found = root
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _type_of(value: object) -> str:
    return next(name for name in ("boolean", *_TYPES) if _has_type(value, name))


def _type_names(wanted: object) -> str:
    return " or ".join(map(str, wanted)) if isinstance(wanted, list) else str(wanted)


def _at(place: str, problem: str) -> str:
    return f"{place.removeprefix('.')}: {problem}" if place else problem
