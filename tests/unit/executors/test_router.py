from typing import Any

import pytest

from gateway.domain.decision import Refusal
from gateway.domain.outcome import Delivery, Phase
from gateway.domain.reasons import ReasonCode
from gateway.executors import Executors
from gateway.executors.client import ClientExecutor
from gateway.executors.http import HttpExecutor
from gateway.executors.python import PythonExecutor
from tests.fakes.invocations import declare_http_tool, declare_tool, deliver, invoke

MODULE = "tests.fakes.python_tools"


def build_router() -> Executors:
    return Executors({"http": HttpExecutor({}), "python": PythonExecutor([MODULE])})


async def test_each_kind_goes_to_its_executor():
    router = build_router()
    assert router.check(declare_http_tool(), "default") == "the operator has no connection named spy"
    delivery = await deliver(router, invoke(declare_tool({"python": f"{MODULE}:echo"})))
    assert delivery.phase is Phase.ANSWERED
    await router.close()


@pytest.mark.parametrize("execute", [{"mcp": {"server": "x"}}, {"python": f"{MODULE}:echo"}])
async def test_a_kind_without_an_executor_cannot_run(execute: dict[str, Any]):
    router = Executors({"http": HttpExecutor({})})
    reason = router.check(declare_tool(execute), "default")
    assert reason == f"this gateway cannot run tools of kind {next(iter(execute))}"
    assert await router.prepare(invoke(declare_tool(execute))) == Refusal(reason_code=ReasonCode.TOOL_DISABLED, detail=reason)


async def test_client_tools_are_handed_out_and_never_run_here():
    router = Executors({"client": ClientExecutor()})
    tool = declare_tool({"client": {"kind": "screen"}})
    assert router.check(tool, "default") is None
    assert await deliver(router, invoke(tool)) == Delivery(phase=Phase.HANDED_OUT)
    await router.close()
