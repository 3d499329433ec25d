"""A person agrees to one exact call, or says no: over HTTP, on the real ledger, with the sample service behind it."""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from aiohttp import web

from tests.acceptance.conftest import AGENT, AUDITOR, Gateway, OpenGateway, Travel, new_key, running_gateway
from tests.fakes import functions
from tests.faults.harness import database_name, socket_folder
from tests.faults.proxy import PostgresProxy

DANA = "dev-approver-key"
BOOKING: dict[str, Any] = {"hotelId": "h1", "itineraryId": "it-1", "totalUsd": 200}
YES_AND_NO_ROUNDS = int(os.environ.get("YES_AND_NO_ROUNDS", "10"))
PEOPLE = {"eve": ["booking:approve"], "finn": ["booking:approve"], "gus": []}
"""Persons beside dana, with their permissions; `ada-herself` below is the traveller's own key."""


@pytest.fixture(autouse=True)
def forget_arrivals() -> None:
    functions.ARRIVALS.clear()


@pytest.fixture
def keys(tmp_path: Path) -> list[dict[str, Any]]:
    """Keys of more persons: each person's secret is ``key-of-<name>``."""
    made: list[dict[str, Any]] = []
    for person, tenant in (("eve", "default"), ("finn", "default"), ("gus", "default"), ("ada", "default"), ("dana", "other")):
        file = tmp_path / f"{person}-{tenant}.key"
        file.write_text(f"key-of-{person}" + ("" if tenant == "default" else f"-{tenant}"))
        made.append({"secret": {"file": str(file)}, "roles": ["approver"], "person": person, "tenant": tenant})
    file = tmp_path / "both.key"
    file.write_text("key-of-both")
    made.append({"secret": {"file": str(file)}, "roles": ["agent", "approver"], "agent": "travel-assistant", "person": "dana"})
    return made


@pytest.fixture
def confirming(copied_bundle: Path) -> Callable[..., Path]:
    """The travel bundle with other people and another way to confirm bookings."""

    def change(**confirmation: Any) -> Path:
        principals = yaml.safe_load((copied_bundle / "principals.yaml").read_text())
        principals["persons"] |= {name: {"permissions": permissions} for name, permissions in PEOPLE.items()}
        principals["subjects"]["ada"]["permissions"] += ["booking:approve"]
        (copied_bundle / "principals.yaml").write_text(yaml.safe_dump(principals))
        workflows = yaml.safe_load((copied_bundle / "workflows.yaml").read_text())
        workflows["trip_booking"]["confirmation"] |= confirmation
        (copied_bundle / "workflows.yaml").write_text(yaml.safe_dump(workflows))
        return copied_bundle

    return change


@pytest.fixture
async def staffed(open_with: OpenGateway, confirming: Callable[..., Path], keys: list[dict[str, Any]]) -> Callable[..., Awaitable[Gateway]]:
    """Opens a gateway with all these people."""

    async def open_one(**confirmation: Any) -> Gateway:
        return await open_with(confirming(**confirmation), keys=keys)

    return open_one


async def book(gateway: Gateway, *, run_id: str = "r1", **more: Any) -> Any:
    return await gateway.call("book_hotel", BOOKING | more.pop("args", {}), workflow="trip_booking", run_id=run_id, **more)


async def asked(gateway: Gateway, **more: Any) -> str:
    """The id of the approval that a booking opened."""
    answer = await book(gateway, **more)
    assert answer["result"]["status"] == "confirmation_required", answer
    return answer["result"]["approval_id"]


async def approve(gateway: Gateway, approval_id: str, *, key: str = DANA, **body: Any) -> tuple[int, Any]:
    return await gateway.post(f"/v1/approvals/{approval_id}/approve", body, key=key)


async def deny(gateway: Gateway, approval_id: str, *, key: str = DANA, **body: Any) -> tuple[int, Any]:
    return await gateway.post(f"/v1/approvals/{approval_id}/deny", body, key=key)


async def agreed(gateway: Gateway, **more: Any) -> str:
    """The id of an approval that dana has granted."""
    approval_id = await asked(gateway, **more)
    status, approval = await approve(gateway, approval_id)
    assert (status, approval["state"]) == (200, "granted"), approval
    return approval_id


async def seen(gateway: Gateway, approval_id: str, *, key: str = DANA) -> Any:
    status, approval = await gateway.get(f"/v1/approvals/{approval_id}", key=key)
    assert status == 200, approval
    return approval


