"""Policy that cannot answer: refused with its own code, neighbours unaffected, the next call answered."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import Gateway, OpenGateway
from tests.acceptance.test_opa_decides import until_ready
from tests.opa import ENGINE_KEY, find_opa, free_port, run_opa

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

    async def open_one(chain_links: int = 1, **settings: Any) -> Gateway:
        add_tool("hostile", "note")
        chain = "\n".join(f"chain_{n} if chain_{n + 1}" for n in range(chain_links)) + f"\nchain_{chain_links} if input.run.calls < 0\n"
        (copied_bundle / "rego" / "suite" / "hostile_rules.rego").write_text(HOSTILE + chain)
        folder = copied_bundle / "data" / "hostile"
        folder.mkdir(parents=True)
        data = {"numbers": list(range(60)), "text": "x" * 900_000, "duties": [{"type": "unheard_of"}]}
        (folder / "data.json").write_text(json.dumps(data))
        return await open_with(copied_bundle, python_modules=["tests.fakes.functions"], **settings)

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


@pytest.mark.parametrize(
    ("args", "code"),
    [
        pytest.param(b'{"n": 0, "text": "\\ud800"}', "ARGUMENTS_INVALID", id="half a surrogate pair"),
        pytest.param(b'{"n": 0, "text": "\\u0000"}', "ARGUMENTS_INVALID", id="U+0000"),
        pytest.param(b'{"n": ' + b"[" * 200 + b"]" * 200 + b"}", "ARGUMENTS_INVALID", id="nested deeply"),
        pytest.param(b'{"n": 1e400}', "ARGUMENTS_INVALID", id="a huge exponent"),
        pytest.param(b'{"n": 9007199254740993}', "ARGUMENTS_INVALID", id="an integer that doubles cannot hold"),
        pytest.param(b'{"n": 0, "text": "' + b"a" * 200_000 + b'"}', "ARGUMENTS_INVALID", id="very long"),
    ],
)
async def test_what_would_end_an_engine_never_reaches_it(open_hostile: OpenHostile, args: bytes, code: str):
    gateway = await open_hostile()
    neighbours = [asyncio.create_task(gateway.call("search_hotels", PARIS)) for _ in range(5)]
    body = b'{"workflow":"trip_planning","run_id":"r","on_behalf_of":"ada","call":{"name":"hostile","args":' + args + b"}}"
    status, answer = await gateway.post("/v1/calls", body)
    assert (status, answer["result"]["reason_code"]) == (200, code)
    assert {neighbour["result"]["status"] for neighbour in await asyncio.gather(*neighbours)} == {"ok"}
    assert (await gateway.call("hostile", {"n": 0}))["result"]["status"] == "ok"


async def test_opa_too_refuses_only_the_call_whose_policy_errs_or_runs_for_ever(open_hostile: OpenHostile, tmp_path: Path):
    find_opa()
    secret = tmp_path / "engine.key"
    secret.write_text(ENGINE_KEY)
    port = free_port()
    keys = [{"secret": {"file": str(secret)}, "roles": ["engine"], "name": "opa"}]
    gateway = await open_hostile(opa_url=f"http://127.0.0.1:{port}", opa_deadline_s=3, keys=keys)
    async with run_opa(gateway.url, port=port):
        await until_ready(gateway)
        for n, code in ((1, "POLICY_TIMEOUT"), (4, "POLICY_EVALUATION_ERROR"), (5, "OBLIGATION_UNSUPPORTED")):
            neighbours = [asyncio.create_task(gateway.call("get_itinerary", {"itineraryId": f"it-{place}"})) for place in range(5)]
            assert (await gateway.call("hostile", {"n": n}))["result"]["reason_code"] == code
            assert {neighbour["result"]["status"] for neighbour in await asyncio.gather(*neighbours)} == {"ok"}
            assert (await gateway.call("hostile", {"n": 0}))["result"]["status"] == "ok"
