"""From the files of a folder to a checked bundle: one revision, or everything that is wrong with it. No engine runs here."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.bundle.cases import Case
from gateway.bundle.catalogue_checks import check_catalogue
from gateway.bundle.catalogue_files import Catalogue, Placed, read_catalogue
from gateway.bundle.data_documents import read_data
from gateway.bundle.folder import compute_revision, read_folder, unexpected_files
from gateway.bundle.schema_forms import SchemaForm
from gateway.bundle.sources import Source, locate, point
from gateway.bundle.strict_yaml import UnreadableError, decode_text
from gateway.bundle.template_checks import check_templates
from gateway.bundle.tool_checks import check_tool
from gateway.bundle.validation import FlatStrings, SchemaValidator
from gateway.domain.canonical import canonical_json, digest
from gateway.domain.catalogue import Bundle, Tool, ToolDeclaration, Validator, Workflow
from gateway.domain.findings import Finding
from gateway.policy.analysis import analyse
from gateway.policy.checks.names import DeclaredNames
from gateway.policy.checks.shapes import InputShapes
from gateway.policy.modules import assemble

MAX_DATA = 4 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class CheckedBundle:
    """A bundle that passed every check that needs no engine, with what the checks that need one work on."""

    bundle: Bundle
    warnings: tuple[Finding, ...]
    cases: tuple[Placed[Case], ...]
    modules: Mapping[str, str]
    """The authors' Rego with their tests: path -> source."""
    files: Mapping[str, bytes]
    """Everything that counts, exactly as it was read."""


def load_bundle(folder: Path) -> CheckedBundle | list[Finding]:
    """Read and check a folder. A list of findings holds at least one error; its warnings are among them."""
    snapshot = read_folder(folder)
    if not snapshot.files and snapshot.findings:
        return list(snapshot.findings)
    return _load(snapshot.files, list(snapshot.findings))


def load_files(files: Mapping[str, bytes]) -> CheckedBundle | list[Finding]:
    """The same for files that came another way than from a folder: relative path -> bytes."""
    return _load(files, unexpected_files(files))


def _load(files: Mapping[str, bytes], findings: list[Finding]) -> CheckedBundle | list[Finding]:
    reading = read_catalogue(files)
    catalogue = reading.catalogue
    findings += reading.findings
    is_whole = not any(finding.severity == "error" for finding in reading.findings)
    compiled = _Schemas()
    for tool in catalogue.tools.values():
        findings += compiled.add_tool(tool)
    for name, workflow in catalogue.workflows.items():
        if workflow.value.context is not None:
            findings += compiled.add_context(name, workflow.source.at("context"))
    for name in compiled.tools:  # these checks read schemas, so that only valid ones may reach them
        findings += check_tool(catalogue.tools[name])
        if not compiled.has_broken_context:
            findings += check_templates(catalogue.tools[name], catalogue)
    if is_whole:
        findings += check_catalogue(catalogue)
    modules, data = _read_modules(files, findings), _read_all_data(files, findings)
    if is_whole and compiled.tools.keys() == catalogue.tools.keys():  # else names in Rego would look unknown that are not
        arguments = frozenset(name for tool in compiled.tools.values() for name in tool.declaration.parameters.get("properties", {}))
        own_codes = {reason.code: reason.effect for reason in (catalogue.bundle.reason_codes if catalogue.bundle else ())}
        findings += analyse(
            modules,
            data,
            argument_names=arguments,
            own_codes=own_codes,
            declared=_declared_names(catalogue),
            shapes=_shapes(compiled, catalogue),
        )
    findings = sorted(set(findings))
    if any(finding.severity == "error" for finding in findings) or catalogue.bundle is None:
        return findings
    revision = compute_revision(files)
    bundle = Bundle(
        name=catalogue.bundle.name,
        revision=revision,
        tools={name: compiled.tools[name] for name in sorted(catalogue.tools)},
        workflows={
            name: Workflow(name=name, declaration=placed.value, context=compiled.contexts.get(name, FlatStrings()))
            for name, placed in sorted(catalogue.workflows.items())
        },
        agents={name: placed.value for name, placed in catalogue.agents.items()},
        subjects={name: placed.value for name, placed in catalogue.subjects.items()},
        persons={name: placed.value for name, placed in catalogue.persons.items()},
        budgets=tuple(placed.value for placed in catalogue.budgets),
        own_reasons={reason.code: reason for reason in catalogue.bundle.reason_codes},
        policy=assemble(modules, data, revision),
    )
    return CheckedBundle(bundle=bundle, warnings=tuple(findings), cases=tuple(catalogue.cases), modules=modules, files=files)


