"""From YAML values to declarations: what the models refuse becomes findings at the exact place, with the allowed fields named."""

import types
import typing
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from gateway.bundle.sources import Source, point
from gateway.domain.catalogue import Replay, Risk
from gateway.domain.findings import Finding
from gateway.domain.reasons import Effect
from gateway.domain.suggestions import suggest

Declared = TypeVar("Declared")
_ENUMS: dict[str, type[StrEnum]] = {kind.__name__: kind for kind in (Risk, Replay, Effect)}
_SENTENCES = {
    "string_type": "must be text",
    "int_type": "must be an integer",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "dataclass_type": "must be a mapping",
    "float_type": "must be a number",
}
_LIMITS = {
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
    "literal_error": "must be {expected}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
}


def declare(kind: TypeAdapter[Declared], shape: Any, source: Source) -> tuple[Declared | None, list[Finding]]:
    """Build a declaration of `shape` from what `source` says, or say everything that is wrong with it."""
    try:
        return kind.validate_python(source.value), []
    except ValidationError as error:
        found = _prefer_branches(error.errors(include_url=False), source.value)
        return None, [_explain(details, shape, source) for details in found]


def _explain(details: ErrorDetails, shape: Any, source: Source) -> Finding:
    location, value = details["loc"], source.value
    tokens, rest = _existing(location, value)
    kind = details["type"]
    entry = _entry_name(value, tokens)
    named = tokens if entry is None else tokens[1:]  # in a file that is a list, the finding says which entry
    where = f"`{'.'.join(map(str, named)) or entry}`" if tokens else "the file"
    if kind == "extra_forbidden":
        return _explain_unknown(tokens, location, shape, source)
    if kind == "missing":
        name = str(rest[-1]) if rest else "?"
        if name == "execute" and not tokens:
            return source.finding(
                "",
                "executor-missing",
                "the tool has no executor: `execute` is missing",
                "Add `execute: {http: {connection: …, method: …, path: …}}` or `execute: {python: module:function}`.",
            )
        return source.finding(
            point(*tokens),
            "field-missing",
            f"`{'.'.join(map(str, (*named, name)))}` is missing",
            f"Add `{name}`; docs/bundle.md describes it.",
        )
    if rest and rest[-1] == "[key]":
        return source.finding(point(*tokens), "name-invalid", f"the name {where} {_sentence(details)}", "Rename it.")
    if tokens == ("execute",):
        return source.finding("/execute", "executor-invalid", f"`execute` {_sentence(details)}", "Keep exactly one of http and python.")
    return source.finding(
        point(*tokens), "field-invalid", f"{where} {_sentence(details)}", "Correct the value; docs/bundle.md describes every field."
    )


def _entry_name(value: Any, tokens: Sequence[str | int]) -> str | None:
    entry: Any = cast("list[Any]", value)[int(tokens[0])] if isinstance(value, list) and tokens else None
    name: Any = cast("dict[Any, Any]", entry).get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else None


def _explain_unknown(tokens: Sequence[str | int], location: Sequence[str | int], shape: Any, source: Source) -> Finding:
    name = str(tokens[-1]) if tokens else "?"
    allowed = sorted(_fields_at(shape, location[:-1]))
    mend = suggest(name, allowed, "Remove it, or use one of the allowed fields.")
    return source.finding(point(*tokens), "field-unknown", f"unknown field `{name}`; allowed: {', '.join(allowed) or 'none'}", mend)


def _sentence(details: ErrorDetails) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if kind in _SENTENCES:
        return _SENTENCES[kind]
    if kind in _LIMITS:
        return _LIMITS[kind].format_map(context)
    text = str(context.get("error", details["msg"]))
    enum = _ENUMS.get(text.rpartition(" is not a valid ")[2])
    return f"must be one of {', '.join(enum)}" if enum else text


def _existing(location: Sequence[str | int], value: Any) -> tuple[tuple[str | int, ...], tuple[str | int, ...]]:
    """The part of a pydantic location that exists in the document (without names of union branches), and what is left over."""
    tokens: list[str | int] = []
    rest: list[str | int] = []
    for step in location:
        if isinstance(value, dict) and step in value:
            value = cast("dict[Any, Any]", value)[step]
        elif isinstance(value, list) and isinstance(step, int) and step < len(cast("list[Any]", value)):
            value = cast("list[Any]", value)[step]
        else:
            rest.append(step)
            continue
        tokens.append(step)
        rest.clear()
    return tuple(tokens), tuple(rest)


def _prefer_branches(errors: list[ErrorDetails], value: Any) -> list[ErrorDetails]:
    """Where a union refused a value in each of its forms: keep what the fitting form said, or join the sentences into one."""
    groups: dict[tuple[str | int, ...], list[ErrorDetails]] = {}
    kept: list[ErrorDetails] = []
    for details in errors:
        fork = _fork(details["loc"], value) if details["type"] != "missing" or len(details["loc"]) > 1 else None
        if fork is None:
            kept.append(details)
        else:
            groups.setdefault(fork, []).append(details)
    for fork, members in groups.items():
        deep = [details for details in members if len(details["loc"]) > len(fork) + 1]
        if deep:
            kept.extend(deep)
            continue
        sentence = " or ".join(dict.fromkeys(_sentence(details) for details in members))
        kept.append(ErrorDetails(type="value_error", loc=fork, msg=sentence, input=None, ctx={"error": sentence}))
    return kept


def _fork(location: Sequence[str | int], value: Any) -> tuple[str | int, ...] | None:
    """Where in the document a location names a union's branch instead of a field; None where it does not."""
    for index, step in enumerate(location):
        if isinstance(value, dict) and step in value:
            value = cast("dict[Any, Any]", value)[step]
        elif isinstance(value, list) and isinstance(step, int) and step < len(cast("list[Any]", value)):
            value = cast("list[Any]", value)[step]
        else:
            is_branch = step != "[key]" and isinstance(step, str) and (step[:1].isupper() or not step.isidentifier())
            return tuple(location[:index]) if is_branch else None
    return None


def _fields_at(shape: Any, location: Sequence[str | int]) -> set[str]:
    """The field names that the model(s) at a location allow."""
    models = _models(shape)
    for step in location:
        named = [model for model in models if model.__name__ == step] if isinstance(step, str) else []
        models = named or [below for model in models for below in _step(model, step)]
    return {field.alias or name for model in models if _is_model(model) for name, field in model.model_fields.items()}


def _step(model: Any, step: str | int) -> list[Any]:
    if _is_model(model):
        for name, field in model.model_fields.items():
            if step in (name, field.alias):
                return _models(field.annotation)
        return []
    arguments = typing.get_args(model)
    return _models(arguments[-1]) if arguments else []


def _models(shape: Any) -> list[Any]:
    """The models and containers in a type, through Annotated and unions."""
    origin = typing.get_origin(shape)
    if origin is Annotated:
        return _models(typing.get_args(shape)[0])
    if origin in (typing.Union, types.UnionType):
        return [model for part in typing.get_args(shape) for model in _models(part)]
    return [shape] if origin in (dict, list) or _is_model(shape) else []


def _is_model(shape: Any) -> bool:
    return isinstance(shape, type) and issubclass(shape, BaseModel)
