"""``gateway calls`` and ``gateway budgets`` against the real routes over a ledger in memory."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from uuid_utils.compat import uuid7

from gateway.cli import gateway
from gateway.cli.budgets import _use_text  # pyright: ignore[reportPrivateUsage]
from gateway.domain.outcome import CallState
from gateway.domain.ports import BudgetRow
from tests.fakes.operations import FakeOperations, a_call, serve_operations

EVIDENCE = "booking B-17 stands in the hotel's extranet"


class Desk:
    """An operator's desk: commands that speak to a gateway over `fake`."""

    def __init__(self, fake: FakeOperations, url: str) -> None:
        self.fake = fake
        self.url = url

    async def run(self, *arguments: str, key: str = "olga") -> Result:
        environment = {"GATEWAY_API_KEY": key, "GATEWAY_URL": self.url}
        # In a thread: a command runs a loop of its own.
        return await asyncio.to_thread(CliRunner().invoke, gateway, list(arguments), env=environment)


@pytest.fixture
async def desk() -> AsyncGenerator[Desk]:
    fake = FakeOperations(calls={"default": [a_call(), a_call(tool="a\x1b[2J"), a_call(state=CallState.FAILED, status="failed")]})
    fake.budgets["default"] = [
        BudgetRow(
            name="run_calls",
            scope='[["travel-assistant","run-1"]]',
            period="total",
            unit="calls",
            limit=40_000_000,
            reserved=1_000_000,
            spent=30_000_000,
        ),
        BudgetRow(
            name="spend", scope='["ada","eu"]', period="day 2026-03-01 UTC", unit="usd", limit=500_000_000, reserved=0, spent=510_500_000
        ),
        BudgetRow(name="old", scope="[]", period="total", unit="usd", limit=None, reserved=0, spent=1),
    ]
    async with serve_operations(fake) as client:
        yield Desk(fake, str(client.make_url("")))


async def test_lists_calls_in_doubt_as_a_table_that_texts_of_others_cannot_disturb(desk: Desk):
    done = await desk.run("calls", "list")
    first, second, _ = desk.fake.calls["default"]
    lines = [line.split() for line in done.stdout.splitlines()]
    assert (done.exit_code, done.stderr) == (0, "")
    assert lines[0] == ["admitted_at", "decision_id", "tool", "replay", "agent", "subject", "run_id", "attempts", "status", "reason_code"]
    assert lines[1] == ["2026-03-01T12:00:00Z", str(first.decision_id), "book_hotel", "never", "travel-assistant", "ada", "run-1", "1"]
    assert lines[2][1:3] == [str(second.decision_id), "a\\u001b[2J"]
    assert len(lines) == 3


async def test_lists_calls_of_another_state_as_json_and_one_a_line(desk: Desk):
    page = json.loads((await desk.run("calls", "list", "--state", "failed", "-o", "json")).stdout)
    lines = (await desk.run("calls", "list", "--state", "failed", "-o", "ndjson")).stdout.splitlines()
    assert [item["status"] for item in page["items"]] == ["failed"]
    assert [json.loads(line) for line in lines] == page["items"]


async def test_tells_how_to_go_on_and_goes_on(desk: Desk):
    first = await desk.run("calls", "list", "--limit", "1", "-o", "ndjson")
    assert first.stderr.startswith("More: --cursor ")
    second = await desk.run("calls", "list", "--limit", "1", "-o", "ndjson", "--cursor", first.stderr.split()[-1])
    ids = [json.loads(page.stdout)["decision_id"] for page in (first, second)]
    assert ids == [str(call.decision_id) for call in desk.fake.calls["default"][:2]]
    assert second.stderr == ""


async def test_nothing_to_list_is_said_on_stderr_and_no_error(desk: Desk):
    done = await desk.run("calls", "list", "--state", "running")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "No calls are running.\n")
    none = await desk.run("budgets", "list", key="otto")
    assert (none.exit_code, none.stdout, none.stderr) == (0, "", "No budget was drawn on yet.\n")


