"""Whether policies read only what their input can hold: a misspelt fact would be undefined, and its rule would never fire."""

from collections.abc import Iterator
from typing import Any

from gateway.domain.findings import Finding
from gateway.domain.policy_input import PolicyInput
from gateway.policy.checks.syntax import Path, kind_of, literal_string
from gateway.policy.checks.walk import Use

_MEND_FIELD = "Use a field of docs/policy-input.schema.json."
_MEND_WHOLE = "Name the fields that are needed: what happens to the whole input cannot be checked."


Problem = tuple[str, str, str]
"""Code, message, mend."""


class InputPaths:
    """The published schema of the input, as a tree to follow paths in."""

    def __init__(self, argument_names: frozenset[str]) -> None:
        self._schema = PolicyInput.model_json_schema()
        self._argument_names = argument_names

    def problem(self, path: Path) -> Problem | None:
        """What is wrong with a path below ``input``; None where the input can have it, or where anything may stand."""
        node: dict[str, Any] | None = self._schema
        for depth, step in enumerate(path[1:], start=1):
            if node is None:
                return None
            here = ".".join(part or "[_]" for part in path[:depth])
            if problem := self._step_problem(node, step, here):
                return problem
            node = self._step(node, step)
        return None

    def _step_problem(self, node: dict[str, Any], step: str | None, here: str) -> Problem | None:
        if here == "input.args" and step is not None and step not in self._argument_names:
            return "rego-argument-unknown", f"No tool has an argument {step!r}.", "Use a name from the parameters of a tool."
        match node.get("type"):
            case "array" if step is not None and not step.isdecimal():
                return "rego-input-unknown", f"{here} is a list and has no field {step!r}.", _MEND_FIELD
            case "object" if "properties" in node and step is None:
                return (
                    "rego-input-dynamic",
                    f"A field of {here} is chosen at evaluation.",
                    "Name the field: a misspelt one could not be found.",
                )
            case "object" if "properties" in node and step not in node["properties"]:
                return "rego-input-unknown", f"{here} has no field {step!r}; it has {', '.join(node['properties'])}.", _MEND_FIELD
            case "array" | "object":
                return None
            case _:
                return "rego-input-unknown", f"{here} is a single value and has no field {step or '[_]'!r}.", _MEND_FIELD

    def _step(self, node: dict[str, Any], step: str | None) -> dict[str, Any] | None:
        if node["type"] == "array":
            return self._plain(node["items"])
        if "properties" in node:
            return self._plain(node["properties"][step])
        inner: Any = node.get("additionalProperties")
        return self._plain(inner) if isinstance(inner, dict) else None  # pyright: ignore[reportUnknownArgumentType]

    def _plain(self, node: dict[str, Any]) -> dict[str, Any] | None:
        """The node behind references and ``null`` alternatives."""
        if "$ref" in node:
            return self._plain(self._schema["$defs"][node["$ref"].rsplit("/", 1)[1]])
        if "anyOf" in node:
            others = [choice for choice in node["anyOf"] if choice.get("type") != "null"]
            return self._plain(others[0]) if len(others) == 1 else None
        return node if node.get("type") or "enum" in node else None


def check_inputs(use: Use, paths: InputPaths) -> Iterator[Finding]:
    """Findings on one use of the input."""
    problem = None
    if (path := read_path(use)) is not None:
        problem = paths.problem(path)
    elif use.kind == "call" and ("input",) in use.parameter_paths:
        problem = ("rego-input-whole", "The whole input is passed on.", _MEND_WHOLE)
    if problem is not None:
        yield use.module.finding(use.offset, *problem)


def read_path(use: Use) -> Path | None:
    """The path below ``input`` that a use reads, by reference or by ``object.get(object, key or [keys], default)``; None for others."""
    if use.path[0] == "input":
        return use.path
    if use.kind != "call" or use.path != ("object", "get") or len(use.parameters) != 3:
        return None
    root = use.parameter_paths[0]
    if root is None or root[0] != "input":
        return None
    kind, content = kind_of(use.parameters[1])
    if kind == "Array":
        return (*root, *(literal_string(item) for item in content["items"]))
    return (*root, literal_string(use.parameters[1]))
