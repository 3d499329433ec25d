"""Authors' routes: push a revision, look at revisions, put one in force. Operators' routes: take out of service and put back."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from gateway.api.cursors import read_cursor, read_limit, write_cursor
from gateway.api.envelope import read_plain_request
from gateway.api.problems import Problem, ProblemError, json_response
from gateway.api.services import CALLER, SERVICES
from gateway.api.shapes import Body, Time, read_timed_place
from gateway.bundle.archive import unpack_files
from gateway.domain.decision import PolicyFault
from gateway.domain.ports import Kept, KeptRevision
from gateway.revisions import OtherRevisionActive, RevisionRefused

MAX_PUSH_BYTES = 20 * 1024 * 1024
"""A bundle has at most 16 MiB of files; in JSON they are a little larger."""
_MAX_FINDINGS = 100

Revision = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Line = Annotated[str, Field(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")]
Reason = Annotated[str, Field(min_length=3, max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")]


class Push(Body):
    """Body of ``POST /v1/bundles``: every file of the folder by its relative path, as text."""

    files: Annotated[dict[str, str], Field(min_length=1, max_length=2_000)]
    note: Line = ""


class Activate(Body):
    """Body of ``POST /v1/bundles/{revision}/activate`` and of ``POST /v1/bundles/active/rollback``."""

    replaces: Revision | None = None
    """The revision that it is to replace; where another one is in force, nothing changes. Without it: whatever is in force."""


class RevisionItem(BaseModel):
    """A revision that the gateway keeps."""

    model_config = ConfigDict(from_attributes=True)

    revision: str
    name: str
    note: str
    pushed_by: str
    pushed_at: Time
    is_active: bool
    activated_by: str | None
    activated_at: Time | None


class RevisionPage(BaseModel):
    """One page of revisions, newest first."""

    items: list[RevisionItem]
    next_cursor: str | None


class RevisionWithFiles(RevisionItem):
    """A revision with its files: relative path -> text."""

    files: dict[str, str]


class PushedRevision(BaseModel):
    """A revision that passed its checks and is kept."""

    revision: str
    warnings: list[dict[str, Any]]


class ActiveRevision(BaseModel):
    """What is in force now on every gateway of the database."""

    revision: str
    epoch: int
    replaced: str | None


class Restrict(Body):
    """Body of ``POST /v1/controls``: what to take out of service or put back, and why."""

    action: Literal["suspend", "resume", "disable", "enable", "freeze", "unfreeze"]
    name: Annotated[str, Field(max_length=128)] = ""
    """The agent (suspend, resume) or the tool (disable, enable); empty for the whole tenant."""
    reason: Reason


class ControlItem(BaseModel):
    """One thing that is out of service."""

    model_config = ConfigDict(from_attributes=True)

    kind: Literal["agent", "tool", "tenant"]
    name: str
    reason: str
    restricted_by: str
    restricted_at: Time


class ControlList(BaseModel):
    """Everything that is out of service."""

    items: list[ControlItem]
    next_cursor: None = None


class Restricted(BaseModel):
    """Whether the request changed anything; it had been so already where not."""

    changed: bool


_ACTIONS: Mapping[str, tuple[Literal["agent", "tool", "tenant"], bool]] = {
    "suspend": ("agent", True),
    "resume": ("agent", False),
    "disable": ("tool", True),
    "enable": ("tool", False),
    "freeze": ("tenant", True),
    "unfreeze": ("tenant", False),
}


async def push(request: web.Request) -> web.Response:
    """Check a revision and keep it. It decides nothing before it is activated."""
    services, caller = request.app[SERVICES], request[CALLER]
    body = await read_plain_request(request.clone(client_max_size=MAX_PUSH_BYTES), Push)
    files = {path: text.encode() for path, text in body.files.items()}
    try:
        checked = await services.revisions.push(caller.tenant, files, by=caller.name, note=body.note)
    except RevisionRefused as refused:
        raise _refused(refused) from None
    warnings = [vars(finding) for finding in checked.warnings]
    return json_response(PushedRevision(revision=checked.bundle.revision, warnings=warnings).model_dump(mode="json"))


async def list_revisions(request: web.Request) -> web.Response:
    """One page of kept revisions, newest first."""
    tenant, limit = request[CALLER].tenant, read_limit(request)
    of_list = ("bundles",)
    before = read_cursor(request, of_list, read_timed_place)
    found = await request.app[SERVICES].revision_store.list_revisions(tenant, before=before, limit=limit + 1)
    items = [RevisionItem.model_validate(each) for each in found[:limit]]
    following = None
    if len(found) > limit:
        last = found[limit - 1]
        following = write_cursor(request, of_list, [last.pushed_at.isoformat(), last.revision])
    return json_response(RevisionPage(items=items, next_cursor=following).model_dump(mode="json"))


async def get_revision(request: web.Request) -> web.Response:
    """One kept revision with its files; ``active`` names the one in force."""
    kept = await _kept(request)
    files = {path: content.decode() for path, content in unpack_files(kept.files).items()}
    return json_response(RevisionWithFiles(**_fields(kept.about), files=files).model_dump(mode="json"))


async def activate(request: web.Request) -> web.Response:
    """Put a kept revision in force on every gateway, after its checks and tests passed once more."""
    body = await read_plain_request(request, Activate)
    return await _activate(request, await _kept(request), body.replaces)


async def roll_back(request: web.Request) -> web.Response:
    """Put the revision in force again that was so before the active one."""
    body = await read_plain_request(request, Activate)
    services, tenant = request.app[SERVICES], request[CALLER].tenant
    earlier = await services.revision_store.revision_before(tenant)
    kept = await services.revision_store.get(tenant, earlier) if earlier else None
    if kept is None:
        raise Problem(409, "NO_EARLIER_REVISION", "No other revision was in force before the active one.")
    return await _activate(request, kept, body.replaces)


async def list_controls(request: web.Request) -> web.Response:
    """What is out of service, and why."""
    found = await request.app[SERVICES].revision_store.list_restrictions(request[CALLER].tenant)
    return json_response(ControlList(items=[ControlItem.model_validate(each) for each in found]).model_dump(mode="json"))


async def post_control(request: web.Request) -> web.Response:
    """Take an agent, a tool or the whole tenant out of service, or put it back; at once, on every gateway."""
    body = await read_plain_request(request, Restrict)
    services, caller = request.app[SERVICES], request[CALLER]
    kind, is_restricted = _ACTIONS[body.action]
    if bool(body.name) == (kind == "tenant"):
        message = "leave it out: this is about the whole tenant" if body.name else f"name the {kind}"
        raise Problem(400, "ENVELOPE_INVALID", "See `errors`.", errors=[ProblemError(pointer="/name", message=message)])
    if is_restricted:
        in_force = services.revisions.current(caller.tenant)
        known = {} if in_force is None else {"agent": in_force.bundle.agents, "tool": in_force.bundle.tools, "tenant": {"": None}}
        if body.name not in known.get(kind, {}):
            # A misspelt name would leave the real one in service.
            raise Problem(404, "NOT_FOUND", f"The active bundle has no such {kind}.")
    change = services.revisions.restrict if is_restricted else services.revisions.release
    changed = await change(caller.tenant, kind, body.name, reason=body.reason, by=caller.name)
    if changed is None:
        raise Problem(404, "NOT_FOUND", "No bundle is active for this tenant.")
    return json_response(Restricted(changed=changed).model_dump())


async def _activate(request: web.Request, kept: Kept, replaces: str | None) -> web.Response:
    services, caller = request.app[SERVICES], request[CALLER]
    replaces = replaces or await services.revisions.newest(caller.tenant)
    try:
        checked = await services.revisions.check(caller.tenant, unpack_files(kept.files))
        in_force = await services.revisions.activate(caller.tenant, checked, by=caller.name, replaces=replaces)
    except RevisionRefused as refused:
        raise _refused(refused) from None
    except OtherRevisionActive as other:
        raise Problem(409, "OTHER_REVISION_ACTIVE", f"{other.revision} is in force; nothing changed.") from None
    except PolicyFault as fault:
        raise Problem(503, fault.reason_code.value, fault.detail, headers={"Retry-After": "5"}) from None
    replaced = replaces if replaces != in_force.bundle.revision else None
    return json_response(ActiveRevision(revision=in_force.bundle.revision, epoch=in_force.epoch, replaced=replaced).model_dump())


async def _kept(request: web.Request) -> Kept:
    services, tenant = request.app[SERVICES], request[CALLER].tenant
    revision = request.match_info["revision"]
    if revision == "active":
        revision = await services.revisions.newest(tenant) or ""
    kept = await services.revision_store.get(tenant, revision) if revision.isascii() and revision.isprintable() else None
    if kept is None:
        raise Problem(404, "NOT_FOUND", "This tenant has no such revision.")
    return kept


def _refused(refused: RevisionRefused) -> Problem:
    if refused.report is None:
        errors = [ProblemError(pointer="", message=problem) for problem in refused.problems]
        return Problem(422, "BUNDLE_CANNOT_RUN", "Tools of the bundle cannot run on this gateway; see `errors`.", errors=errors)
    findings = [finding for finding in refused.report.all_findings if finding.severity == "error"][:_MAX_FINDINGS]
    errors = [ProblemError(pointer=found.place, message=f"{found.code}: {found.message} {found.mend}") for found in findings]
    code, what = (
        ("BUNDLE_INVALID", "files are not in order") if not refused.report.is_valid else ("BUNDLE_TESTS_FAILED", "tests or cases failed")
    )
    return Problem(422, code, f"The bundle was not kept: its {what}; see `errors`.", errors=errors)


def _fields(about: KeptRevision) -> dict[str, Any]:
    return {name: getattr(about, name) for name in RevisionItem.model_fields}
