"""Looking up fields in a (valid, closed) JSON Schema: do they exist, are they required, of which type are they."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

Schema = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Fields:
    """The schemas that a path of field names can lead to."""

    schemas: tuple[Schema, ...]
    is_required: bool
    """Whether every step of the path is required wherever the schema is used."""

    @property
    def kinds(self) -> frozenset[str]:
        """The JSON types that the field may have, as far as the schema says."""
        kinds: set[str] = set()
        for schema in self.schemas:
            named = schema.get("type", ())
            kinds.update([named] if isinstance(named, str) else named)
            values = [*cast("list[Any]", schema.get("enum", [])), *([schema["const"]] if "const" in schema else [])]
            kinds.update(_kind(value) for value in values)
        return frozenset(kinds)


def find_fields(schema: Schema, path: Sequence[str]) -> Fields:
    """Follow field names (or list indexes) from the top of a schema."""
    places: list[Schema] = list(_forms(schema, schema))
    is_required = True
    for name in path:
        key = name.replace("~1", "/").replace("~0", "~")
        is_required = is_required and bool(places) and any(key in place.get("required", ()) for place in places)
        places = [form for place in places for below in _below(place, key) for form in _forms(schema, below)]
    return Fields(schemas=tuple(places), is_required=is_required and bool(places))


def is_open_at(schema: Schema | None, path: Sequence[str]) -> bool:
    """Whether a value may stand at a path: it is named there, or a schema on the way accepts unknown fields."""
    if schema is None:
        return True
    places = list(_forms(schema, schema))
    for name in path:
        key = name.replace("~1", "/").replace("~0", "~")
        below = [form for place in places for found in _below(place, key) for form in _forms(schema, found)]
        if not below:
            return any(place.get("additionalProperties") is not False and key not in place.get("properties", {}) for place in places)
        places = below
    return True


def _below(place: Schema, key: str) -> Iterator[Schema]:
    properties = place.get("properties", {})
    if isinstance(properties.get(key), Mapping):
        yield properties[key]
    if (key.isdecimal() or key == "-") and isinstance(place.get("items"), Mapping):
        yield place["items"]


def _forms(root: Schema, schema: Schema, depth: int = 0) -> Iterator[Schema]:
    """A schema and the ones that it refers to or combines."""
    yield schema
    if depth > 32:
        return
    reference = schema.get("$ref")
    if isinstance(reference, str):
        target = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"))
        if isinstance(target, Mapping):
            yield from _forms(root, cast("Schema", target), depth + 1)
    for keyword in ("allOf", "anyOf", "oneOf"):
        for part in schema.get(keyword, ()):
            if isinstance(part, Mapping):
                yield from _forms(root, cast("Schema", part), depth + 1)


def _kind(value: object) -> str:
    match value:
        case bool():
            return "boolean"
        case str():
            return "string"
        case int():
            return "integer"
        case float():
            return "number"
        case None:
            return "null"
        case _:
            return "array" if isinstance(value, list) else "object"
