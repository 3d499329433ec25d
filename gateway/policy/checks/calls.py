"""Which functions policies call: allowed builtins and their own, with the right number of arguments."""

import re
from collections.abc import Iterator, Mapping

from gateway.domain.findings import Finding
from gateway.policy.checks.builtins import ALLOWED, OTHERWISE, REASONS
from gateway.policy.checks.syntax import kind_of, literal_string, offset_of
from gateway.policy.checks.walk import Use

_CLASSES = re.compile(r"\\[dDwWsSbB]")
_BRACE = re.compile(r"(?<!\\)\{(?!\d+(?:,\d*)?\})")
_VERB = re.compile(r"%(.?)")
_NAMESPACES = frozenset(name.split(".")[0] for name in (*ALLOWED, *REASONS) if "." in name) | {
    "crypto",
    "io",
    "glob",
    "bits",
    "rego",
    "yaml",
    "graphql",
    "numbers",
}


def check_call(use: Use, functions: Mapping[tuple[str, ...], set[int]]) -> Iterator[Finding]:
    """Findings on one call or ``with``. `functions`: own functions, by full path, with their numbers of parameters."""
    if use.kind == "call":
        yield from _check_function(use, functions)
    elif use.kind in ("replaced", "replacement"):
        yield from _check_replacement(use, functions)


def _check_function(use: Use, functions: Mapping[tuple[str, ...], set[int]]) -> Iterator[Finding]:
    find = use.module.finding
    if use.path[0] == "data":
        path = tuple(step or "[_]" for step in use.path[1:])
        if path not in functions:
            yield find(use.offset, "rego-function-unknown", f"There is no function {'.'.join(path)}.", "Define it, or correct its name.")
        elif len(use.parameters) not in functions[path]:
            wanted = " or ".join(map(str, sorted(functions[path])))
            yield find(
                use.offset,
                "rego-arity",
                f"{path[-1]} takes {wanted} arguments, not {len(use.parameters)}.",
                "Pass what the function declares.",
            )
        return
    name = ".".join(step or "[_]" for step in use.path)
    if name not in ALLOWED:
        yield find(use.offset, "rego-builtin", f"{name} is not available to policies.", REASONS.get(name, OTHERWISE))
    elif len(use.parameters) != ALLOWED[name] and (name, len(use.parameters)) != ("walk", 2):  # walk(x, [path, value]) iterates
        yield find(
            use.offset, "rego-arity", f"{name} takes {ALLOWED[name]} arguments, not {len(use.parameters)}.", "Pass what the builtin takes."
        )
    elif name == "regex.match":
        yield from _check_pattern(use)
    elif name == "sprintf":
        yield from _check_format(use)


def _check_replacement(use: Use, functions: Mapping[tuple[str, ...], set[int]]) -> Iterator[Finding]:
    path = tuple(step or "[_]" for step in use.path)
    find = use.module.finding
    if path[0] == "data":
        if path[1:] in functions:
            yield find(
                use.offset,
                "rego-function-mock",
                f"{path[-1]} is a function and cannot be replaced alike in both engines.",
                "Replace the input, data or rules that it reads.",
            )
        return
    name = ".".join(path)
    is_builtin = (len(path) == 1 and path[0] in ALLOWED.keys() | REASONS.keys()) or (len(path) > 1 and path[0] in _NAMESPACES)
    if is_builtin and name not in ALLOWED:
        yield find(use.offset, "rego-builtin", f"{name} is not available to policies, not even replaced.", REASONS.get(name, OTHERWISE))


def regex_patterns(use: Use) -> Iterator[tuple[str, int]]:
    """The literal patterns of a call, with their offsets, for a trial in the engine."""
    if use.kind == "call" and use.path == ("regex", "match") and len(use.parameters) == 2:
        pattern = literal_string(use.parameters[0])
        if pattern is not None:
            yield pattern, offset_of(use.parameters[0])


def _check_pattern(use: Use) -> Iterator[Finding]:
    find = use.module.finding
    pattern = literal_string(use.parameters[0])
    place = offset_of(use.parameters[0])
    if pattern is None:
        yield find(place, "rego-regex", "The pattern is not a literal.", "Write the pattern as a string at this place.")
    elif found := _CLASSES.search(pattern):
        yield find(
            place,
            "rego-regex",
            f"{found[0]} means Unicode in one engine and ASCII in the other.",
            "Write the class out, such as [0-9A-Za-z_].",
        )
    elif _BRACE.search(pattern):
        yield find(place, "rego-regex", "A literal brace is an error in one of the engines.", r"Write it as [{] or \x7b.")


def _check_format(use: Use) -> Iterator[Finding]:
    find = use.module.finding
    template = literal_string(use.parameters[0])
    place = offset_of(use.parameters[0])
    if template is None:
        yield find(place, "rego-sprintf", "The template is not a literal.", "Write the template as a string at this place.")
        return
    verbs = _VERB.findall(template)
    if any(verb not in ("d", "s", "v", "q", "%") for verb in verbs):
        yield find(place, "rego-sprintf", "The engines agree only about %d, %s, %v and %q.", "Use one of these, without flags or widths.")
    kind, content = kind_of(use.parameters[1])
    wanted = sum(verb != "%" for verb in verbs)
    if kind == "Array" and len(content["items"]) != wanted:
        yield find(
            place, "rego-sprintf", f"The template takes {wanted} values and gets {len(content['items'])}.", "Pass one value for each verb."
        )
