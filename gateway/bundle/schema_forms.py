"""Which JSON Schemas a bundle may use: known keywords, closed objects, bounded local references, linear patterns."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import jsonschema_rs

from gateway.bundle.schema_references import MANY, NAMED, ONE, check_references, subschemas
from gateway.bundle.sources import Source, point
from gateway.domain.findings import Finding

_PLAIN = (
    "$ref", "$comment", "$schema", "type", "enum", "const", "required", "dependentRequired", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "uniqueItems",
    "minContains", "maxContains", "minProperties", "maxProperties", "title", "description", "default", "examples", "deprecated",
    "readOnly", "writeOnly",
)  # fmt: skip
KEYWORDS = frozenset({*ONE, *MANY, *NAMED, *_PLAIN})
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SAYS_WHAT = ("type", "enum", "const", "$ref")
_NARROWING = (
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "contains",
    "propertyNames",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
)


def regex_options() -> jsonschema_rs.RegexOptions:
    """The linear-time engine: no backtracking, so no pattern can be made slow by an argument; bounded memory."""
    return jsonschema_rs.RegexOptions(size_limit=1_000_000, dfa_size_limit=1_000_000)


@dataclass(frozen=True, kw_only=True)
class SchemaForm:
    """A schema in its file, and how strictly it is read."""

    source: Source
    """The schema itself."""
    is_closed: bool
    """Whether every object in it must refuse unknown fields and every value must say what it is."""
    is_object: bool = True
    """Whether it must say `type: object` at its top."""

    def findings(self) -> list[Finding]:
        """Everything that is wrong with the schema's form; whether it compiles is asked afterwards."""
        schema = self.source.value
        if not isinstance(schema, dict) or (self.is_object and cast("dict[str, Any]", schema).get("type") != "object"):
            return [self._finding("/type", "schema-not-object", "the schema must say `type: object` at its top", "Add `type: object`.")]
        root = cast("dict[str, Any]", schema)
        if root.get("$schema", _DIALECT) != _DIALECT:
            return [
                self._finding("/$schema", "schema-keyword", "only JSON Schema 2020-12 is read", f"Remove `$schema`, or write {_DIALECT}.")
            ]
        try:
            jsonschema_rs.meta.validate({**root, "$schema": _DIALECT})
        except jsonschema_rs.ValidationError as error:
            sentence = f"not valid JSON Schema 2020-12: {error.message[:200]}"
            return [self._finding(point(*error.instance_path), "schema-invalid", sentence, "Correct the keyword's value.")]
        return list(self._walk(root, "", is_part=False)) or check_references(self.source)

    def _walk(self, schema: Any, pointer: str, *, is_part: bool) -> Iterator[Finding]:
        """`is_part`: the schema only narrows another one that is already closed."""
        if not isinstance(schema, dict):
            if schema is True and self.is_closed and not is_part:
                yield self._finding(pointer, "schema-open", "`true` accepts anything", "Write `{type: …}`.")
            return
        node = cast("dict[str, Any]", schema)
        for keyword in node:
            if keyword not in KEYWORDS or (keyword == "$schema" and pointer):
                yield self._finding(
                    pointer + point(keyword),
                    "schema-keyword",
                    f"`{keyword}` is no keyword of JSON Schema 2020-12 that bundles may use here",
                    "Mend the spelling, or remove it.",
                )
        yield from self._check_pattern(node, pointer)
        if self.is_closed and not is_part:
            yield from self._check_closed(node, pointer)
        says_what = any(keyword in node for keyword in _SAYS_WHAT)
        for name, below in subschemas(node):
            keyword = name.split("/")[1]
            narrows = keyword in _NARROWING or (keyword in ("anyOf", "oneOf") and says_what)
            yield from self._walk(below, pointer + name, is_part=keyword != "$defs" and (is_part or narrows))

    def _check_closed(self, node: dict[str, Any], pointer: str) -> Iterator[Finding]:
        kinds = node.get("type", ())
        if "object" in kinds or "properties" in node or "patternProperties" in node:
            if node.get("additionalProperties") is not False:
                yield self._finding(
                    pointer, "schema-open", "an object schema that accepts unknown fields", "Add `additionalProperties: false`."
                )
            known = cast("dict[str, Any]", node.get("properties", {}))
            for index, name in enumerate(cast("list[str]", node.get("required", []))):
                if "patternProperties" not in node and name not in known:
                    yield self._finding(
                        f"{pointer}/required/{index}",
                        "schema-required",
                        f"`{name}` is required but not among the properties",
                        "Add it to `properties`, or remove it.",
                    )
        if "array" in kinds and "items" not in node:
            yield self._finding(pointer, "schema-open", "an array schema that accepts anything", "Add `items: {type: …}`.")
        if not any(keyword in node for keyword in (*_SAYS_WHAT, "anyOf", "oneOf")):
            yield self._finding(pointer, "schema-open", "a schema without `type` accepts anything, objects too", "Add `type`.")

    def _check_pattern(self, node: dict[str, Any], pointer: str) -> Iterator[Finding]:
        named = node.get("patternProperties")
        patterns = [("/pattern", node["pattern"])] if "pattern" in node else []
        patterns += (
            [(point("patternProperties", pattern), pattern) for pattern in cast("dict[str, Any]", named)] if isinstance(named, dict) else []
        )
        for where, pattern in patterns:
            try:
                jsonschema_rs.Draft202012Validator({"pattern": pattern}, offline=True, pattern_options=regex_options())
            except ValueError:
                yield self._finding(
                    pointer + where,
                    "schema-pattern",
                    "the pattern does not compile in the linear-time engine",
                    "Write it without look-around and back-references, with smaller repetitions, and close every bracket.",
                )

    def _finding(self, pointer: str, code: str, message: str, mend: str) -> Finding:
        return self.source.finding(pointer, code, message, mend)