def code(answer: Any) -> str:
    return answer["result"]["reason_code"]


def bookings(gateway: Gateway) -> int:
    return gateway.travel.arrivals.count("POST /bookings")


async def _until(gateway: Gateway, approval_id: str, state: str) -> None:
    async with asyncio.timeout(20):
        while (await seen(gateway, approval_id))["state"] != state:  # noqa: ASYNC110 - another process's state
            await asyncio.sleep(0.05)


async def _until_recorded(gateway: Gateway, approval_id: str) -> list[Any]:
    """The records of an approval once the last of them says that it expired; recovery writes it."""
    async with asyncio.timeout(20):
        while True:
            found = await records(gateway, approval_id)
            if found and found[-1][0] == "APPROVAL_EXPIRED":
                return found
            await asyncio.sleep(0.05)


async def records(gateway: Gateway, approval_id: str) -> list[Any]:
    """What became of an approval, in the decision log."""
    linked = (await gateway.decision(approval_id))["linked"]
    return [(record["reason_code"], record["outcome"]) for record in linked if record["kind"] == "approval"]


async def test_a_person_agrees_while_the_agent_waits_and_the_call_runs_once(gateway: Gateway):
    first = await book(gateway, id="fc-1")
    approval_id = first["result"]["approval_id"]
    waiting = asyncio.create_task(gateway.get(f"/v1/calls/{first['decision_id']}", wait="20"))
    status, page = await gateway.get("/v1/approvals", key=DANA)
    assert (status, [item["approval_id"] for item in page["items"]]) == (200, [approval_id])
    await asyncio.sleep(0.3)
    assert not waiting.done()
    status, approval = await approve(gateway, approval_id, comment="fine")
    assert (status, approval["state"]) == (200, "granted")

    _, now = await waiting
    assert (now["result"]["status"], code(now), now["result"]["retry_same_input"]) == ("confirmation_required", "APPROVAL_GRANTED", True)
    assert (now["result"]["approval_id"], now["call"]) == (approval_id, {"id": "fc-1", "name": "book_hotel"})
    assert code(await book(gateway, id="fc-2")) == "CONFIRMATION_REQUIRED"  # the yes is for who names it
    done = await book(gateway, id="fc-3", approval_id=approval_id)
    assert (done["result"]["status"], done["decision"]["reason_code"], done["decision"]["policy"]) == (
        "ok",
        "APPROVAL_GRANTED",
        "travel.booking",
    )
    again = await book(gateway, id="fc-4", approval_id=approval_id)
    assert (again["replayed"], again["decision_id"]) == (True, done["decision_id"])
    assert bookings(gateway) == 1
    after = await seen(gateway, approval_id)
    assert (after["state"], after["consumed_by"], after["may_answer"]) == ("consumed", done["decision_id"], False)

    found = await gateway.decision(done["decision_id"])
    links = [link for link in found["record"]["links"] if link["rel"] != "payload"]
    assert (found["record"]["approval_id"], links) == (approval_id, [{"rel": "approval", "decision_id": approval_id}])
    assert [record["kind"] for record in found["linked"]] == ["approval", "outcome", "replay"]
    ((reason, outcome),) = await records(gateway, approval_id)
    assert reason == "APPROVAL_GRANTED"
    assert outcome == {"answer": "approve", "by": "dana", "comment": "fine", "state": "granted", "rule": "other"}


