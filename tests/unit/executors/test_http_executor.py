import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.domain.call import Dispatch
from gateway.domain.decision import Refusal
from gateway.domain.outcome import Phase
from gateway.domain.reasons import ReasonCode
from gateway.executors.connections import Connection
from gateway.executors.http import HttpExecutor
from tests.fakes.invocations import DECISION_ID, DOWNSTREAM_KEY, declare_http_tool, deliver, invoke
from tests.fakes.spy_service import SpyService, run_spy_service

SECRET = "FAKE-secret-1"


def find_nothing() -> str:
    raise LookupError("no such variable")


KEYED: dict[str, Any] = {"risk": "write", "replay": "keyed", "keyed": {"header": "Idempotency-Key", "retention": "24h"}}


@pytest.fixture
async def spy() -> AsyncIterator[SpyService]:
    async with run_spy_service() as service:
        yield service


@pytest.fixture
async def executor(spy: SpyService) -> AsyncIterator[HttpExecutor]:
    connections = {
        "spy": Connection(name="spy", origin=spy.origin, internal=True),
        "guarded": Connection(name="guarded", origin=spy.origin, internal=True, credential=lambda: SECRET),
        "theirs": Connection(name="theirs", origin=spy.origin, internal=True, tenants=frozenset({"t-2"})),
        "public": Connection(name="public", origin=spy.origin, credential=lambda: SECRET),
        "locked": Connection(name="locked", origin=spy.origin, internal=True, credential=find_nothing),
        "split": Connection(name="split", origin=spy.origin, internal=True, credential=lambda: "a\r\nX: y"),
    }
    executor = HttpExecutor(connections, max_in_flight=1, slot_wait=0.05, user_agent="gateway/test")
    yield executor
    await executor.close()


async def test_prepare_sends_nothing(spy: SpyService, executor: HttpExecutor):
    dispatch = await executor.prepare(invoke(declare_http_tool()))
    assert isinstance(dispatch, Dispatch)
    dispatch.release()
    assert spy.arrivals == []


async def test_headers_are_built_afresh(spy: SpyService, executor: HttpExecutor):
    tool = declare_http_tool("POST", "/bookings", connection="guarded", body={"json": "args"}, **KEYED)
    await deliver(executor, invoke(tool, {"hotelId": "h1"}))
    assert {name.lower(): value for name, value in spy.last.headers.items()} == {
        "host": spy.origin.removeprefix("http://"),
        "accept": "application/json",
        "accept-encoding": "gzip",
        "content-type": "application/json",
        "content-length": "16",
        "user-agent": "gateway/test",
        "x-gateway-call-id": str(DECISION_ID),
        "idempotency-key": DOWNSTREAM_KEY,
        "authorization": f"Bearer {SECRET}",
    }
    assert (spy.last.method, spy.last.raw_path, spy.last.body) == ("POST", "/bookings", b'{"hotelId":"h1"}')


async def test_a_request_without_a_body_or_credential_has_no_headers_for_them(spy: SpyService, executor: HttpExecutor):
    await deliver(executor, invoke(declare_http_tool(risk="write", replay="never")))
    assert not {"Content-Type", "Authorization", "Idempotency-Key", "Cookie"} & set(spy.last.headers)


async def test_no_cookie_is_kept_between_calls(spy: SpyService, executor: HttpExecutor):
    spy.headers = {"Set-Cookie": "session=FAKE"}
    await deliver(executor, invoke(declare_http_tool()))
    await deliver(executor, invoke(declare_http_tool()))
    assert "Cookie" not in spy.last.headers


