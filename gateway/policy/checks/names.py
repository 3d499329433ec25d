"""Whether the names that policies compare with are declared: a rule about a misspelt tool never fires, and nothing else says so."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gateway.domain.findings import Finding
from gateway.domain.suggestions import suggest
from gateway.policy.checks.inputs import read_path
from gateway.policy.checks.syntax import Path, literal_string, offset_of
from gateway.policy.checks.walk import Use

_ATTRIBUTES = ("input", "subject", "attributes")
_OF: dict[Path, str] = {
    ("input", "tool", "name"): "tool",
    ("input", "run", "history", None, "tool"): "tool",
    ("input", "workflow", "name"): "workflow",
    ("input", "agent", "name"): "agent",
    ("input", "subject", "name"): "subject",
}
"""What stands at these places of the input."""
_CERTAIN = ("tool", "workflow")
"""These are declared in the bundle or do not exist; a rule about a person who has left does no harm."""


@dataclass(frozen=True, kw_only=True)
class DeclaredNames:
    """What a bundle declares."""

    tools: frozenset[str] = frozenset()
    workflows: frozenset[str] = frozenset()
    agents: frozenset[str] = frozenset()
    subjects: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    """First-level attributes of all subjects."""

    def of(self, kind: str) -> frozenset[str]:
        """The names of a kind: ``tool``, ``workflow``, ``agent`` or ``subject``."""
        return {"tool": self.tools, "workflow": self.workflows, "agent": self.agents, "subject": self.subjects}[kind]


def check_names(use: Use, declared: DeclaredNames) -> Iterator[Finding]:
    """Findings on one comparison or one read of an attribute. Tests may invent whom they like."""
    if use.module.is_test:
        return
    if use.kind == "compared":
        yield from _check_comparison(use, declared)
    elif (path := read_path(use)) is not None and path[:3] == _ATTRIBUTES and len(path) > 3:
        name = path[3]
        if name is not None and name not in declared.attributes:
            mend = suggest(name, declared.attributes, "Correct it, or give the attribute to a subject in principals.yaml.")
            finding = use.module.finding(use.offset, "rego-attribute-unknown", f"No subject has an attribute `{name}`.", mend)
            yield replace(finding, severity="warning")


def _check_comparison(use: Use, declared: DeclaredNames) -> Iterator[Finding]:
    kind = _OF.get(use.path)
    if kind is None:
        return
    known = declared.of(kind)
    for literal in use.parameters:
        name = literal_string(literal)
        if name is not None and name not in known:
            mend = suggest(name, known, f"Correct the name: this never holds as long as there is no such {kind}.")
            finding = use.module.finding(offset_of(literal), "rego-unknown-name", f"There is no {kind} `{name}`.", mend)
            yield finding if kind in _CERTAIN else replace(finding, severity="warning")