async def test_shows_the_person_exactly_what_would_run_and_hides_nothing(
    open_with: OpenGateway, confirming: Callable[..., Path], keys: list[dict[str, Any]], edit: Callable[..., None]
):
    declared = {"type": "string", "maxLength": 2000}
    bundle = confirming()
    tool = yaml.safe_load((bundle / "tools" / "book_hotel.yaml").read_text())
    tool["parameters"]["properties"]["note"] = declared
    edit("tools/book_hotel.yaml", parameters=tool["parameters"])
    gateway = await open_with(bundle, keys=keys)
    note = "Please \u202egnihton yap\u202c" + "\n" * 40 + "x" * 460 + "\u200b"
    approval_id = await asked(gateway, args={"totalUsd": 200.0, "note": note, "cardToken": "tok-secret"})
    shown = await seen(gateway, approval_id)
    digest = shown["arguments"].pop("cardToken")
    assert shown["arguments"] == BOOKING | {"note": note}
    assert (digest.startswith("hmac-sha256:"), shown["redacted"]) == (True, ["/cardToken"])
    (mark,) = shown["marked"]
    assert (mark["pointer"], mark["kinds"], mark["length"]) == (
        "/arguments/note", ["control", "direction", "invisible", "long"], len(note)
    )  # fmt: skip
    assert mark["shown"] == note.replace("\u202e", "\\u202e").replace("\u202c", "\\u202c").replace("\n", "\\u000a").replace(
        "\u200b", "\\u200b"
    )
    assert shown["requester"] == {"agent": "travel-assistant", "on_behalf_of": "ada", "workflow": "trip_booking", "run_id": "r1"}
    assert shown["reason"]["code"] == "CONFIRMATION_REQUIRED"
    assert {name: shown[name] for name in ("title", "risk", "rule", "permission", "cost", "context", "state", "may_answer", "answers")} == {
        "title": "Book a hotel", "risk": "irreversible", "rule": "other", "permission": "booking:approve", "cost": {"usd": "200"},
        "context": {"requestVersion": "1"}, "state": "pending", "may_answer": True, "answers": [],
    }  # fmt: skip
    connection_text = str(await gateway.get("/v1/decisions", key=AUDITOR)) + str(shown)
    assert "tok-secret" not in connection_text


async def test_a_no_is_told_to_the_agent_with_what_the_person_would_rather_see(gateway: Gateway):
    first = await book(gateway)
    approval_id = first["result"]["approval_id"]
    status, problem = await deny(gateway, approval_id, comment="too dear", suggested_args=BOOKING | {"totalUsd": "150"})
    assert (status, problem["code"], problem["errors"][0]["pointer"]) == (400, "SUGGESTED_ARGS_INVALID", "/suggested_args/totalUsd")
    for body in ({}, {"comment": " "}, {"comment": "a\nb"}, {"comment": "no", "approver": "dana"}):
        assert (await deny(gateway, approval_id, **body))[0] == 400
    better = BOOKING | {"totalUsd": 150}
    status, approval = await deny(gateway, approval_id, comment="too dear", suggested_args=better)
    assert (status, approval["state"], approval["suggested_args"]) == (200, "denied", better)

    told = {
        "status": "blocked",
        "reason_code": "APPROVAL_DENIED",
        "approval_id": approval_id,
        "comment": "too dear",
        "suggested_args": better,
    }
    _, now = await gateway.get(f"/v1/calls/{first['decision_id']}", wait="5")
    refused = await book(gateway)
    named = await book(gateway, approval_id=approval_id)
    _, refused_now = await gateway.get(f"/v1/calls/{refused['decision_id']}")
    for answer in (now, refused, named, refused_now):
        assert {name: answer["result"].get(name) for name in told} == told
    elsewhere = await book(gateway, run_id="r2")
    assert (elsewhere["result"]["status"], elsewhere["result"]["approval_id"] != approval_id) == ("confirmation_required", True)
    corrected = await book(gateway, args=better)
    assert corrected["result"]["status"] == "confirmation_required"
    assert bookings(gateway) == 0
    ((reason, outcome),) = await records(gateway, approval_id)
    assert (reason, outcome["by"], outcome["comment"]) == ("APPROVAL_DENIED", "dana", "too dear")
    assert outcome["suggested_args_digest"].startswith("hmac-sha256:")


async def test_one_changed_argument_is_refused_and_the_grant_stays_for_the_original(gateway: Gateway):
    approval_id = await agreed(gateway)
    for args in ({"totalUsd": 201}, {"hotelId": "h2"}):
        assert code(await book(gateway, args=args, approval_id=approval_id)) == "APPROVAL_OUT_OF_SCOPE"
    other = await gateway.call("cancel_booking", {"bookingRef": "b-1"}, workflow="trip_booking", run_id="r1", approval_id=approval_id)
    assert code(other) == "APPROVAL_OUT_OF_SCOPE"
    assert code(await book(gateway, subject="cy", run_id="r2", approval_id=approval_id)) == "APPROVAL_OUT_OF_SCOPE"
    assert code(await book(gateway, context={"requestVersion": "2"}, approval_id=approval_id)) == "APPROVAL_OUT_OF_SCOPE"
    assert ((await seen(gateway, approval_id))["state"], bookings(gateway)) == ("granted", 0)
    assert (await book(gateway, id="another-id", approval_id=approval_id))["result"]["status"] == "ok"
    assert bookings(gateway) == 1


