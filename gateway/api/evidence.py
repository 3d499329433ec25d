"""Auditors' routes about the log as a whole: its checkpoint, its key, and proofs of single records."""

import base64
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated
from uuid import UUID

from aiohttp import web
from pydantic import BaseModel, Field

from gateway.api.calls import read_id
from gateway.api.envelope import read_plain_request
from gateway.api.problems import Problem, json_response
from gateway.api.services import CALLER, SERVICES
from gateway.api.shapes import Body
from gateway.domain.ports import NotCovered

RETRY_S = 2
"""A record is covered by then, where signing works."""


class Proof(BaseModel):
    """A record and the way from its leaf to the root that `checkpoint` signs. ``verify.py`` takes this as a file."""

    decision_id: UUID
    position: int
    record: str
    """The exact bytes that were stored, as UTF-8 text. The leaf is SHA-256(0x00 || bytes)."""
    inclusion: list[str]
    """Audit path of RFC 6962, from the leaf up, base64."""
    checkpoint: str
    """C2SP signed note: origin, size, root, signature."""


class LogState(BaseModel):
    """How far the log is signed."""

    public_key: str
    checkpoint: str | None
    """C2SP signed note; null before the first."""
    size: int
    """Records that the checkpoint covers."""
    log_size: int
    published_at: datetime | None
    behind_s: float
    """For how long there have been records that it does not cover; more than 2 is a fault."""
    alarm: str | None
    """Why nothing is signed at the moment."""
    consistency: list[str] | None = None
    """With `extends`: proof of RFC 6962 from the earlier size to this one, base64."""


class Erase(Body):
    """Body of ``POST /v1/log/erasures``: whose data, and why."""

    subject: Annotated[str, Field(min_length=1, max_length=256)]
    reason: Annotated[str, Field(min_length=10, max_length=2000, pattern=r"^[^\x00-\x1f\x7f]*$", description="For the record.")]


class Erased(BaseModel):
    """What was destroyed: arguments, results and replay data that were sealed with these keys cannot be read again."""

    record_id: UUID | None
    """The record of the erasure; null where there was nothing to erase."""
    keys: int


async def post_erasure(request: web.Request) -> web.Response:
    """Destroy the data keys of a subject. The log stays as it is, and every proof valid."""
    services, caller = request.app[SERVICES], request[CALLER]
    body = await read_plain_request(request, Erase)
    record_id = services.new_id()
    keys = await services.erasure.erase(caller.tenant, body.subject, by=caller.name, reason=body.reason, record_id=record_id)
    return json_response(Erased(record_id=record_id if keys else None, keys=keys).model_dump(mode="json"))


async def get_proof(request: web.Request) -> web.Response:
    """The proof of one record under the last checkpoint."""
    found = await request.app[SERVICES].evidence.prove(request[CALLER].tenant, read_id(request.match_info["decision_id"]))
    if found is None:
        raise Problem(404, "NOT_FOUND", "There is no such record.")
    if isinstance(found, NotCovered):
        detail = "No checkpoint covers this record yet. Ask again in a moment."
        if found.alarm is not None:
            detail = "No checkpoint covers this record, and at the moment nothing is signed: see GET /v1/log/checkpoint."
        raise Problem(409, "NOT_COVERED_YET", detail, headers={"Retry-After": str(RETRY_S)})
    proof = Proof(
        decision_id=found.decision_id,
        position=found.position,
        record=found.record.decode(),
        inclusion=_texts(found.inclusion),
        checkpoint=found.note,
    )
    return json_response(proof.model_dump(mode="json"))


async def get_checkpoint(request: web.Request) -> web.Response:
    """The last checkpoint, and with `extends` the proof that it extends an earlier one."""
    services, tenant = request.app[SERVICES], request[CALLER].tenant
    old = _read_size(request)
    found = await services.evidence.checkpoint(tenant)
    state = LogState(
        public_key=services.log_key(tenant),
        checkpoint=found.note if found else None,
        size=found.size if found else 0,
        log_size=found.log_size if found else 0,
        published_at=found.published_at if found else None,
        behind_s=round(found.behind_s, 3) if found else 0.0,
        alarm=found.alarm if found else None,
    )
    if old is not None:
        if old > state.size:
            raise Problem(
                400, "PARAMETER_INVALID", f"`extends` is the size of an earlier checkpoint; the last one has {state.size} records."
            )
        state.consistency = _texts(await services.evidence.extends(tenant, old, state.size))
    return json_response(state.model_dump(mode="json"))


def _texts(hashes: Sequence[bytes]) -> list[str]:
    return [base64.b64encode(found).decode() for found in hashes]


def _read_size(request: web.Request) -> int | None:
    text = request.query.get("extends")
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) < 1:
        raise Problem(400, "PARAMETER_INVALID", "`extends` is a number of records, at least 1.")
    return int(text)
