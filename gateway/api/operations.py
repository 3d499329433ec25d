"""Operators' routes: calls in a state, the end of a doubt, budgets."""

from typing import Annotated, Any, Literal, Self, TypeGuard
from uuid import UUID

import orjson
from aiohttp import web
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from gateway.api.calls import read_id
from gateway.api.cursors import read_cursor, read_limit, write_cursor
from gateway.api.envelope import read_plain_request
from gateway.api.problems import Problem, json_response
from gateway.api.services import CALLER, SERVICES
from gateway.api.shapes import Body, Time, read_id_place
from gateway.domain.catalogue import MICRO, Replay
from gateway.domain.decision import LedgerUnavailable
from gateway.domain.outcome import CallState
from gateway.domain.ports import BudgetRow

SHORTEST_EVIDENCE = 10
LONGEST_EVIDENCE = 2_000

Amount = Annotated[str, Field(pattern=r"^-?[0-9]+(\.[0-9]{1,6})?$")]
"""An exact decimal of the budget's unit."""


class CallItem(BaseModel):
    """An admitted call as operators see it: never arguments or results."""

    model_config = ConfigDict(from_attributes=True)

    decision_id: UUID
    state: CallState
    status: str | None
    reason_code: str | None
    agent: str
    subject: str
    run_id: str
    workflow: str
    tool: str
    replay: Replay
    admitted_at: Time
    lease_until: Time
    finished_at: Time | None
    attempts: int


class CallPage(BaseModel):
    """One page of calls, oldest first."""

    items: list[CallItem]
    next_cursor: str | None


class BudgetItem(BaseModel):
    """One budget in one scope and window. `limit` and `available` are null once the active bundle has no such budget."""

    name: str
    scope: list[Any]
    """One element for each part of the budget's `per`; a run is a pair of agent and run."""
    period: str
    unit: str
    limit: Amount | None
    reserved: Amount
    spent: Amount
    available: Amount | None

    @classmethod
    def of(cls, row: BudgetRow) -> Self:
        """The item of a row of the ledger."""
        # An actual cost above what was held can exceed a limit; then nothing is left, not less than nothing.
        available = None if row.limit is None else max(0, row.limit - row.reserved - row.spent)
        return cls(
            name=row.name,
            scope=orjson.loads(row.scope),
            period=row.period,
            unit=row.unit,
            limit=None if row.limit is None else write_amount(row.limit),
            reserved=write_amount(row.reserved),
            spent=write_amount(row.spent),
            available=None if available is None else write_amount(available),
        )


class BudgetPage(BaseModel):
    """One page of budgets, by name, scope and period."""

    items: list[BudgetItem]
    next_cursor: str | None


def _read_evidence(text: str) -> str:
    if not text.isprintable():
        raise PydanticCustomError("evidence_not_printable", "must be one line of printable characters")
    text = text.strip()
    if len(text) < SHORTEST_EVIDENCE:
        raise PydanticCustomError("evidence_too_short", "must say more than blanks")
    return text


class Resolve(Body):
    """Body of ``POST /v1/calls/{decision_id}/resolve``: what a person found out, and from where."""

    outcome: Literal["happened", "did_not_happen"]
    evidence: Annotated[
        str,
        Field(
            min_length=SHORTEST_EVIDENCE,
            max_length=LONGEST_EVIDENCE,
            description="One line of printable characters, not counting blanks around it. For the record only; no model ever sees it.",
        ),
        AfterValidator(_read_evidence),
    ]


class Resolution(BaseModel):
    """The call that was in doubt, and the state that it is in now."""

    decision_id: UUID
    state: CallState


async def list_calls(request: web.Request) -> web.Response:
    """One page of calls in a state, oldest first."""
    tenant, state, limit = request[CALLER].tenant, _read_state(request), read_limit(request)
    of_list = ("calls", tenant, state.value)
    # One more than asked for tells whether there is a next page.
    found = await request.app[SERVICES].operations.list_calls(
        tenant, state, after=read_cursor(request, of_list, read_id_place), limit=limit + 1
    )
    items = [CallItem.model_validate(call) for call in found[:limit]]
    following = write_cursor(request, of_list, str(items[-1].decision_id)) if len(found) > limit else None
    return json_response(CallPage(items=items, next_cursor=following).model_dump(mode="json"))


async def resolve_call(request: web.Request) -> web.Response:
    """End the doubt about a call by what a person found out."""
    services, caller = request.app[SERVICES], request[CALLER]
    decision_id = read_id(request.match_info["decision_id"])
    body = await read_plain_request(request, Resolve)
    record_id = services.new_id()
    try:
        state = await services.operations.resolve_call(
            caller.tenant,
            decision_id,
            happened=body.outcome == "happened",
            evidence=body.evidence,
            by=caller.name,
            record_id=record_id,
        )
        # The state alone does not tell who ended the doubt; our record exists only where it was this request.
        is_resolved = state is not None and await services.log.get(caller.tenant, record_id) is not None
    except LedgerUnavailable:
        detail = "It is not known whether this was written. Look at the call before you repeat it."
        raise Problem(503, "LEDGER_UNAVAILABLE", detail, headers={"Retry-After": "1"}) from None
    if state is None:
        raise Problem(404, "NOT_FOUND", "There is no such call.")
    if not is_resolved:
        raise Problem(409, "NOT_IN_DOUBT", f"The call is not in doubt; it is {state.value}.")
    return json_response(Resolution(decision_id=decision_id, state=state).model_dump(mode="json"))


async def list_budgets(request: web.Request) -> web.Response:
    """One page of budgets that were drawn on, by name, scope and period."""
    tenant, limit = request[CALLER].tenant, read_limit(request)
    of_list = ("budgets", tenant)
    found = await request.app[SERVICES].operations.list_budgets(
        tenant, after=read_cursor(request, of_list, _read_budget_key), limit=limit + 1
    )
    following = None
    if len(found) > limit:
        last = found[limit - 1]
        following = write_cursor(request, of_list, [last.name, last.scope, last.period])
    page = BudgetPage(items=[BudgetItem.of(row) for row in found[:limit]], next_cursor=following)
    return json_response(page.model_dump(mode="json"))


def write_amount(micro: int) -> str:
    """Micro-units as the shortest exact decimal of the unit: 12500000 is "12.5"."""
    whole, fraction = divmod(abs(micro), MICRO)
    digits = f"{whole}.{fraction:06d}".rstrip("0").rstrip(".")
    return f"-{digits}" if micro < 0 else digits


def _read_state(request: web.Request) -> CallState:
    try:
        return CallState(request.query.get("state", CallState.IN_DOUBT))
    except ValueError:
        raise Problem(400, "PARAMETER_INVALID", f"`state` is one of: {', '.join(CallState)}.") from None


def _read_budget_key(place: Any) -> tuple[str, str, str] | None:
    return (place[0], place[1], place[2]) if _are_texts(place) and len(place) == 3 else None


def _are_texts(place: Any) -> TypeGuard[list[str]]:
    # PostgreSQL refuses U+0000, and its refusal would look like a ledger that is lost.
    return isinstance(place, list) and all(isinstance(part, str) and "\0" not in part for part in place)  # pyright: ignore[reportUnknownVariableType]