@pytest.fixture
def pay_bundle(confirming: Callable[..., Path], add_tool: Callable[..., None]) -> Callable[..., Path]:
    """A bundle with `pay`, a write that needs a person and whose calls are told apart by the agent's keys alone."""

    def make(execute: dict[str, Any] | None = None, **confirmation: Any) -> Path:
        bundle = confirming(**confirmation)
        ways = {"execute": execute} if execute else {}
        add_tool("pay", "note", risk="write", permissions=["hotel:book"], idempotency="caller", replay="never", timeout="3s", **ways)
        policy = 'package policies.suite.pay\n\nimport rego.v1\n\nconfirm contains "APPROVAL_REQUIRED" if input.tool.name == "pay"\n'
        (bundle / "rego" / "suite" / "pay.rego").write_text(policy)
        return bundle

    return make


async def pay(gateway: Gateway, *, run_id: str | None = None, idempotency_key: str | None = None, **more: Any) -> Any:
    run_id = run_id or f"run-{uuid4().hex[:8]}"
    setting = {"workflow": "trip_booking", "run_id": run_id, "idempotency_key": idempotency_key or new_key()}
    return await gateway.call("pay", {"n": 1}, **setting, **more)


async def pay_agreed(gateway: Gateway) -> str:
    approval_id = (await pay(gateway))["result"]["approval_id"]
    assert (await approve(gateway, approval_id))[0] == 200
    return approval_id


async def test_fifty_uses_of_one_yes_over_two_gateways_are_one_effect(
    database_url: str, pay_bundle: Callable[..., Path], keys: list[dict[str, Any]], travel: Travel
):
    settings = {"database_url": database_url, "keys": keys, "python_modules": ["tests.fakes.functions"]}
    bundle = pay_bundle()
    async with running_gateway(bundle, settings, travel) as one, running_gateway(bundle, settings, travel) as two:
        approval_id = await pay_agreed(one)
        answers = await asyncio.gather(*(pay(gateway, approval_id=approval_id) for gateway in [one, two] * 25))
    codes = sorted(map(code, answers))
    assert codes == ["APPROVAL_CONSUMED"] * 49 + ["EXECUTION_SUCCEEDED"]
    assert len(functions.ARRIVALS) == 1
    (winner,) = (answer for answer in answers if answer["result"]["status"] == "ok")
    assert functions.ARRIVALS[0]["decision_id"] == winner["decision_id"]


