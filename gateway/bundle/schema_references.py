"""Walking through a JSON Schema, and its references: local, leading somewhere, not back to themselves, bounded in total."""

from collections.abc import Iterator
from typing import Any, cast

from gateway.bundle.sources import Source, point
from gateway.domain.findings import Finding

MAX_NODES = 10_000
"""Schema nodes with every reference written out."""
ONE = (
    "items",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "contains",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
)
"""Keywords whose value is a schema."""
MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
"""Keywords whose value is a list of schemas."""
NAMED = ("properties", "patternProperties", "$defs", "dependentSchemas")
"""Keywords whose value is a mapping to schemas."""
_LOCAL = "#/$defs/"


def subschemas(node: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The schemas directly below a schema, each with its pointer from there."""
    for keyword in ONE:
        if keyword in node:
            yield f"/{keyword}", node[keyword]
    for keyword in MANY:
        for index, below in enumerate(cast("list[Any]", node.get(keyword, []))):
            yield f"/{keyword}/{index}", below
    for keyword in NAMED:
        for name, below in cast("dict[str, Any]", node.get(keyword, {})).items():
            yield point(keyword, name), below


def check_references(source: Source) -> list[Finding]:
    """What is wrong with the references of a valid schema; the first thing only."""
    references = _References(source.value)
    try:
        references.measure(source.value, (), "")
        for name, definition in references.definitions.items():
            references.measure(definition, (name,), point("$defs", name))
    except _BadReferenceError as error:
        return [source.finding(error.pointer, "schema-reference", error.message, error.mend)]
    return []


class _BadReferenceError(Exception):
    def __init__(self, pointer: str, message: str, mend: str) -> None:
        super().__init__(message)
        self.pointer, self.message, self.mend = pointer, message, mend


class _References:
    def __init__(self, root: dict[str, Any]) -> None:
        self.definitions: dict[str, Any] = root.get("$defs", {})
        self.sizes: dict[str, int] = {}

    def measure(self, schema: Any, trail: tuple[str, ...], pointer: str) -> int:
        """How many nodes a schema has with its references written out; `trail`: the definitions on the way to it."""
        if not isinstance(schema, dict):
            return 1
        node = cast("dict[str, Any]", schema)
        total = 1
        if "$ref" in node:
            total += self._measure_target(node["$ref"], trail, f"{pointer}/$ref")
        for name, below in subschemas(node):
            if not name.startswith("/$defs/"):
                total += self.measure(below, trail, pointer + name)
        if total > MAX_NODES:
            message = f"with its references written out the schema has more than {MAX_NODES} parts"
            raise _BadReferenceError(pointer, message, "Refer to fewer definitions.")
        return total

    def _measure_target(self, reference: str, trail: tuple[str, ...], pointer: str) -> int:
        name = reference.removeprefix(_LOCAL)
        if not reference.startswith(_LOCAL) or name not in self.definitions:
            message = f"`$ref: {reference}` names nothing in this schema's own `$defs`"
            raise _BadReferenceError(pointer, message, "Use `#/$defs/<name>` with a name that is defined at the schema's top.")
        if name in trail:
            message = f"`$ref: {reference}` leads back to itself"
            raise _BadReferenceError(pointer, message, "Write the levels out; recursion is not bounded.")
        if name not in self.sizes:
            self.sizes[name] = self.measure(self.definitions[name], (*trail, name), point("$defs", name))
        return self.sizes[name]
