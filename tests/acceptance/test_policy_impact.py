"""Impact and questions: `gateway policy` as an author uses it on a running gateway."""

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import ALERTS, AUDITOR, AUTHOR, Gateway

BOOKING: dict[str, Any] = {"workflow": "trip_booking", "context": {"requestVersion": "1"}}


@pytest.fixture
def candidate(travel_bundle: Path, tmp_path: Path) -> Path:
    """Alerts may go to anybody, and nobody searches in Paris any more; its own tests fail."""
    folder = Path(shutil.copytree(travel_bundle, tmp_path / "candidate"))
    notification = folder / "rego/travel/notification.rego"
    notification.write_text(notification.read_text().replace("\tnot is_to_its_reader\n", '\tinput.args.to == "nobody"\n'))
    (folder / "rego/travel/paris.rego").write_text(
        'package policies.travel.paris\n\ndeny contains "POLICY_DENIED" if {\n\tinput.tool.name == "search_hotels"\n\tinput.args.city == "Paris, France"\n}\n'
    )
    return folder


async def _impact(gateway: Gateway, *arguments: str | Path) -> tuple[int, str, str]:
    return await _policy(gateway, "impact", *arguments)


async def _policy(gateway: Gateway, command: str, *arguments: str | Path) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", "policy", command, "--url", gateway.url, "--key", AUTHOR, *map(str, arguments),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode or 0, out.decode(), err.decode()


async def _decide_some(gateway: Gateway) -> list[str]:
    answers = [
        await gateway.call("send_notification", {"to": "bob", "text": "x"}, key=ALERTS, workflow="trip_alerts", subject="cy",
                           run_id="alerts", idempotency_key="an-alert-of-the-suite"),
        await gateway.call("search_hotels", {"city": "Paris, France"}),
        await gateway.call("search_hotels", {"city": "Rome, Italy"}),
        await gateway.call("no_such_tool", {}),
        await gateway.call("book_hotel", {"hotelId": "h1", "itineraryId": "it-1", "totalUsd": 200, "cardToken": "tok"}, run_id="b", **BOOKING),
    ]  # fmt: skip
    return [answer["decision_id"] for answer in answers]


async def test_flipped_decisions_are_told_with_deny_to_allow_first(gateway: Gateway, candidate: Path):
    alert, paris, *_ = await _decide_some(gateway)
    code, out, err = await _impact(gateway, "--candidate", candidate, "--fail-on", "deny->allow>0", "-o", "json")
    assert (code, "deny->allow 1 > 0" in err) == (5, True), err
    found = json.loads(out)
    assert found["transitions"] == {"deny->allow": 1, "allow->deny": 1}
    assert list(found["transitions"]) == ["deny->allow", "allow->deny"]
    assert {name: found[name] for name in ("seen", "replayed", "unchanged", "before_policy", "not_replayable")} == {
        "seen": 5, "replayed": 3, "unchanged": 1, "before_policy": 1, "not_replayable": 1,
    }  # fmt: skip
    flips = [(flip["decision_id"], flip["transition"], flip["then"]["reason_code"], flip["now"]["reason_code"]) for flip in found["flips"]]
    assert flips == [
        (alert, "deny->allow", "X_NOT_THE_READER", "POLICY_ALLOWED"),
        (paris, "allow->deny", "USER_REQUEST_MATCHED_TOOL_SCOPE", "POLICY_DENIED"),
    ]
    assert {each["code"] for each in found["failures"]} == {"rego-test-failed", "case-failed"}
    _, kept = await gateway.get("/v1/decisions", key=AUDITOR, q="kind:export")
    assert [item["outcome"]["format"] for item in kept["items"]] == ["impact"]
    code, out, _ = await _impact(gateway, "--candidate", candidate, "--fail-on", "allow->deny>1")
    assert code == 0
    assert "deny->allow  1\n    by tool: send_notification 1\n    by agent: trip-alerts 1" in out
    code, out, _ = await _impact(gateway, "--candidate", candidate, "-o", "html")
    assert (code, f"<td>{alert}</td>" in out) == (0, True)


async def test_the_revision_in_force_changes_nothing_and_what_does_not_compile_is_refused(
    gateway: Gateway, travel_bundle: Path, candidate: Path
):
    await _decide_some(gateway)
    _, out, _ = await _impact(gateway, "--candidate", travel_bundle, "-o", "json")
    found = json.loads(out)
    assert (found["transitions"], found["reason_only"], found["unchanged"], found["failures"]) == ({}, 0, 3, [])
    (candidate / "rego/travel/paris.rego").write_text("package policies.travel.paris\n\nallow if {\n")
    code, _, err = await _impact(gateway, "--candidate", candidate)
    assert (code, "rego-syntax" in err) == (3, True)


async def test_may_she_is_answered_with_the_stages(gateway: Gateway):
    who = ("--agent", "travel-assistant", "--subject", "bob", "--workflow", "trip_booking", "--context", '{"requestVersion": "1"}')
    code, out, err = await _policy(gateway, "eval", *who, "--tool", "search_hotels", "--args", '{"city": "Rome, Italy"}')
    assert (code, out.splitlines()[0]) == (0, "allow USER_REQUEST_MATCHED_TOOL_SCOPE at decide by policy travel.search"), err
    assert [line.split()[0] for line in out.splitlines()[1:]][-2:] == ["decide", "admit"]
    code, out, _ = await _policy(gateway, "eval", *who, "--tool", "book_hotel", "--args", '{"hotelId": "h1"}')
    assert (code, out.splitlines()[0]) == (0, "deny ARGUMENTS_INVALID at validate")
    assert (await _policy(gateway, "eval", *who, "--tool", "x", "--args", "[]"))[0] == 2