@pytest.mark.parametrize(("outcome", "state"), [("happened", "succeeded"), ("did-not-happen", "open")])
async def test_resolves_a_call_with_evidence(desk: Desk, outcome: str, state: str):
    decision_id = str(desk.fake.calls["default"][0].decision_id)
    done = await desk.run("calls", "resolve", decision_id, "--outcome", outcome, "--evidence", EVIDENCE)
    assert (done.exit_code, done.stdout, done.stderr) == (0, f"{decision_id} {state}\n", "")
    assert [(record["evidence"], record["by"]) for record in desk.fake.records.values()] == [(EVIDENCE, "olga")]
    again = await desk.run("calls", "resolve", decision_id, "--outcome", outcome, "--evidence", EVIDENCE)
    assert (again.exit_code, again.stdout) == (1, "")
    assert again.stderr == f"gateway: NOT_IN_DOUBT: The call is not in doubt; it is {state}.\n"


async def test_resolves_as_json(desk: Desk):
    decision_id = str(desk.fake.calls["default"][0].decision_id)
    done = await desk.run("calls", "resolve", decision_id, "--outcome", "happened", "--evidence", EVIDENCE, "-o", "json")
    assert json.loads(done.stdout) == {"decision_id": decision_id, "state": "succeeded"}


@pytest.mark.parametrize(
    ("arguments", "key", "code"),
    [
        (("calls", "resolve", str(uuid7()), "--outcome", "happened", "--evidence", EVIDENCE), "olga", 8),
        (("calls", "resolve", "../budgets", "--outcome", "happened", "--evidence", EVIDENCE), "olga", 8),
        (("calls", "resolve", str(uuid7()), "--outcome", "happened", "--evidence", "short"), "olga", 2),
        (("calls", "resolve", str(uuid7()), "--outcome", "perhaps", "--evidence", EVIDENCE), "olga", 2),
        (("calls", "resolve", str(uuid7()), "--outcome", "happened"), "olga", 2),
        (("calls", "list", "--state", "lost"), "olga", 2),
        (("calls", "list", "--limit", "201"), "olga", 2),
        (("calls", "list", "--cursor", "x"), "olga", 2),
        (("calls", "list"), "agnes", 9),
        (("budgets", "list"), "nobody", 9),
        (("budgets", "list", "--url", "http://127.0.0.1:9"), "olga", 10),
    ],
)
async def test_refusals_have_the_exit_codes_of_the_help(desk: Desk, arguments: tuple[str, ...], key: str, code: int):
    done = await desk.run(*arguments, key=key)
    assert (done.exit_code, done.stdout) == (code, "")
    assert desk.fake.records == {}


async def test_a_lost_ledger_is_unreachable(desk: Desk):
    desk.fake.is_lost = True
    assert (await desk.run("calls", "list")).exit_code == 10


async def test_lists_budgets_with_the_share_that_is_used(desk: Desk):
    done = await desk.run("budgets", "list")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert (done.exit_code, done.stderr) == (0, "")
    assert lines == [
        ["name", "scope", "period", "unit", "limit", "reserved", "spent", "available", "used"],
        ["run_calls", "travel-assistant/run-1", "total", "calls", "40", "1", "30", "9", "77", "%"],
        ["spend", "ada,", "eu", "day", "2026-03-01", "UTC", "usd", "500", "0", "510.5", "0", "102", "%"],
        ["old", "everything", "total", "usd", "0", "0.000001"],
    ]


async def test_lists_budgets_as_json_in_exact_texts(desk: Desk):
    page = json.loads((await desk.run("budgets", "list", "-o", "json", "--limit", "1")).stdout)
    assert page["items"] == [
        {
            "name": "run_calls",
            "scope": [["travel-assistant", "run-1"]],
            "period": "total",
            "unit": "calls",
            "limit": "40",
            "reserved": "1",
            "spent": "30",
            "available": "9",
        }
    ]


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"limit": "40", "reserved": "1", "spent": "30"}, "███████░░░  77 %"),
        ({"limit": "500", "reserved": "0", "spent": "499.999999"}, "█████████░  99 %"),
        ({"limit": "500", "reserved": "0", "spent": "510.5"}, "██████████ 102 %"),
        ({"limit": "0", "reserved": "0", "spent": "0"}, "██████████ 100 %"),
        ({"limit": None, "reserved": "0", "spent": "1"}, ""),
    ],
)
def test_a_terminal_gets_a_bar(item: dict[str, Any], text: str):
    assert _use_text(item, is_drawn=True) == text


@pytest.mark.parametrize("command", [("calls", "list"), ("calls", "resolve"), ("budgets", "list")])
def test_each_help_has_an_example(command: tuple[str, str]):
    told = CliRunner().invoke(gateway, [*command, "--help"]).stdout
    assert f"Example:\n    gateway {' '.join(command)} " in told