def _declared_names(catalogue: Catalogue) -> DeclaredNames:
    return DeclaredNames(
        tools=frozenset(catalogue.tools),
        workflows=frozenset(catalogue.workflows),
        agents=frozenset(catalogue.agents),
        subjects=frozenset(catalogue.subjects),
        attributes=frozenset(name for subject in catalogue.subjects.values() for name in subject.value.attributes),
    )


def _shapes(compiled: "_Schemas", catalogue: Catalogue) -> InputShapes:
    flat = {"type": "object", "additionalProperties": {"type": "string"}}  # what a workflow without `context` accepts
    return InputShapes(
        arguments=[tool.declaration.parameters for tool in compiled.tools.values()],
        contexts=[workflow.value.context or flat for workflow in catalogue.workflows.values()],
        attributes=[subject.value.attributes for subject in catalogue.subjects.values()],
    )


class _Schemas:
    """The compiled schemas of a bundle."""

    def __init__(self) -> None:
        self.tools: dict[str, Tool] = {}
        self.contexts: dict[str, Validator] = {}
        self.has_broken_context = False

    def add_tool(self, tool: Placed[ToolDeclaration]) -> list[Finding]:
        arguments, findings = compile_schema(SchemaForm(source=tool.source.at("parameters"), is_closed=True))
        output = None
        if tool.value.result.output is not None:
            output, found = compile_schema(SchemaForm(source=tool.source.at("result", "output"), is_closed=False, is_object=False))
            findings += found
        if arguments is not None and not findings:
            self.tools[tool.value.name] = Tool(declaration=tool.value, digest=digest_tool(tool.source), arguments=arguments, output=output)
        return findings

    def add_context(self, name: str, source: Source) -> list[Finding]:
        # An agent service writes the context, not a model: it may stay open.
        context, findings = compile_schema(SchemaForm(source=source, is_closed=False))
        if context is None:
            self.has_broken_context = True
        else:
            self.contexts[name] = context
        return findings


def compile_schema(form: SchemaForm) -> tuple[Validator | None, list[Finding]]:
    """Compile a schema whose form is right, or say what is wrong with it."""
    findings = form.findings()
    if findings:
        return None, findings
    try:
        return SchemaValidator(form.source.value), []
    except ValueError as error:
        place: Any = getattr(error, "instance_path", [])
        sentence = str(getattr(error, "message", error))[:200]
        return None, [
            form.source.finding(
                point(*place),
                "schema-invalid",
                f"the schema does not compile: {sentence}",
                "Correct the keyword's value; formats are those of JSON Schema 2020-12.",
            )
        ]


def digest_tool(source: Source) -> str:
    """``sha256:…`` over a tool's declaration as canonical JSON, as its author wrote it."""
    return f"sha256:{digest('tool', source.value).hex()}"


def _read_modules(files: Mapping[str, bytes], findings: list[Finding]) -> dict[str, str]:
    modules: dict[str, str] = {}
    for path, content in files.items():
        if path.startswith("rego/"):
            try:
                modules[path] = decode_text(content)
            except UnreadableError as error:
                findings.append(locate(path, error))
    return modules


def _read_all_data(files: Mapping[str, bytes], findings: list[Finding]) -> dict[str, Any]:
    data, found = read_data(files)
    if not found and len(canonical_json(data)) > MAX_DATA:
        message = f"the data documents together are larger than {MAX_DATA // 1024 // 1024} MiB"
        found = [
            Finding(file="data", line=0, column=0, code="data-too-large", message=message, mend="Keep what policies do not need elsewhere.")
        ]
    findings += found
    return data
