"""``gateway approvals`` against a running gateway: see, answer, watch."""

import asyncio
import json
from typing import Any

from click.testing import CliRunner, Result

from gateway.cli import gateway as command
from tests.acceptance.conftest import Gateway

BOOKING = {"hotelId": "h1", "itineraryId": "it-1\u202e\u2066", "totalUsd": 200, "cardToken": "tok-secret"}


async def run(gateway: Gateway, *arguments: str, key: str = "dev-approver-key") -> Result:
    """A command of dana's, in a thread: it runs a loop of its own."""
    environment = {"GATEWAY_API_KEY": key, "GATEWAY_URL": gateway.url}
    return await asyncio.to_thread(CliRunner().invoke, command, ["approvals", *arguments], env=environment)


async def ask(gateway: Gateway, **args: Any) -> str:
    answer = await gateway.call("book_hotel", BOOKING | args, workflow="trip_booking", run_id="r1")
    return answer["result"]["approval_id"]


async def test_a_person_sees_the_call_and_agrees(gateway: Gateway):
    nothing = await run(gateway, "list")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "No approvals are pending.\n")
    watching = asyncio.create_task(run(gateway, "watch", "--count", "1", "--every", "1", "-o", "ndjson"))
    approval_id = await ask(gateway)
    assert json.loads((await watching).stdout)["approval_id"] == approval_id

    listed = await run(gateway, "list", "-o", "ndjson")
    assert [json.loads(line)["approval_id"] for line in listed.stdout.splitlines()] == [approval_id]
    assert approval_id in (await run(gateway, "list")).stdout

    shown = await run(gateway, "show", approval_id)
    assert shown.exit_code == 0
    for part in (
        "Book a hotel: book_hotel (irreversible)",
        "on behalf of ada",
        "CONFIRMATION_REQUIRED by policy travel.booking",
        "200 usd",
    ):
        assert part in shown.stdout
    assert '"it-1\\u202e\\u2066"' in shown.stdout
    assert "/arguments/itineraryId has 6 characters: direction" in shown.stdout
    assert "/cardToken is redacted" in shown.stdout
    assert "tok-secret" not in shown.stdout
    assert "\u202e" not in shown.stdout + (await run(gateway, "show", approval_id, "-o", "json")).stdout

    agreed = await run(gateway, "approve", approval_id, "--comment", "fine", "-o", "json")
    assert (agreed.exit_code, json.loads(agreed.stdout)["state"]) == (0, "granted")
    twice = await run(gateway, "approve", approval_id)
    assert (twice.exit_code, twice.stderr.startswith("gateway: APPROVAL_DECIDED: dana has answered already")) == (1, True)


async def test_a_person_says_no_with_a_better_idea(gateway: Gateway):
    approval_id = await ask(gateway)
    better = json.dumps({"hotelId": "h2", "itineraryId": "it-1", "totalUsd": 150})
    for suggestion, exit_code in (("{", 2), ("@/no/such/file", 2), ('{"hotelId": 1}', 2)):
        assert (await run(gateway, "deny", approval_id, "--comment", "no", "--suggest", suggestion)).exit_code == exit_code
    denied = await run(gateway, "deny", approval_id, "--comment", "too dear", "--suggest", better)
    assert (denied.exit_code, "dana: deny too dear" in denied.stdout) == (0, True)
    answer = await gateway.call("book_hotel", BOOKING, workflow="trip_booking", run_id="r1")
    assert (answer["result"]["comment"], answer["result"]["suggested_args"]) == ("too dear", json.loads(better))


async def test_what_may_not_be_answered_has_its_exit_code(gateway: Gateway):
    approval_id = await ask(gateway)
    assert (await run(gateway, "approve", approval_id, key="dev-agent-key")).exit_code == 9
    assert (await run(gateway, "show", "0199a5f0-0000-7000-8000-000000000000")).exit_code == 8
    assert (await run(gateway, "deny", approval_id)).exit_code == 2
