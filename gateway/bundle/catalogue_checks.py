"""What the files of a bundle must say together: exposure, risk, permissions, people, codes, cases."""

import math
from collections.abc import Iterable, Iterator
from typing import Any, cast

from gateway.bundle.budget_checks import check_budgets
from gateway.bundle.catalogue_files import Catalogue, Placed
from gateway.bundle.sources import Source, point
from gateway.bundle.timezones import has_zone
from gateway.domain.approvals import PEOPLE_NEEDED
from gateway.domain.catalogue import SubjectGrant
from gateway.domain.findings import Finding
from gateway.domain.reasons import ReasonCode
from gateway.domain.suggestions import suggest

_MAX_ATTRIBUTES = 64
_MAX_ATTRIBUTE_DEPTH = 4


def check_catalogue(catalogue: Catalogue) -> Iterator[Finding]:
    """Every check that needs more than one declaration."""
    yield from _check_exposure(catalogue)
    yield from _check_confirmation(catalogue)
    yield from _check_agents(catalogue)
    yield from _check_permissions(catalogue)
    for subject in catalogue.subjects.values():
        yield from _check_attributes(subject)
    yield from check_budgets(catalogue)
    yield from _check_codes(catalogue)
    yield from _check_cases(catalogue)


def _check_exposure(catalogue: Catalogue) -> Iterator[Finding]:
    for workflow in catalogue.workflows.values():
        for index, name in enumerate(workflow.value.tools):
            place, tool = f"/tools/{index}", catalogue.tools.get(name)
            if tool is None:
                yield workflow.source.finding(
                    place,
                    "tool-unknown",
                    f"there is no tool `{name}`",
                    suggest(name, catalogue.tools, f"Add tools/{name}.yaml, or remove the entry."),
                )
                continue
            if name in workflow.value.tools[:index]:
                yield workflow.source.finding(place, "entry-repeated", f"`{name}` stands twice", "Remove one.")
            if tool.value.risk.level > workflow.value.max_risk.level:
                message = f"`{name}` has risk {tool.value.risk}, above the workflow's max_risk {workflow.value.max_risk}"
                yield workflow.source.finding(
                    place, "risk-above-workflow", message, "Raise `max_risk`, or take the tool out of the workflow."
                )
    for name, tool in catalogue.tools.items():
        exposed_in = catalogue.workflows_with(name)
        if tool.value.exposed and not exposed_in:
            yield tool.source.finding(
                "/name",
                "tool-not-exposed",
                f"no workflow exposes `{name}`",
                "Add it to a workflow in workflows.yaml, or say `exposed: false`.",
            )
        if not tool.value.exposed and exposed_in:
            yield tool.source.finding(
                "/exposed",
                "tool-exposed",
                f"`exposed: false`, but `{', '.join(exposed_in)}` exposes it",
                "Remove it from the workflow, or remove `exposed: false`.",
            )


def _check_confirmation(catalogue: Catalogue) -> Iterator[Finding]:
    for workflow in catalogue.workflows.values():
        confirmation = workflow.value.confirmation
        if confirmation is None:
            continue
        if confirmation.valid_for <= 0:
            yield workflow.source.finding(
                "/confirmation/valid_for",
                "duration-range",
                "`valid_for` must be more than 0",
                "Say how long a yes is good for, such as 10m.",
            )
        needed = PEOPLE_NEEDED[confirmation.rule]
        able = sum(confirmation.permission in permissions for permissions in _answering(catalogue, confirmation.rule))
        if able < needed:
            who = "subjects" if confirmation.rule == "self" else "persons"
            message = f"rule `{confirmation.rule}` needs {needed} with `{confirmation.permission}`, and {able} of the {who} has it"
            yield workflow.source.finding(
                "/confirmation/permission",
                "approver-missing",
                message,
                f"Grant it to somebody under `{who}` in principals.yaml.",
                severity="warning",
            )


def _answering(catalogue: Catalogue, rule: str) -> list[list[str]]:
    """The permissions of each one who may answer under a rule: persons, or subjects for themselves."""
    if rule != "self":
        return [person.value.permissions for person in catalogue.persons.values()]
    return [
        subject.value.permissions + (catalogue.persons[name].value.permissions if name in catalogue.persons else [])
        for name, subject in catalogue.subjects.items()
    ]


def _check_agents(catalogue: Catalogue) -> Iterator[Finding]:
    for agent in catalogue.agents.values():
        for index, name in enumerate(agent.value.workflows):
            if name not in catalogue.workflows:
                yield agent.source.finding(
                    f"/workflows/{index}",
                    "workflow-unknown",
                    f"there is no workflow `{name}`",
                    suggest(name, catalogue.workflows, "Add it to workflows.yaml, or remove the entry."),
                )
        if isinstance(agent.value.act_for, list):
            for index, name in enumerate(agent.value.act_for):
                if name not in catalogue.subjects:
                    mend = suggest(name, catalogue.subjects, "Add it under `subjects`, or remove the entry.")
                    yield agent.source.finding(f"/act_for/{index}", "subject-unknown", f"there is no subject `{name}`", mend)