@asynccontextmanager
async def answering(port: int, arrivals: list[str]) -> AsyncGenerator[None]:
    """A service on `port` that says yes to everything."""

    async def answer(request: web.Request) -> web.Response:
        arrivals.append(request.path)
        return web.json_response({"paid": True})

    app = web.Application()
    app.router.add_post("/pay", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield
    await runner.cleanup()


async def test_a_call_that_never_left_may_use_its_yes_again(
    open_with: OpenGateway, pay_bundle: Callable[..., Path], keys: list[dict[str, Any]]
):
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    bundle = pay_bundle({"http": {"connection": "payments", "method": "POST", "path": "/pay", "body": {"json": "args"}}})
    connections = {"payments": {"origin": f"http://127.0.0.1:{port}", "internal": True}}
    gateway = await open_with(bundle, keys=keys, connections=connections)
    approval_id, key, arrivals = await pay_agreed(gateway), new_key(), list[str]()
    refused = await pay(gateway, run_id="r1", idempotency_key=key, approval_id=approval_id)
    assert (refused["result"]["status"], code(refused)) == ("temporary_error", "NO_EFFECT_PROVEN")
    assert ((await seen(gateway, approval_id))["state"], (await seen(gateway, approval_id))["consumed_by"]) == ("granted", None)
    (outcome,) = [record for record in (await gateway.decision(refused["decision_id"]))["linked"] if record["kind"] == "outcome"]
    assert outcome["approval_id"] == approval_id
    async with answering(port, arrivals):
        done = await pay(gateway, run_id="r1", idempotency_key=key, approval_id=approval_id)
        assert (done["result"]["status"], done["replayed"]) == ("ok", False)
        assert code(await pay(gateway, approval_id=approval_id)) == "APPROVAL_CONSUMED"
    assert arrivals == ["/pay"]


async def test_an_unknown_outcome_keeps_the_yes_until_a_person_says_that_nothing_happened(
    open_with: OpenGateway, pay_bundle: Callable[..., Path], keys: list[dict[str, Any]]
):
    bundle = pay_bundle({"python": "tests.fakes.functions:lose_track"})
    gateway = await open_with(bundle, keys=keys, python_modules=["tests.fakes.functions"])
    approval_id, key = await pay_agreed(gateway), new_key()
    doubt = await pay(gateway, run_id="r1", idempotency_key=key, approval_id=approval_id)
    assert doubt["result"]["status"] == "outcome_unknown"
    assert (await seen(gateway, approval_id))["consumed_by"] == doubt["decision_id"]
    assert code(await pay(gateway, approval_id=approval_id)) == "APPROVAL_CONSUMED"
    word = {"outcome": "did_not_happen", "evidence": "the bank has no such payment"}
    assert (await gateway.post(f"/v1/calls/{doubt['decision_id']}/resolve", word, key="dev-operator-key"))[0] == 200
    assert (await seen(gateway, approval_id))["state"] == "granted"
    again = await pay(gateway, run_id="r1", idempotency_key=key, approval_id=approval_id)
    assert (again["replayed"], again["decision_id"] != doubt["decision_id"], len(functions.ARRIVALS)) == (False, True, 2)


async def test_silence_is_a_no_and_an_unused_yes_ends(staffed: Callable[..., Awaitable[Gateway]]):
    gateway = await staffed(valid_for="1s")
    first = await book(gateway)
    silent = first["result"]["approval_id"]
    status, now = await gateway.get(f"/v1/calls/{first['decision_id']}", wait="20")
    assert (status, now["result"]["status"], code(now)) == (200, "blocked", "APPROVAL_EXPIRED")
    status, problem = await approve(gateway, silent)
    assert (status, problem["code"]) == (409, "APPROVAL_EXPIRED")
    assert code(await book(gateway, approval_id=silent)) == "APPROVAL_EXPIRED"
    unused = await agreed(gateway)
    assert unused != silent
    for approval_id in (silent, unused):
        await _until(gateway, approval_id, "expired")
        was = "pending" if approval_id == silent else "granted"
        assert (await _until_recorded(gateway, approval_id))[-1] == ("APPROVAL_EXPIRED", {"state": "expired", "was": was})
    assert code(await book(gateway, approval_id=unused)) == "APPROVAL_EXPIRED"
    assert bookings(gateway) == 0
    status, page = await gateway.get("/v1/approvals", key=DANA, state="expired")
    assert (status, [item["approval_id"] for item in page["items"]]) == (200, [silent, unused])


async def test_two_distinct_persons_must_agree_where_the_rule_says_two(staffed: Callable[..., Awaitable[Gateway]]):
    gateway = await staffed(rule="two")
    approval_id = await asked(gateway)
    status, approval = await approve(gateway, approval_id)
    assert (status, approval["state"], approval["people_needed"], approval["may_answer"]) == (200, "pending", 2, False)
    status, problem = await approve(gateway, approval_id)
    assert (status, problem["code"]) == (409, "ALREADY_ANSWERED")
    second = await book(gateway, approval_id=approval_id)
    assert (second["result"]["status"], code(second), second["result"]["approval_id"]) == (
        "confirmation_required", "SECOND_APPROVAL_REQUIRED", approval_id
    )  # fmt: skip
    status, approval = await approve(gateway, approval_id, key="key-of-eve")
    assert (status, approval["state"], [answer["person"] for answer in approval["answers"]]) == (200, "granted", ["dana", "eve"])
    assert (await book(gateway, approval_id=approval_id))["result"]["status"] == "ok"
    assert [reason for reason, _ in await records(gateway, approval_id)] == ["SECOND_APPROVAL_REQUIRED", "APPROVAL_GRANTED"]
    # One no is enough, whoever has said yes before.
    refused = await asked(gateway, args={"itineraryId": "it-2"})
    assert (await approve(gateway, refused))[0] == 200
    assert (await deny(gateway, refused, key="key-of-finn", comment="no"))[0] == 200
    assert code(await book(gateway, args={"itineraryId": "it-2"}, approval_id=refused)) == "APPROVAL_DENIED"


async def test_the_subject_itself_agrees_where_the_rule_says_self(staffed: Callable[..., Awaitable[Gateway]]):
    gateway = await staffed(rule="self")
    approval_id = await asked(gateway)
    status, problem = await approve(gateway, approval_id)
    assert (status, problem["code"]) == (403, "NOT_THE_SUBJECT")
    status, page = await gateway.get("/v1/approvals", key=DANA)
    assert (status, page["items"]) == (200, [])
    status, page = await gateway.get("/v1/approvals", key="key-of-ada")
    assert (status, [item["approval_id"] for item in page["items"]]) == (200, [approval_id])
    assert (await approve(gateway, approval_id, key="key-of-ada"))[1]["state"] == "granted"
    assert (await book(gateway, approval_id=approval_id))["result"]["status"] == "ok"


async def test_who_may_not_answer_changes_nothing_and_leaves_a_record(staffed: Callable[..., Awaitable[Gateway]]):
    gateway = await staffed()
    approval_id = await asked(gateway)
    refusals = [
        (AGENT, 403, "ROLE_REQUIRED"),
        ("key-of-both", 403, "AGENT_MAY_NOT_APPROVE"),
        ("key-of-gus", 403, "PERMISSION_MISSING"),
        ("key-of-ada", 403, "SELF_APPROVAL"),
        (AUDITOR, 403, "ROLE_REQUIRED"),
        ("key-of-dana-other", 404, "NOT_FOUND"),
        ("no-such-key", 401, "NOT_AUTHENTICATED"),
    ]
    for key, status, refused in refusals:
        for answer in (approve, deny):
            found, problem = await answer(gateway, approval_id, key=key, comment="mine")
            assert (found, problem["code"]) == (status, refused)
    assert (await gateway.get(f"/v1/approvals/{approval_id}", key="key-of-gus"))[1]["code"] == "PERMISSION_MISSING"
    assert (await gateway.get(f"/v1/approvals/{approval_id}", key="key-of-dana-other"))[0] == 404
    for key in ("key-of-gus", "key-of-dana-other"):
        assert (await gateway.get("/v1/approvals", key=key))[1].get("items", []) == []
    status, problem = await approve(gateway, approval_id, approver="dana")
    assert (status, problem["code"]) == (400, "ENVELOPE_INVALID")
    assert (await approve(gateway, "not-an-id"))[0] == 404
    attempts = [outcome for _, outcome in await records(gateway, approval_id)]
    assert [(attempt["by"], attempt["answer"], attempt["refused"]) for attempt in attempts] == [
        (by, answer, refused)
        for by, refused in (
            ("travel-assistant", "ROLE_REQUIRED"), ("travel-assistant", "AGENT_MAY_NOT_APPROVE"), ("gus", "PERMISSION_MISSING"),
            ("ada", "SELF_APPROVAL"), ("dev-auditor", "ROLE_REQUIRED"),
        )
        for answer in ("approve", "deny")
    ]  # fmt: skip
    assert (await seen(gateway, approval_id))["state"] == "pending"
    assert code(await book(gateway, approval_id=approval_id)) == "APPROVAL_PENDING"


async def test_of_a_yes_and_a_no_at_once_exactly_one_counts(staffed: Callable[..., Awaitable[Gateway]]):
    gateway = await staffed()
    for attempt in range(YES_AND_NO_ROUNDS):
        args, run_id = {"itineraryId": f"it-{attempt}", "totalUsd": 1}, f"r{attempt}"
        approval_id = await asked(gateway, args=args, run_id=run_id)
        yes, no = await asyncio.gather(approve(gateway, approval_id), deny(gateway, approval_id, key="key-of-eve", comment="no"))
        assert sorted([yes[0], no[0]]) == [200, 409]
        loser = no if yes[0] == 200 else yes
        assert (loser[1]["code"], loser[1]["detail"].startswith("dana" if yes[0] == 200 else "eve")) == ("APPROVAL_DECIDED", True)
        answer = await book(gateway, args=args, run_id=run_id, approval_id=approval_id)
        assert answer["result"]["status"] == ("ok" if yes[0] == 200 else "blocked")
        assert len(await records(gateway, approval_id)) == 1


async def test_a_restart_while_a_person_is_asked_changes_nothing(
    database_url: str, pay_bundle: Callable[..., Path], keys: list[dict[str, Any]], travel: Travel
):
    settings = {"database_url": database_url, "keys": keys, "python_modules": ["tests.fakes.functions"]}
    bundle = pay_bundle()
    async with running_gateway(bundle, settings, travel) as before:
        first = await pay(before, run_id="r1")
        approval_id = first["result"]["approval_id"]
        shown = await seen(before, approval_id)
    async with running_gateway(bundle, settings, travel) as after:
        assert (await seen(after, approval_id), shown["state"]) == (shown, "pending")
        assert code(await pay(after, run_id="r1", approval_id=approval_id)) == "APPROVAL_PENDING"
        status, approval = await approve(after, approval_id)
        assert (status, approval["state"]) == (200, "granted")
    async with running_gateway(bundle, settings, travel) as last:
        _, now = await last.get(f"/v1/calls/{first['decision_id']}")
        assert (code(now), now["result"]["approval_id"]) == ("APPROVAL_GRANTED", approval_id)
        answers = [await pay(last, run_id="r1", approval_id=approval_id) for _ in range(2)]
    assert [code(answer) for answer in answers] == ["EXECUTION_SUCCEEDED", "APPROVAL_CONSUMED"]
    assert len(functions.ARRIVALS) == 1


async def test_a_changed_tool_is_not_the_one_that_was_agreed_to(
    open_with: OpenGateway, copied_bundle: Path, edit: Callable[..., None], travel_bundle: Path
):
    before = await open_with(travel_bundle)
    granted, pending = await agreed(before), await asked(before, args={"itineraryId": "it-2"})
    edit("tools/book_hotel.yaml", description="Book a hotel room at once. Charges the traveller.")
    after = await open_with(copied_bundle)
    assert code(await book(after, approval_id=granted)) == "APPROVAL_OUT_OF_SCOPE"
    status, problem = await approve(after, pending)
    assert (status, problem["code"]) == (409, "TOOL_CHANGED")
    assert (await deny(after, pending, comment="it changed"))[0] == 200
    assert (await book(after))["result"]["approval_id"] != granted
    assert bookings(after) == 0


async def test_policy_and_budgets_are_asked_again_when_the_yes_is_used(
    open_with: OpenGateway, confirming: Callable[..., Path], keys: list[dict[str, Any]]
):
    bundle = confirming()
    (bundle / "budgets.yaml").write_text('- {name: spend, per: [subject], unit: usd, limit: "300.00"}\n')
    gateway = await open_with(bundle, keys=keys)
    first, second = await agreed(gateway), await agreed(gateway, args={"itineraryId": "it-2"})
    assert (await book(gateway, approval_id=first))["result"]["status"] == "ok"
    over = await book(gateway, args={"itineraryId": "it-2"}, approval_id=second)
    assert (over["decision"]["stage"], code(over)) == ("admit", "BUDGET_COST_EXHAUSTED")
    assert (await seen(gateway, second))["state"] == "granted"
    assert bookings(gateway) == 1


async def test_a_yes_comes_back_when_the_answer_to_its_commit_was_lost(
    database_url: str, pay_bundle: Callable[..., Path], keys: list[dict[str, Any]], travel: Travel
):
    with PostgresProxy(socket_folder(database_url)) as proxy:
        through = proxy.url(database_name(database_url), "gateway_app")
        settings = {"database_url": through, "keys": keys, "python_modules": ["tests.fakes.functions"]}
        async with running_gateway(pay_bundle(), settings, travel) as gateway:
            approval_id, key = await pay_agreed(gateway), new_key()
            proxy.arm("answer", during=lambda text: "state = 'consumed'" in text)
            setting = {"workflow": "trip_booking", "run_id": "r1", "on_behalf_of": "ada", "context": {"requestVersion": "1"}}
            call = {"name": "pay", "args": {"n": 1}, "idempotency_key": key, "approval_id": approval_id}
            status, problem = await gateway.post("/v1/calls", setting | {"call": call})
            assert (status, problem["code"]) == (503, "LEDGER_UNAVAILABLE")
            assert functions.ARRIVALS == []
            await _until(gateway, approval_id, "granted")
            done = await pay(gateway, run_id="r1", idempotency_key=key, approval_id=approval_id)
            assert (done["result"]["status"], len(functions.ARRIVALS)) == ("ok", 1)
