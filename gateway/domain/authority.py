"""Which authority a caller has over a tool: pure rules over one bundle, used wherever authority is checked."""

from dataclasses import dataclass

from gateway.domain.catalogue import AgentGrant, Bundle, SubjectGrant, Tool, Workflow
from gateway.domain.in_force import Controls
from gateway.domain.principal import Principal
from gateway.domain.reasons import ReasonCode


@dataclass(frozen=True, kw_only=True)
class Scope:
    """A workflow granted to an agent for a subject that it may act for."""

    agent_name: str
    agent: AgentGrant
    subject_name: str
    subject: SubjectGrant
    workflow: Workflow

    @property
    def principal(self) -> Principal:
        """The intersection of what the agent and the subject may do."""
        return Principal(
            agent=self.agent_name,
            subject=self.subject_name,
            permissions=frozenset(self.agent.permissions) & frozenset(self.subject.permissions),
            attributes=self.subject.attributes,
        )


def find_scope(bundle: Bundle, agent_name: str, workflow_name: str, subject_name: str | None, *, controls: Controls) -> Scope | ReasonCode:
    """The scope that `agent_name` was granted, or the code that says why there is none."""
    if stopped := controls.stopped(agent_name):
        return stopped
    workflow = bundle.workflows.get(workflow_name)
    if workflow is None:
        return ReasonCode.WORKFLOW_UNKNOWN
    agent = bundle.agents.get(agent_name)
    if agent is None or workflow_name not in agent.workflows:
        return ReasonCode.WORKFLOW_NOT_ALLOWED
    if subject_name is None:
        return ReasonCode.SUBJECT_REQUIRED
    subject = _find_subject(bundle, agent, subject_name)
    if isinstance(subject, ReasonCode):
        return subject
    return Scope(agent_name=agent_name, agent=agent, subject_name=subject_name, subject=subject, workflow=workflow)


def _find_subject(bundle: Bundle, agent: AgentGrant, name: str) -> SubjectGrant | ReasonCode:
    # An agent learns nothing about people that it does not act for: not even whether they exist.
    if agent.act_for == "jwt" or (agent.act_for != "*" and name not in agent.act_for):
        return ReasonCode.DELEGATION_INVALID
    return bundle.subjects.get(name) or ReasonCode.SUBJECT_UNKNOWN


def find_tool(bundle: Bundle, scope: Scope, tool_name: str, *, controls: Controls) -> Tool | ReasonCode:
    """The tool that the scope exposes under that name, or the code that says why there is none."""
    tool = bundle.tools.get(tool_name)
    if tool is None:
        return ReasonCode.TOOL_UNKNOWN
    declared = scope.workflow.declaration
    if tool_name not in declared.tools:
        return ReasonCode.TOOL_NOT_IN_WORKFLOW
    if tool.declaration.risk.level > declared.max_risk.level:
        return ReasonCode.RISK_ABOVE_WORKFLOW
    if tool_name in controls.disabled_tools:
        return ReasonCode.TOOL_DISABLED
    return tool


def has_permissions(tool: Tool, principal: Principal) -> bool:
    """Whether agent and subject both have every permission that the tool needs."""
    return principal.permissions.issuperset(tool.declaration.permissions)


def visible_tools(bundle: Bundle, scope: Scope, *, controls: Controls) -> list[Tool]:
    """The tools that a scope may call, in the workflow's order."""
    found = [find_tool(bundle, scope, name, controls=controls) for name in scope.workflow.declaration.tools]
    return [tool for tool in found if not isinstance(tool, ReasonCode) and has_permissions(tool, scope.principal)]


def may_see(bundle: Bundle, agent_name: str, workflow_name: str, subject_name: str | None, tool_name: str, *, controls: Controls) -> bool:
    """Whether an agent may today still call a tool for a subject, and so see what an earlier call of it returned."""
    scope = find_scope(bundle, agent_name, workflow_name, subject_name, controls=controls)
    if isinstance(scope, ReasonCode):
        return False
    tool = find_tool(bundle, scope, tool_name, controls=controls)
    return not isinstance(tool, ReasonCode) and has_permissions(tool, scope.principal)