def _check_permissions(catalogue: Catalogue) -> Iterator[Finding]:
    for_tools = {permission for tool in catalogue.tools.values() for permission in tool.value.permissions}
    for_people = {workflow.value.confirmation.permission for workflow in catalogue.workflows.values() if workflow.value.confirmation}
    known = for_tools | for_people
    grants: list[tuple[Source, list[str]]] = [
        *((agent.source, agent.value.permissions) for agent in catalogue.agents.values()),
        *((subject.source, subject.value.permissions) for subject in catalogue.subjects.values()),
        *((person.source, person.value.permissions) for person in catalogue.persons.values()),
    ]
    for source, permissions in grants:
        for index, permission in enumerate(permissions):
            if permission not in known:
                yield source.finding(
                    f"/permissions/{index}",
                    "permission-unknown",
                    f"nothing needs the permission `{permission}`",
                    suggest(permission, known, "Correct it, or remove it."),
                )
    by_agents = {permission for agent in catalogue.agents.values() for permission in agent.value.permissions}
    by_subjects = {permission for subject in catalogue.subjects.values() for permission in subject.value.permissions}
    for tool in catalogue.tools.values():
        for index, permission in enumerate(tool.value.permissions):
            if catalogue.agents and tool.value.exposed and permission not in by_agents & by_subjects:
                message = f"no agent and subject both have `{permission}`, so nobody can call this tool"
                yield tool.source.finding(
                    f"/permissions/{index}", "permission-not-granted", message, "Grant it in principals.yaml.", severity="warning"
                )


def _check_attributes(subject: Placed[SubjectGrant]) -> Iterator[Finding]:
    attributes = subject.value.attributes
    if _count(attributes, 0) > _MAX_ATTRIBUTES:
        message = f"more than {_MAX_ATTRIBUTES} values, or deeper than {_MAX_ATTRIBUTE_DEPTH} levels"
        yield subject.source.finding(
            "/attributes", "attributes-too-large", message, "Attributes are facts for policies; keep lists under data/."
        )
    for pointer, value in _leaves(attributes, "/attributes"):
        if isinstance(value, float) and not value.is_integer():
            yield subject.source.finding(
                pointer,
                "number-not-integral",
                "policies count in integers only; engines differ on fractions",
                "Write the amount in a smaller unit, such as cents or micro-units.",
            )
    zone = attributes.get("timezone")
    if zone is not None and not (isinstance(zone, str) and has_zone(zone)):
        yield subject.source.finding(
            "/attributes/timezone",
            "timezone-unknown",
            f"there is no time zone `{zone}`",
            "Use a name of the IANA list, such as Europe/Paris.",
        )


def _check_codes(catalogue: Catalogue) -> Iterator[Finding]:
    if catalogue.bundle is None or catalogue.bundle_source is None:
        return
    seen: set[str] = set()
    for index, reason in enumerate(catalogue.bundle.reason_codes):
        if reason.code in seen:
            yield catalogue.bundle_source.finding(
                f"/reason_codes/{index}/code", "reason-code-repeated", f"`{reason.code}` is declared twice", "Keep one of the two."
            )
        seen.add(reason.code)


def _check_cases(catalogue: Catalogue) -> Iterator[Finding]:
    codes: set[str] = {code.value for code in ReasonCode} | {
        reason.code for reason in (catalogue.bundle.reason_codes if catalogue.bundle else ())
    }
    seen: set[tuple[str, str]] = set()
    for case in catalogue.cases:
        declared, source = case.value, case.source
        if (source.file, declared.name) in seen:
            yield source.finding("/name", "case-repeated", f"two cases are called `{declared.name}`", "Rename one.")
        seen.add((source.file, declared.name))
        expected = declared.expect.reason_code
        if expected is not None:
            if expected not in codes:
                yield source.finding(
                    "/expect/reason_code",
                    "reason-code-unknown",
                    f"there is no reason code `{expected}`",
                    suggest(expected, codes, "Correct it, or declare it in bundle.yaml."),
                )
            continue
        named: tuple[tuple[str, str | None, Iterable[str]], ...] = (
            ("agent", declared.agent, catalogue.agents),
            ("subject", declared.subject, catalogue.subjects),
            ("workflow", declared.workflow, catalogue.workflows),
            ("tool", declared.tool, catalogue.tools),
        )
        for kind, name, known in named:
            if name is not None and name not in set(known):
                mend = suggest(name, known, f"Correct it; a case about an unknown {kind} must expect its reason code.")
                yield source.finding(f"/{kind}", "case-name-unknown", f"there is no {kind} `{name}`, so this case tests nothing", mend)


def _leaves(value: Any, pointer: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            yield from _leaves(item, pointer + point(key))
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _leaves(item, f"{pointer}/{index}")
    else:
        yield pointer, value


def _count(value: Any, depth: int) -> float:
    if depth > _MAX_ATTRIBUTE_DEPTH:
        return math.inf
    if isinstance(value, dict):
        return sum((_count(item, depth + 1) for item in cast("dict[str, Any]", value).values()), 0)
    if isinstance(value, list):
        return sum((_count(item, depth + 1) for item in cast("list[Any]", value)), 0)
    return 1
