"""What policies see is what is published."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson
import pytest

from gateway.domain.approvals import ApprovalFact
from gateway.domain.call import CallCount, Facts, PastCall
from gateway.domain.catalogue import AgentGrant, FieldError, SubjectGrant, Tool, ToolDeclaration, Workflow, WorkflowDeclaration
from gateway.domain.policy_input import CANARY, HISTORY_LIMIT, PolicyInput, policy_document, write_input_schema
from gateway.domain.principal import Principal

SCHEMA = Path(__file__).parents[3] / "docs" / "policy-input.schema.json"
NOW = datetime(2026, 3, 1, 10, 0, 0, 250_000, tzinfo=timezone(timedelta(hours=1)))


class Anything:
    def errors(self, value: object) -> tuple[FieldError, ...]:  # noqa: ARG002 -- everything fits
        return ()


TOOL = Tool(
    declaration=ToolDeclaration.model_validate(
        {
            "name": "book_hotel",
            "title": "Book",
            "description": "Book a room.",
            "risk": "irreversible",
            "replay": "keyed",
            "keyed": {"header": "Idempotency-Key", "retention": "24h"},
            "permissions": ["hotel:book"],
            "parameters": {"type": "object"},
            "execute": {"client": {"kind": "screen"}},
        }
    ),
    digest="sha256:tool",
    arguments=Anything(),
    output=None,
)
WORKFLOW = Workflow(
    name="trip_booking",
    declaration=WorkflowDeclaration.model_validate({"tools": ["book_hotel"], "max_risk": "irreversible"}),
    context=Anything(),
)
FULL = Facts(
    run_calls=3,
    run_failures=1,
    history=tuple(PastCall(tool="search_hotels", status="ok", reason_code="EXECUTION_SUCCEEDED", at=NOW) for _ in range(25)),
    same_call=CallCount(count=1, last_at=NOW, last_status="failed"),
    approval=ApprovalFact(
        approval_id="a1", state="granted", effect_hash=bytes(32), rule="other", expires_at=NOW, is_expired=False, summary="Book h1"
    ),
)


def build(facts: Facts, **changed: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "principal": Principal(agent="travel-assistant", subject="ada", permissions=frozenset({"hotel:book"}), attributes={"tier": "gold"}),
        "tool": TOOL,
        "args": {"hotelId": "h1", "totalUsd": 200},
        "costs": {"usd": 200_000_000},
        "workflow": WORKFLOW,
        "agent": AgentGrant(workflows=["trip_booking"], permissions=["hotel:read", "hotel:book"], act_for=["ada"]),
        "subject": SubjectGrant(permissions=["screen:open", "hotel:book"], attributes={"tier": "gold", "quiet_hours": [22, 7]}),
        "run_id": "run-42",
        "facts": facts,
        "approval_is_valid": True,
        "context": {"requestVersion": "1"},
        "now": NOW,
    }
    return orjson.loads(policy_document(**(given | changed)))


def test_holds_everything_that_is_known_about_the_call() -> None:
    at = "2026-03-01T09:00:00.250000Z"
    assert build(FULL) == {
        "agent": {"name": "travel-assistant", "permissions": ["hotel:book", "hotel:read"]},
        "subject": {
            "name": "ada",
            "permissions": ["hotel:book", "screen:open"],
            "attributes": {"tier": "gold", "quiet_hours": [22, 7]},
        },
        "tool": {"name": "book_hotel", "risk": "irreversible", "replay": "keyed", "permissions": ["hotel:book"]},
        "args": {"hotelId": "h1", "totalUsd": 200},
        "cost": {"usd": 200_000_000},
        "workflow": {"name": "trip_booking", "max_risk": "irreversible"},
        "run": {
            "id": "run-42",
            "calls": 3,
            "failures": 1,
            "history": [{"tool": "search_hotels", "status": "ok", "reason_code": "EXECUTION_SUCCEEDED", "at": at}] * HISTORY_LIMIT,
        },
        "recent": {
            "same_call": {"count": 1, "last_at": at, "last_status": "failed"},
            "same_tool": {"count": 0, "last_at": None, "last_status": None},
        },
        "approval": {"id": "a1", "state": "granted", "rule": "other", "valid": True, "expires_at": at},
        "context": {"requestVersion": "1"},
        "now": at,
    }


def test_whole_seconds_have_no_fraction() -> None:
    assert build(Facts(), now=datetime(2026, 3, 1, 10, tzinfo=UTC))["now"] == "2026-03-01T10:00:00Z"


@pytest.mark.parametrize("facts", [FULL, Facts()], ids=["full", "empty"])
def test_what_is_built_fits_the_model_and_the_published_schema(facts: Facts) -> None:
    document = build(facts)
    assert orjson.loads(PolicyInput.model_validate(document).model_dump_json()) == document
    jsonschema_rs.validate(orjson.loads(SCHEMA.read_bytes()), document)


def test_the_canary_fits_too() -> None:
    PolicyInput.model_validate_json(CANARY)


def test_the_published_schema_is_the_models() -> None:
    assert SCHEMA.read_text("utf-8") == write_input_schema()
