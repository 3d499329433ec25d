"""Operators' routes: make keys, rotate them, end them. A key is shown once, in the answer that made it."""

from typing import Annotated, Self
from uuid import UUID

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from gateway.api.calls import read_id
from gateway.api.cursors import read_cursor, read_limit, write_cursor
from gateway.api.envelope import read_plain_request
from gateway.api.problems import Problem, json_response
from gateway.api.services import CALLER, SERVICES
from gateway.api.shapes import Body, Time, read_id_place
from gateway.domain.keys import KeyGrant
from gateway.domain.principal import Role

LONGEST_LIFE_S = 366 * 24 * 3600.0
ROTATION_S = 24 * 3600.0
"""How long a rotated key still opens, unless the request says otherwise."""

Name = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[\x21-\x7e]+$")]


class CreateKey(Body):
    """Body of ``POST /v1/keys``. An agent's key names its agent, an approver's its person, any other has a label."""

    roles: Annotated[list[Annotated[Role, Field(strict=False)]], Field(min_length=1, max_length=len(Role))]
    agent: Name | None = None
    person: Name | None = None
    label: Name | None = None
    expires_s: Annotated[float, Field(ge=60, le=LONGEST_LIFE_S)] | None = None
    """Seconds until it ends by itself; without it, when it is revoked."""

    def grant(self, tenant: str) -> KeyGrant:
        """What the key opens."""
        return KeyGrant(tenant=tenant, roles=frozenset(self.roles), agent=self.agent, person=self.person, label=self.label)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if objection := self.grant("").objection():
            raise PydanticCustomError("key_impossible", "{objection}", {"objection": objection})
        return self


class RotateKey(Body):
    """Body of ``POST /v1/keys/{key_id}/rotate``."""

    overlap_s: Annotated[float, Field(ge=0, le=30 * 24 * 3600.0)] = ROTATION_S
    """Seconds that the old key still opens."""


class RevokeKey(Body):
    """Body of ``POST /v1/keys/{key_id}/revoke``: empty."""


class NewKey(BaseModel):
    """A key that was made: this answer is the only place that ever holds it."""

    key_id: UUID
    key: str


class KeyItem(BaseModel):
    """A key as operators see it; `hint` is its beginning."""

    model_config = ConfigDict(from_attributes=True)

    key_id: UUID
    hint: str
    is_live: bool
    roles: list[str]
    agent: str | None
    person: str | None
    label: str | None
    created_by: str
    created_at: Time
    expires_at: Time | None
    revoked_by: str | None
    revoked_at: Time | None


class KeyPage(BaseModel):
    """One page of keys, oldest first."""

    items: list[KeyItem]
    next_cursor: str | None


class Revoked(BaseModel):
    """Whether the request ended it; it was revoked already where not."""

    changed: bool


async def create_key(request: web.Request) -> web.Response:
    """Make a key."""
    body = await read_plain_request(request, CreateKey)
    services, caller = request.app[SERVICES], request[CALLER]
    made = await services.keys.create(
        body.grant(caller.tenant), key_id=services.new_id(), record_id=services.new_id(), ttl_s=body.expires_s, by=caller.name
    )
    return _shown_once(NewKey(key_id=made.key_id, key=made.key))


async def list_keys(request: web.Request) -> web.Response:
    """One page of keys, oldest first; never the keys themselves."""
    tenant, limit = request[CALLER].tenant, read_limit(request)
    of_list = ("keys",)
    found = await request.app[SERVICES].keys.list_keys(tenant, after=read_cursor(request, of_list, read_id_place), limit=limit + 1)
    items = [KeyItem.model_validate(key) for key in found[:limit]]
    following = write_cursor(request, of_list, str(items[-1].key_id)) if len(found) > limit else None
    return json_response(KeyPage(items=items, next_cursor=following).model_dump(mode="json"))


async def rotate_key(request: web.Request) -> web.Response:
    """Make a successor of a key; both open for a while."""
    body = await read_plain_request(request, RotateKey)
    services, caller = request.app[SERVICES], request[CALLER]
    key_id = _read_key_id(request)
    made = await services.keys.rotate(
        caller.tenant, key_id, new_id=services.new_id(), record_id=services.new_id(), overlap_s=body.overlap_s, by=caller.name
    )
    match made:
        case "UNKNOWN":
            raise _unknown()
        case "NOT_LIVE":
            raise Problem(409, "KEY_NOT_LIVE", "The key is revoked or expired; make a new one.")
        case str():
            raise Problem(409, "KEY_ROTATED", "The key has a successor already; revoke one of the two first.")
        case _:
            return _shown_once(NewKey(key_id=made.key_id, key=made.key))


async def revoke_key(request: web.Request) -> web.Response:
    """End a key: every gateway refuses it within a second."""
    await read_plain_request(request, RevokeKey)
    services, caller = request.app[SERVICES], request[CALLER]
    changed = await services.keys.revoke(caller.tenant, _read_key_id(request), record_id=services.new_id(), by=caller.name)
    if changed is None:
        raise _unknown()
    return json_response(Revoked(changed=changed).model_dump())


def _shown_once(new: NewKey) -> web.Response:
    response = json_response(new.model_dump(mode="json"))
    response.headers["Cache-Control"] = "no-store"
    return response


def _read_key_id(request: web.Request) -> UUID:
    try:
        return read_id(request.match_info["key_id"])
    except Problem:
        raise _unknown() from None


def _unknown() -> Problem:
    return Problem(404, "NOT_FOUND", "This tenant has no such key.")
