"""What each real fault of a tool service looks like to the executor: which phase, and that nothing is sent twice."""

import asyncio
import gzip
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from gateway.domain.outcome import Delivery, Phase
from gateway.executors.connections import Connection
from gateway.executors.http import HttpExecutor
from tests.fakes.broken_server import (
    BrokenServer,
    Script,
    accept_then_close,
    answer_bytes,
    answer_once_then_close_on_the_next,
    find_refused_origin,
    read_then_close,
    read_then_hang,
    run_broken_server,
)
from tests.fakes.invocations import declare_http_tool, deliver, invoke
from tests.fakes.spy_service import run_spy_service

LIMIT = 64 * 1024


def executor_for(origin: str, *, internal: bool = True) -> HttpExecutor:
    connection = Connection(name="spy", origin=origin, internal=internal)
    return HttpExecutor({"spy": connection}, max_in_flight=1, slot_wait=0.01, max_response_bytes=LIMIT)


async def deliver_to(origin: str, method: str = "GET", timeout: str = "2s") -> Delivery:  # noqa: ASYNC109
    """One delivery; a second one proves that its only slot came back."""
    executor = executor_for(origin)
    try:
        delivery = await deliver(executor, invoke(declare_http_tool(method, timeout=timeout)))
        held = await executor.prepare(invoke(declare_http_tool()))
        assert hasattr(held, "send")
    finally:
        await executor.close()
    return delivery


async def deliver_broken(script: Callable[[BrokenServer], Script], **more: Any) -> tuple[Delivery, BrokenServer]:
    async with run_broken_server(script) as server:
        return await deliver_to(server.origin, **more), server


def told(delivery: Delivery) -> tuple[Any, ...]:
    assert delivery.duration_ms >= 0
    return delivery.phase, delivery.status, delivery.value, delivery.unusable, delivery.problem


async def test_a_refused_connection_sent_nothing():
    assert told(await deliver_to(find_refused_origin())) == (Phase.NOT_SENT, None, None, None, "connect")


async def test_a_name_that_does_not_resolve_sent_nothing():
    assert told(await deliver_to("http://no-such-host.invalid")) == (Phase.NOT_SENT, None, None, None, "dns")


async def test_a_failed_tls_handshake_sent_nothing():
    async with run_spy_service() as spy:
        delivery = await deliver_to(spy.origin.replace("http:", "https:"))
        assert told(delivery) == (Phase.NOT_SENT, None, None, None, "tls")
        assert spy.arrivals == []


