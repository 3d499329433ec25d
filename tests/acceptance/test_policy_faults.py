"""Policy that cannot answer: refused with its own code, neighbours unaffected, the next call answered."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import Gateway, OpenGateway

PARIS = {"city": "Paris, France"}

# Passes every check, and misbehaves for one argument value each.
HOSTILE = """package policies.suite.hostile_rules

import rego.v1

numbers := data.hostile.numbers

deny contains "POLICY_DENIED" if {
    input.tool.name == "hostile"
    input.args.n == 1
    count([1 | some a in numbers; some b in numbers; some c in numbers; some d in numbers; a + b + c + d < 0]) > 0
}

deny contains "POLICY_DENIED" if {
    input.tool.name == "hostile"
    input.args.n == 2
    concat("", [data.hostile.text | some a in numbers; some b in numbers; a + b >= 0]) == ""
}

deny contains "POLICY_DENIED" if {
    input.tool.name == "hostile"
    input.args.n == 3
    chain_0
}

deny contains "POLICY_DENIED" if {
    input.tool.name == "hostile"
    input.args.n == 4
    two_values > 0
}

two_values := 1 if input.args.n == 4

two_values := 2 if input.tool.name == "hostile"

allow contains {"reason_code": "POLICY_ALLOWED", "obligations": data.hostile.duties} if {
    input.tool.name == "hostile"
    input.args.n == 5
}
"""


OpenHostile = Callable[..., Awaitable[Gateway]]


@pytest.fixture
def open_hostile(open_with: OpenGateway, copied_bundle: Path, add_tool: Callable[..., None]) -> OpenHostile:
    """Opens a gateway whose tool `hostile` runs into trouble by its argument."""

    async def open_one(chain_links: int = 1) -> Gateway:
        add_tool("hostile", "note")
        chain = "\n".join(f"chain_{n} if chain_{n + 1}" for n in range(chain_links)) + f"\nchain_{chain_links} if input.run.calls < 0\n"
        (copied_bundle / "rego" / "suite" / "hostile_rules.rego").write_text(HOSTILE + chain)
        folder = copied_bundle / "data" / "hostile"
        folder.mkdir(parents=True)
        data = {"numbers": list(range(60)), "text": "x" * 900_000, "duties": [{"type": "unheard_of"}]}
        (folder / "data.json").write_text(json.dumps(data))
        return await open_with(copied_bundle, python_modules=["tests.fakes.functions"])

    return open_one


@pytest.mark.parametrize(
    ("n", "links", "status", "code"),
    [
        pytest.param(1, 1, "temporary_error", "POLICY_TIMEOUT", id="runs for ever"),
        pytest.param(2, 1, "blocked", "POLICY_EVALUATION_ERROR", id="exhausts memory"),
        pytest.param(3, 3_500, "blocked", "POLICY_EVALUATION_ERROR", id="crashes its process"),
        pytest.param(4, 1, "blocked", "POLICY_EVALUATION_ERROR", id="errs"),
    ],
)
async def test_refuses_only_the_call_whose_policy(open_hostile: OpenHostile, n: int, links: int, status: str, code: str):
    gateway = await open_hostile(links)
    neighbours = [asyncio.create_task(gateway.call("search_hotels", PARIS)) for _ in range(10)]
    answer = await gateway.call("hostile", {"n": n})
    assert (answer["result"]["status"], answer["result"]["reason_code"]) == (status, code)
    record = (await gateway.decision(answer["decision_id"]))["record"]
    assert (record["effect"], record["stage"]) == ("deny", "decide")
    assert {neighbour["result"]["status"] for neighbour in await asyncio.gather(*neighbours)} == {"ok"}
    assert (await gateway.call("hostile", {"n": 0}))["result"]["status"] == "ok"


async def test_refuses_an_obligation_that_it_does_not_know(open_hostile: OpenHostile):
    answer = await (await open_hostile()).call("hostile", {"n": 5})
    assert (answer["result"]["status"], answer["result"]["reason_code"]) == ("blocked", "OBLIGATION_UNSUPPORTED")


async def test_answers_many_calls_around_dying_workers(open_hostile: OpenHostile):
    gateway = await open_hostile()

    async def mixed(index: int) -> Any:
        return await (gateway.call("hostile", {"n": 2}) if index % 10 == 0 else gateway.call("search_hotels", PARIS))

    answers = await asyncio.gather(*(mixed(index) for index in range(40)))
    statuses = [answer["result"]["status"] for answer in answers]
    assert [answers[index]["result"]["reason_code"] for index in range(0, 40, 10)] == ["POLICY_EVALUATION_ERROR"] * 4
    assert {status for index, status in enumerate(statuses) if index % 10} == {"ok"}