async def test_proxies_and_netrc_of_the_environment_are_ignored(spy: SpyService, executor: HttpExecutor, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    delivery = await deliver(executor, invoke(declare_http_tool()))
    assert (delivery.phase, len(spy.arrivals)) == (Phase.ANSWERED, 1)


@pytest.mark.parametrize(
    ("contact", "raw_path"),
    [("../x", "/contacts/..%2Fx"), ("a/b", "/contacts/a%2Fb"), ("%2e%2e", "/contacts/%252e%252e"), ("c?d", "/contacts/c%3Fd")],
)
async def test_the_service_sees_one_path_segment(spy: SpyService, executor: HttpExecutor, contact: str, raw_path: str):
    tool = declare_http_tool("DELETE", "/contacts/{args.contact}", risk="irreversible")
    await deliver(executor, invoke(tool, {"contact": contact}))
    assert spy.last.raw_path == raw_path


@pytest.mark.parametrize("contact", ["", ".", ".."])
async def test_a_path_value_that_is_no_segment_is_refused_before_anything_is_taken(spy: SpyService, executor: HttpExecutor, contact: str):
    tool = declare_http_tool("DELETE", "/contacts/{args.contact}", risk="irreversible")
    for _ in range(3):
        refusal = await executor.prepare(invoke(tool, {"contact": contact}))
        assert isinstance(refusal, Refusal)
        assert refusal.reason_code == ReasonCode.ARGUMENTS_INVALID
    assert spy.arrivals == []
    await deliver(executor, invoke(declare_http_tool()))


@pytest.mark.parametrize("connection", ["unknown", "theirs"])
async def test_a_connection_that_is_not_there_for_the_tenant_is_refused(executor: HttpExecutor, connection: str):
    tool = declare_http_tool(connection=connection)
    assert executor.check(tool, "default") is not None
    refusal = await executor.prepare(invoke(tool))
    assert isinstance(refusal, Refusal)
    assert refusal.reason_code == ReasonCode.TOOL_DISABLED


async def test_a_connection_serves_its_own_tenants(spy: SpyService, executor: HttpExecutor):
    tool = declare_http_tool(connection="theirs")
    assert executor.check(tool, "t-2") is None
    await deliver(executor, invoke(tool, tenant="t-2"))
    assert len(spy.arrivals) == 1


async def test_the_connection_of_a_probe_is_checked_too(executor: HttpExecutor):
    request = {"connection": "unknown", "method": "GET", "path": "/x/{downstream_key}"}
    probe = {"http": request, "found": {"status": [200]}, "not_found": {"status": [404]}, "settle": "1s"}
    assert executor.check(declare_http_tool(risk="write", replay="probe", probe=probe), "default") is not None


@pytest.mark.parametrize("connection", ["locked", "split"])
async def test_without_a_usable_credential_nothing_is_sent(spy: SpyService, executor: HttpExecutor, connection: str):
    refusal = await executor.prepare(invoke(declare_http_tool(connection=connection)))
    assert refusal == Refusal(reason_code=ReasonCode.EXECUTION_TEMPORARY, detail=f"no usable credential for the connection {connection}")
    assert spy.arrivals == []


async def test_the_credential_is_read_anew_for_each_call(spy: SpyService):
    tokens = iter(["first", "second"])
    connection = Connection(name="spy", origin=spy.origin, internal=True, credential=lambda: next(tokens))
    executor = HttpExecutor({"spy": connection})
    await deliver(executor, invoke(declare_http_tool()))
    await deliver(executor, invoke(declare_http_tool()))
    await executor.close()
    assert [arrival.headers["Authorization"] for arrival in spy.arrivals] == ["Bearer first", "Bearer second"]


async def test_the_credential_shows_in_no_repr_and_no_log(executor: HttpExecutor, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    dispatch = await executor.prepare(invoke(declare_http_tool(connection="guarded")))
    assert isinstance(dispatch, Dispatch)
    delivery = await dispatch.send()
    dispatch.release()
    connection = Connection(name="c", origin="https://example.com", credential=lambda: SECRET)
    shown = f"{dispatch!r} {dispatch!s} {executor!r} {delivery!r} {connection!r} {caplog.text}"
    assert SECRET not in shown
    assert "credential" not in repr(connection)


async def test_a_full_house_is_refused_after_a_short_wait_and_free_again_after_release(spy: SpyService, executor: HttpExecutor):
    held = await executor.prepare(invoke(declare_http_tool()))
    assert isinstance(held, Dispatch)
    assert await executor.prepare(invoke(declare_http_tool())) == Refusal(
        reason_code=ReasonCode.OVERLOADED, detail="no free slot for http tools"
    )
    held.release()
    await deliver(executor, invoke(declare_http_tool()))
    assert len(spy.arrivals) == 1


async def test_a_slot_cannot_be_given_back_twice(executor: HttpExecutor):
    dispatch = await executor.prepare(invoke(declare_http_tool()))
    assert isinstance(dispatch, Dispatch)
    dispatch.release()
    with pytest.raises(ValueError):
        dispatch.release()


@pytest.mark.parametrize(
    "origin",
    ["", "example.com", "ftp://example.com", "file:///x", "http://", "https://example.com/path", "https://user@example.com", "https://a/?q=1", "https://a/#f"],
)  # fmt: skip
def test_what_is_not_an_origin_is_no_connection(origin: str):
    with pytest.raises(ValueError):
        Connection(name="c", origin=origin)


async def test_a_public_connection_never_reaches_a_loopback_address(spy: SpyService, executor: HttpExecutor):
    delivery = await deliver(executor, invoke(declare_http_tool(connection="public")))
    assert (delivery.phase, delivery.problem) == (Phase.NOT_SENT, "address")
    assert spy.arrivals == []


@pytest.mark.parametrize("host", ["localhost", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "127.1", "0.0.0.0"])  # noqa: S104
async def test_no_spelling_of_the_loopback_address_helps(spy: SpyService, host: str):
    port = spy.origin.rpartition(":")[2]
    executor = HttpExecutor({"spy": Connection(name="spy", origin=f"http://{host}:{port}")})
    delivery = await deliver(executor, invoke(declare_http_tool()))
    await executor.close()
    assert delivery.phase is Phase.NOT_SENT
    assert spy.arrivals == []


async def open_circuit(executor: HttpExecutor, connection: str = "spy") -> None:
    for _ in range(20):
        await deliver(executor, invoke(declare_http_tool(connection=connection)))


async def test_a_service_that_fails_is_left_alone_and_others_are_not(spy: SpyService, executor: HttpExecutor):
    spy.status = 500
    await open_circuit(executor)
    refusal = await executor.prepare(invoke(declare_http_tool()))
    assert isinstance(refusal, Refusal)
    assert (refusal.reason_code, refusal.detail) == (ReasonCode.CIRCUIT_OPEN, "connection spy")
    assert 0 < refusal.retry_after_ms <= 5000
    assert len(spy.arrivals) == 20
    await deliver(executor, invoke(declare_http_tool(connection="guarded")))


async def test_an_open_circuit_lets_one_call_through_and_closes_on_its_success(spy: SpyService):
    times = [100.0]
    executor = HttpExecutor({"spy": Connection(name="spy", origin=spy.origin, internal=True)}, clock=lambda: times[0])
    spy.status = 500
    await open_circuit(executor)
    spy.status = 200
    times[0] += 5
    trial = await executor.prepare(invoke(declare_http_tool()))
    assert isinstance(trial, Dispatch)
    assert isinstance(await executor.prepare(invoke(declare_http_tool())), Refusal)
    await trial.send()
    trial.release()
    await deliver(executor, invoke(declare_http_tool()))
    assert len(spy.arrivals) == 22
    await executor.close()


async def test_a_full_house_keeps_no_trial_of_an_open_circuit(spy: SpyService):
    times = [100.0]
    connections = {name: Connection(name=name, origin=spy.origin, internal=True) for name in ("spy", "other")}
    executor = HttpExecutor(connections, clock=lambda: times[0], max_in_flight=1, slot_wait=0.01)
    spy.status = 500
    await open_circuit(executor)
    times[0] += 5
    held = await executor.prepare(invoke(declare_http_tool(connection="other")))
    assert isinstance(held, Dispatch)
    for _ in range(2):
        refusal = await executor.prepare(invoke(declare_http_tool()))
        assert isinstance(refusal, Refusal)
        assert refusal.reason_code == ReasonCode.OVERLOADED
    held.release()
    assert isinstance(await executor.prepare(invoke(declare_http_tool())), Dispatch)
    await executor.close()


@pytest.mark.parametrize(("status", "told"), [(429, 30_000), (503, 30_000), (200, None)])
async def test_tells_when_a_service_wants_to_be_called_again(spy: SpyService, executor: HttpExecutor, status: int, told: int | None):
    spy.status, spy.headers = status, {"Retry-After": "30"}
    assert (await deliver(executor, invoke(declare_http_tool()))).retry_after_ms == told