async def test_a_tls_handshake_that_never_ends_sent_nothing():
    async def script(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with run_broken_server(lambda _: script) as server:
        delivery = await deliver_to(server.origin.replace("http:", "https:"), timeout="200ms")
    assert told(delivery) == (Phase.NOT_SENT, None, None, None, "timeout")


async def test_a_connection_that_is_closed_at_once_may_have_taken_the_request():
    delivery, _ = await deliver_broken(accept_then_close)
    assert told(delivery) == (Phase.LOST, None, None, None, "reset")


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_a_request_that_was_read_and_not_answered_is_lost_and_arrives_once(method: str):
    delivery, server = await deliver_broken(read_then_close, method=method)
    assert told(delivery) == (Phase.LOST, None, None, None, "reset")
    assert (server.connections, server.requests) == (1, 1)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_reused_connection_that_dies_does_not_lead_to_a_second_request(method: str):
    async with run_broken_server(answer_once_then_close_on_the_next) as server:
        executor = executor_for(server.origin)
        first = await deliver(executor, invoke(declare_http_tool(method)))
        second = await deliver(executor, invoke(declare_http_tool(method)))
        await executor.close()
    assert (first.phase, second.phase) == (Phase.ANSWERED, Phase.LOST)
    assert (server.connections, server.requests) == (1, 2)


async def test_a_request_that_hangs_is_lost_when_its_time_is_over():
    delivery, server = await deliver_broken(read_then_hang, timeout="200ms")
    assert told(delivery) == (Phase.LOST, None, None, None, "timeout")
    assert 190 <= delivery.duration_ms < 1000  # loops round their clock
    assert server.requests == 1


async def test_the_timeout_covers_a_slow_body():
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"
    delivery, _ = await deliver_broken(answer_bytes(answer, then_hang=True), timeout="200ms")
    assert (delivery.phase, delivery.problem) == (Phase.LOST, "timeout")


async def test_a_body_that_is_cut_short_is_lost():
    delivery, _ = await deliver_broken(answer_bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"))
    assert (delivery.phase, delivery.problem) == (Phase.LOST, "cut_short")


@pytest.mark.parametrize("answer", [b"\x00\x01\x02 nonsense\r\n\r\n", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nA\r\n\r\n"])
async def test_garbage_instead_of_http_is_lost(answer: bytes):
    delivery, _ = await deliver_broken(answer_bytes(answer))
    assert (delivery.phase, delivery.problem) == (Phase.LOST, "garbage")


async def test_header_lines_without_end_are_lost():
    delivery, _ = await deliver_broken(answer_bytes(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000))
    assert (delivery.phase, delivery.problem) == (Phase.LOST, "garbage")


async def test_a_failure_is_told_by_its_status_without_waiting_for_its_body():
    answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 100\r\n\r\n"
    delivery, _ = await deliver_broken(answer_bytes(answer, then_hang=True))
    assert told(delivery) == (Phase.ANSWERED, 404, None, None, None)
    assert delivery.duration_ms < 1000


async def answer_from_spy(**answer: Any) -> tuple[Delivery, int]:
    async with run_spy_service() as spy:
        for name, value in answer.items():
            setattr(spy, name, value)
        return await deliver_to(spy.origin), len(spy.arrivals)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_answer_and_is_not_followed(status: int):
    async with run_spy_service() as target:
        delivery, arrivals = await answer_from_spy(status=status, headers={"Location": f"{target.origin}/x"})
        assert told(delivery) == (Phase.ANSWERED, status, None, None, None)
        assert (arrivals, len(target.arrivals)) == (1, 0)


@pytest.mark.parametrize("status", [400, 404, 408, 429, 500, 503])
async def test_a_failure_is_an_answer_and_is_not_repeated(status: int):
    delivery, arrivals = await answer_from_spy(status=status, body=b'{"error": "FAKE text"}')
    assert told(delivery) == (Phase.ANSWERED, status, None, None, None)
    assert arrivals == 1


async def test_an_empty_answer_is_null():
    assert told((await answer_from_spy(status=204, body=b""))[0]) == (Phase.ANSWERED, 204, None, None, None)
    assert told((await answer_from_spy(body=b""))[0]) == (Phase.ANSWERED, 200, None, None, None)


async def test_values_that_the_ledger_cannot_store_are_mended():
    delivery, _ = await answer_from_spy(body=b'{"id": "m1", "trace": "x\\u0000y", "score": NaN, "s": "\\udc97"}')
    assert told(delivery) == (Phase.ANSWERED, 200, {"id": "m1", "trace": "x\ufffdy", "score": None, "s": "\ufffd"}, None, None)


async def test_a_success_that_is_not_json_is_unusable():
    delivery, _ = await answer_from_spy(body=b"<html>fine</html>")
    assert told(delivery) == (Phase.ANSWERED, 200, None, "invalid", None)


async def test_a_large_answer_is_unusable_and_its_limit_is_exact():
    assert told((await answer_from_spy(body=b'"' + b"a" * (LIMIT - 1) + b'"'))[0]) == (Phase.ANSWERED, 200, None, "too_large", None)
    assert (await answer_from_spy(body=b'"' + b"a" * (LIMIT - 2) + b'"'))[0].unusable is None


async def test_a_compressed_answer_is_read():
    delivery, _ = await answer_from_spy(body=gzip.compress(b'{"a": 1}'), headers={"Content-Encoding": "gzip"})
    assert told(delivery) == (Phase.ANSWERED, 200, {"a": 1}, None, None)


async def test_a_compression_bomb_is_too_large_and_takes_no_memory():
    bomb = gzip.compress(bytes(50 * 1024 * 1024))
    tracemalloc.start()
    try:
        delivery, _ = await answer_from_spy(body=bomb, headers={"Content-Encoding": "gzip"})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert told(delivery) == (Phase.ANSWERED, 200, None, "too_large", None)
    assert peak < 5 * 1024 * 1024


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", b"not gzip"),
        ("gzip", gzip.compress(b'{"a": 1}')[:-9]),
        ("gzip", gzip.compress(b'{"a": 1}') + b"more"),
        ("br", b"\x0b\x02\x80{}\x03"),
        ("zstd", b"(\xb5/\xfd"),
        ("gzip, gzip", gzip.compress(gzip.compress(b"{}"))),
    ],
)
async def test_an_encoding_that_we_did_not_offer_or_that_is_broken_is_an_unusable_answer(encoding: str, body: bytes):
    delivery, _ = await answer_from_spy(body=body, headers={"Content-Encoding": encoding})
    assert told(delivery) == (Phase.ANSWERED, 200, None, "invalid", None)


async def test_a_cancelled_send_gives_its_slot_back():
    async with run_broken_server(read_then_hang) as server:
        executor = executor_for(server.origin)
        sending = asyncio.create_task(deliver(executor, invoke(declare_http_tool())))
        await asyncio.sleep(0.1)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert hasattr(await executor.prepare(invoke(declare_http_tool())), "send")
        await executor.close()


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_process_that_was_frozen_while_it_connected_sends_nothing_any_more(method: str):
    times = iter([0.0, 0.0])  # the dispatch and the exchange begin; then hours pass
    async with run_spy_service() as spy:
        connection = Connection(name="spy", origin=spy.origin, internal=True)
        executor = HttpExecutor({"spy": connection}, clock=lambda: next(times, 9999.0))
        tool = declare_http_tool(method, risk="read" if method == "GET" else "write")
        assert told(await deliver(executor, invoke(tool))) == (Phase.NOT_SENT, None, None, None, "timeout")
        assert spy.arrivals == []
        await executor.close()
