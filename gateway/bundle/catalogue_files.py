"""Every YAML file of a bundle as declarations, each with its place."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter

from gateway.bundle.cases import Case
from gateway.bundle.declarations import declare
from gateway.bundle.sources import Source, Sources
from gateway.domain.catalogue import (
    AgentGrant,
    Budget,
    BundleDeclaration,
    Name,
    PersonGrant,
    Principals,
    SubjectGrant,
    ToolDeclaration,
    WorkflowDeclaration,
)
from gateway.domain.findings import Finding

Value = TypeVar("Value")
_Workflows = dict[Name, WorkflowDeclaration]
_TOOL, _BUNDLE, _PRINCIPALS = TypeAdapter(ToolDeclaration), TypeAdapter(BundleDeclaration), TypeAdapter(Principals)
_WORKFLOWS, _BUDGETS, _CASES = TypeAdapter(_Workflows), TypeAdapter(list[Budget]), TypeAdapter(list[Case])
_MISSING = {
    "bundle.yaml": "the bundle has no name",
    "workflows.yaml": "no tool is exposed anywhere",
    "principals.yaml": "nobody may call anything",
    "budgets.yaml": "nothing is limited",
}


@dataclass(frozen=True, kw_only=True)
class Placed(Generic[Value]):
    """A declaration and where it stands."""

    value: Value
    source: Source


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """Everything that the YAML files of a bundle declare, unchecked against each other."""

    bundle: BundleDeclaration | None
    bundle_source: Source | None
    tools: dict[str, Placed[ToolDeclaration]] = field(default_factory=dict[str, Placed[ToolDeclaration]])
    workflows: dict[str, Placed[WorkflowDeclaration]] = field(default_factory=dict[str, Placed[WorkflowDeclaration]])
    agents: dict[str, Placed[AgentGrant]] = field(default_factory=dict[str, Placed[AgentGrant]])
    subjects: dict[str, Placed[SubjectGrant]] = field(default_factory=dict[str, Placed[SubjectGrant]])
    persons: dict[str, Placed[PersonGrant]] = field(default_factory=dict[str, Placed[PersonGrant]])
    budgets: list[Placed[Budget]] = field(default_factory=list[Placed[Budget]])
    cases: list[Placed[Case]] = field(default_factory=list[Placed[Case]])

    def workflows_with(self, tool: str) -> dict[str, Placed[WorkflowDeclaration]]:
        """The workflows that expose a tool."""
        return {name: placed for name, placed in self.workflows.items() if tool in placed.value.tools}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What came of reading the YAML files."""

    catalogue: Catalogue
    findings: list[Finding]
    """What could not be read or declared; with errors here the catalogue is not whole."""


def read_catalogue(files: Mapping[str, bytes]) -> Reading:
    """Read and declare every YAML file."""
    return _Reader(files).read()


class _Reader:
    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files
        self.sources = Sources()
        self.findings = self.sources.findings

    def read(self) -> Reading:
        bundle = self._file("bundle.yaml", _BUNDLE, BundleDeclaration)
        catalogue = Catalogue(bundle=bundle, bundle_source=self.sources.documents.get("bundle.yaml"))
        for path in self.files:
            if path.startswith("tools/"):
                self._tool(path, catalogue)
            elif path.startswith("cases/"):
                for index, case in enumerate(self._file(path, _CASES, list[Case]) or []):
                    catalogue.cases.append(Placed(value=case, source=self.sources.documents[path].at(index)))
        for name, workflow in (self._file("workflows.yaml", _WORKFLOWS, _Workflows) or {}).items():
            catalogue.workflows[name] = self._placed(workflow, "workflows.yaml", name)
        for index, budget in enumerate(self._file("budgets.yaml", _BUDGETS, list[Budget]) or []):
            catalogue.budgets.append(self._placed(budget, "budgets.yaml", index))
        self._principals(catalogue)
        return Reading(catalogue=catalogue, findings=self.findings)

    def _principals(self, catalogue: Catalogue) -> None:
        principals = self._file("principals.yaml", _PRINCIPALS, Principals)
        if principals is None:
            return
        for name, agent in principals.agents.items():
            catalogue.agents[name] = self._placed(agent, "principals.yaml", "agents", name)
        for name, subject in principals.subjects.items():
            catalogue.subjects[name] = self._placed(subject, "principals.yaml", "subjects", name)
        for name, person in principals.persons.items():
            catalogue.persons[name] = self._placed(person, "principals.yaml", "persons", name)

    def _tool(self, path: str, catalogue: Catalogue) -> None:
        tool = self._file(path, _TOOL, ToolDeclaration)
        if tool is None:
            return
        source = self.sources.documents[path]
        if path != f"tools/{tool.name}.yaml":
            self.findings.append(
                source.finding(
                    "/name",
                    "tool-file-name",
                    f"the file declares the tool `{tool.name}`",
                    f"Rename the file to tools/{tool.name}.yaml, or correct `name`.",
                )
            )
            return
        catalogue.tools[tool.name] = Placed(value=tool, source=source)

    def _file(self, path: str, kind: TypeAdapter[Value], shape: Any) -> Value | None:
        if path not in self.files:
            if path in _MISSING:
                self.findings.append(_missing(path))
            return None
        source = self.sources.read(path, self.files[path])
        if source is None:
            return None
        declared, findings = declare(kind, shape, source)
        self.findings.extend(findings)
        return declared

    def _placed(self, value: Value, path: str, *tokens: object) -> Placed[Value]:
        return Placed(value=value, source=self.sources.documents[path].at(*tokens))


def _missing(path: str) -> Finding:
    severity = "error" if path == "bundle.yaml" else "warning"
    message = f"there is no {path}: {_MISSING[path]}"
    return Finding(
        file=path,
        line=0,
        column=0,
        code="file-missing",
        message=message,
        mend=f"Add {path}, even where little stands in it on purpose.",
        severity=severity,
    )
