"""From JSON Schema 2020-12 to what models' vendors read. For the model's eyes only: validation keeps the original.

Sources: ``GenerateContentConfig.response_json_schema`` of google-genai lists the keywords of Gemini's JSON Schema fields;
enums of anything but texts kill the whole request on some of its routes (https://github.com/BrokkAi/bifrost/issues/25).
OpenAI and Anthropic read JSON Schema, refuse choices at the root and arrays that do not say what they hold, and compile
patterns with engines of their own, so patterns are sentences for all of them.
"""

import json
from dataclasses import dataclass
from typing import Any, cast

MAX_NODES = 2_000
"""Schema nodes written for one tool; references that multiply stop here, with "anything" in their place."""
MAX_REFS = 32
"""References inside each other."""
MAX_HINT = 500
"""Characters of one sentence that stands for a dropped keyword."""

_EVERYWHERE = ("type", "title", "minItems", "maxItems", "minimum", "maximum")
_HINTS = {
    "exclusiveMinimum": "Greater than {}.",
    "exclusiveMaximum": "Less than {}.",
    "multipleOf": "A multiple of {}.",
    "minLength": "At least {} characters.",
    "maxLength": "At most {} characters.",
    "pattern": "Matches the regular expression {}.",
}

Schema = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """What a vendor reads of JSON Schema, beyond objects, arrays and choices."""

    copied: tuple[str, ...]
    """Keywords that stay as they are."""
    formats: frozenset[str]
    has_text_enums_only: bool
    """Whether enums may hold non-empty texts only."""


GEMINI = Vocabulary(copied=_EVERYWHERE, formats=frozenset({"date-time", "date", "time"}), has_text_enums_only=True)
JSON_SCHEMA = Vocabulary(
    copied=(*_EVERYWHERE, "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
    formats=frozenset({"date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}),
    has_text_enums_only=False,
)
"""OpenAI's and Anthropic's."""


def portable_parameters(schema: Schema, vocabulary: Vocabulary) -> Schema:
    """The parameters of a tool as a vendor reads them: always an object with ``properties``.

    ``$ref`` is written out (recursion ends as "anything of that type"), ``allOf`` is merged, ``oneOf`` becomes ``anyOf``;
    enums and constraints that the vendor does not know become sentences of the description; the rest is dropped. The
    result may admit more than the tool accepts, never less.
    """
    converted = _Converter(schema, vocabulary).convert(schema) or {}
    converted.pop("anyOf", None)  # the root must be a plain object
    return converted | {"type": "object", "properties": converted.get("properties", {})}


class _Converter:
    def __init__(self, root: Schema, vocabulary: Vocabulary) -> None:
        self._root = root
        self._vocabulary = vocabulary
        self._nodes_left = MAX_NODES

    def convert(self, schema: object, refs: frozenset[str] = frozenset()) -> Schema | None:
        """One node; None where the schema is ``false`` and nothing fits."""
        self._nodes_left -= 1
        if not isinstance(schema, dict) or self._nodes_left < 0 or len(refs) > MAX_REFS:
            return None if schema is False else {}
        node, refs = self._flatten(cast("Schema", schema), refs)
        converted: Schema = {name: node[name] for name in self._vocabulary.copied if name in node}
        if description := self._description(node):
            converted["description"] = description
        if node.get("format") in self._vocabulary.formats:
            converted["format"] = node["format"]
        if (values := _enum(node)) and self._may_list(values):
            converted["enum"] = values
        self._convert_array(node, converted, refs)
        self._convert_object(node, converted, refs)
        choices = [self.convert(choice, refs) for choice in _schemas(node.get("anyOf", node.get("oneOf")))]
        if possible := [choice for choice in choices if choice is not None]:
            converted["anyOf"] = possible
        return converted

    def _convert_array(self, node: Schema, converted: Schema, refs: frozenset[str]) -> None:
        if "prefixItems" in node:
            converted["prefixItems"] = [self.convert(item, refs) or {} for item in _schemas(node["prefixItems"])]
        if "items" in node or node.get("type") == "array":
            converted["items"] = self.convert(node.get("items", True), refs) or {}  # Gemini wants it in every array

    def _convert_object(self, node: Schema, converted: Schema, refs: frozenset[str]) -> None:
        properties: dict[str, Schema] = {}
        for name, schema in cast("Schema", node.get("properties", {})).items():
            converted_property = self.convert(schema, refs)
            if converted_property is not None:
                properties[name] = converted_property
        if properties:
            converted["properties"] = properties
            if required := [name for name in node.get("required", ()) if name in properties]:
                converted["required"] = required
        # Names that a dropped keyword admits must not be forbidden by a kept one.
        if node.get("additionalProperties", True) is not True and "patternProperties" not in node:
            others = self.convert(node["additionalProperties"], refs)
            converted["additionalProperties"] = False if others is None else others

    def _flatten(self, node: Schema, refs: frozenset[str]) -> tuple[Schema, frozenset[str]]:
        """The node with its ``$ref`` and ``allOf`` written into it, and the references that it now stands in."""
        while "$ref" in node:
            ref = str(node["$ref"])
            siblings = {name: value for name, value in node.items() if name != "$ref"}
            target = self._look_up(ref)
            if ref in refs:
                target = {"type": target["type"]} if "type" in target else {}
            refs |= {ref}
            node = _merge(siblings, target)
        for part in _schemas(node.get("allOf")):
            if isinstance(part, dict):
                flat, refs = self._flatten(cast("Schema", part), refs)
                node = _merge(node, flat)
        return node, refs

    def _may_list(self, values: list[Any]) -> bool:
        return not self._vocabulary.has_text_enums_only or all(isinstance(value, str) and value for value in values)

    def _description(self, node: Schema) -> str:
        sentences = [str(node["description"])] if node.get("description") else []
        if (values := _enum(node)) and not self._may_list(values):
            sentences.append(_clip("One of: " + ", ".join(json.dumps(value, ensure_ascii=False) for value in values) + "."))
        told = [name for name in _HINTS if name in node and name not in self._vocabulary.copied]
        sentences += [_clip(_HINTS[name].format(node[name])) for name in told]
        if "format" in node and node["format"] not in self._vocabulary.formats:
            sentences.append(_clip(f"Format: {node['format']}."))
        return " ".join(sentences)

    def _look_up(self, ref: str) -> Schema:
        """The schema at a local reference (``#/$defs/x``); anything else is not fetched and means "anything"."""
        target: Any = self._root if ref.startswith("#") else {}
        for step in ref.split("/")[1:] if ref.startswith("#/") else ():
            key = step.replace("~1", "/").replace("~0", "~")
            target = cast("Schema", target).get(key, {}) if isinstance(target, dict) else {}
        return cast("Schema", target) if isinstance(target, dict) else {}


def _merge(node: Schema, part: Schema) -> Schema:
    """Both schemas in one; where both say something about the same keyword, `node` wins."""
    merged = part | node
    if "properties" in node and "properties" in part:
        merged["properties"] = part["properties"] | node["properties"]
    if "required" in node and "required" in part:
        merged["required"] = list(dict.fromkeys([*node["required"], *part["required"]]))
    return merged


def _schemas(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _enum(node: Schema) -> list[Any]:
    if "const" in node:
        return [node["const"]]
    return _schemas(node.get("enum"))


def _clip(sentence: str) -> str:
    return sentence if len(sentence) <= MAX_HINT else sentence[: MAX_HINT - 1] + "…"
