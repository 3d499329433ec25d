"""Compiled JSON Schemas whose errors a model may read: a pointer and a sentence of ours, never a value."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, cast

import jsonschema_rs
import orjson

from gateway.bundle.schema_forms import regex_options
from gateway.bundle.strict_yaml import escape_token
from gateway.domain.catalogue import FieldError

MAX_ERRORS = 20
_MAX_KEY = 64
_MAX_LISTED = 400
_CONTEXT_KEYS = 32
_CONTEXT_LENGTH = 1024
_ARTICLES = {
    "array": "an array",
    "object": "an object",
    "integer": "an integer",
    "null": "null",
    "string": "a string",
    "number": "a number",
    "boolean": "true or false",
}
_LIMITS = {
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be greater than {}",
    "exclusiveMaximum": "must be less than {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "minItems": "must have at least {} items",
    "maxItems": "must have at most {} items",
    "minProperties": "must have at least {} fields",
    "maxProperties": "must have at most {} fields",
}
_FIXED = {
    "contains": "must contain a fitting item",
    "uniqueItems": "must not contain an item twice",
    "not": "must not have this form",
    "anyOf": "must have one of the allowed forms",
    "oneOf": "must have exactly one of the allowed forms",
    "propertyNames": "has a field whose name is not allowed",
    "unevaluatedItems": "has too many items",
    "additionalItems": "has too many items",
    "falseSchema": "is not allowed here",
}


class SchemaValidator:
    """A compiled JSON Schema 2020-12 with a linear-time pattern engine. ValueError when the schema does not compile."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = dict(schema)
        self._compiled = jsonschema_rs.Draft202012Validator(
            self._schema, offline=True, validate_formats=True, ignore_unknown_formats=False, pattern_options=regex_options()
        )

    def errors(self, value: object) -> tuple[FieldError, ...]:
        """What is wrong with `value`, at most 20 entries, empty when it fits. Never contains a value of it."""
        try:
            if self._compiled.is_valid(value):
                return ()
            problems = itertools.islice(self._compiled.iter_errors(value), MAX_ERRORS)
            found = [entry for problem in problems for entry in self._explain(problem)]
        except (ValueError, TypeError, RecursionError):
            found = []
        return tuple(dict.fromkeys(found))[:MAX_ERRORS] or (FieldError(path="", message="must be a plain JSON value"),)

    def _explain(self, problem: jsonschema_rs.ValidationError) -> list[FieldError]:
        path = write_pointer(problem.instance_path)
        kind, facts = problem.kind.name, problem.kind.as_dict()
        if kind in ("additionalProperties", "unevaluatedProperties"):
            message = self._unknown_field(problem.schema_path)
            return [FieldError(path=path + write_pointer([key]), message=message) for key in facts["unexpected"][:MAX_ERRORS]]
        if kind == "required":
            return [FieldError(path=path + write_pointer([facts["property"]]), message="required")]
        return [FieldError(path=path, message=_sentence(kind, facts))]

    def _unknown_field(self, schema_path: Sequence[str | int]) -> str:
        """The sentence for an unknown field, with the fields that the schema at that place knows."""
        place: Any = self._schema
        for step in schema_path[:-1]:
            place = place[step]
        names = ", ".join(sorted(cast("dict[str, Any]", place).get("properties", {})))
        return f"unknown field; allowed: {_clip(names, _MAX_LISTED)}" if names else "unknown field; none is allowed here"


class FlatStrings:
    """The context of a workflow that declares no schema: a flat object of strings."""

    def errors(self, value: object) -> tuple[FieldError, ...]:
        """What is wrong with `value`, at most 20 entries, empty when it fits."""
        if not isinstance(value, dict):
            return (FieldError(path="", message="must be an object"),)
        fields = cast("dict[str, object]", value)
        if len(fields) > _CONTEXT_KEYS:
            return (FieldError(path="", message=f"must have at most {_CONTEXT_KEYS} fields"),)
        found: list[FieldError] = []
        for key, item in fields.items():
            if len(key) > _MAX_KEY:
                found.append(FieldError(path=write_pointer([key]), message=f"the name must have at most {_MAX_KEY} characters"))
            elif not isinstance(item, str):
                found.append(FieldError(path=write_pointer([key]), message="must be a string"))
            elif len(item) > _CONTEXT_LENGTH:
                found.append(FieldError(path=write_pointer([key]), message=f"must have at most {_CONTEXT_LENGTH} characters"))
        return tuple(found[:MAX_ERRORS])


def write_pointer(steps: Sequence[str | int]) -> str:
    """A JSON pointer whose keys are printable and at most 64 characters each: keys may be the model's own invention."""
    return "".join(
        "/" + escape_token(_clip("".join(c if c.isprintable() else "\ufffd" for c in str(step)[: _MAX_KEY + 1]), _MAX_KEY))
        for step in steps
    )


def _sentence(kind: str, facts: Mapping[str, Any]) -> str:
    """What to do, in words of the schema only."""
    if kind in _LIMITS:
        return _LIMITS[kind].format(facts["limit"])
    sentence = _FIXED.get(kind, "does not fit")
    match kind:
        case "type":
            sentence = "must be " + " or ".join(_ARTICLES[name] for name in sorted(cast("list[str]", facts["types"])))
        case "enum":
            sentence = f"must be one of {', '.join(_write(option) for option in facts['options'])}"
        case "const":
            sentence = f"must be {_write(facts['expected_value'])}"
        case "pattern":
            sentence = f"must match the pattern {facts['pattern']}"
        case "format":
            sentence = f"must have the format {facts['format']}"
        case "multipleOf":
            sentence = f"must be a multiple of {facts['multiple_of']}"
        case _:
            pass
    return _clip(sentence, _MAX_LISTED)


def _write(value: Any) -> str:
    return orjson.dumps(value).decode()


def _clip(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
