"""The HTTP edge against clients that are wrong or hostile: who may reach it by which name, and problems for all that it sees."""

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from gateway.cli.protocol_log import log_protocol
from tests.acceptance.conftest import AUDITOR, Gateway

PARIS = {"city": "Paris, France"}
BODY = {"workflow": "trip_planning", "run_id": "r1", "on_behalf_of": "ada", "call": {"name": "search_hotels", "args": PARIS}}


@pytest.fixture(autouse=True)
def protocol_log() -> Iterator[None]:
    """As `gateway serve` logs."""
    server = logging.getLogger("aiohttp.server")
    before = server.handlers, server.propagate, server.level
    log_protocol()
    yield
    server.handlers, server.propagate = before[:2]
    server.setLevel(before[2])


async def exchange(gateway: Gateway, *lines: str, body: bytes = b"") -> tuple[int, str, bytes]:
    """Status, content type and body of the answer to a request as written here; the connection is closed afterwards."""
    address = urlsplit(gateway.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write("".join(f"{line}\r\n" for line in (*lines, "Connection: close", "")).encode("latin-1") + body)
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    content = await reader.read()
    writer.close()
    headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
    return int(head.split()[1]), headers.get("content-type", ""), content


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:99999", "[::1]:x", "127.0.0.1:abc", "localhost:80:80", "evil@127.0.0.1", "127.0.0.1@evil", "[::1", "::1", "[::1]]",
        "127.0.0.1:", "127.0.0.1\t.", "evil.example", "localhost.evil.example", "127.0.0.1/", "127.0.0.1, evil", "0x7f.1", "", "[localhost]",
        "127.0.0.1:8\xb2",
    ],
)  # fmt: skip
async def test_refuses_every_host_header_that_is_not_a_loopback_name_with_a_port_or_without(gateway: Gateway, host: str):
    status, kind, body = await exchange(gateway, "GET /healthz HTTP/1.1", f"Host: {host}")
    assert (status, kind, json.loads(body)["code"]) == (403, "application/problem+json", "HOST_REFUSED")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:1", "localhost:65535", "LOCALHOST", "[::1]", "[::1]:8080"])
async def test_answers_loopback_names_with_any_port(gateway: Gateway, host: str):
    assert (await exchange(gateway, "GET /healthz HTTP/1.1", f"Host: {host}"))[0] == 200


async def test_refuses_a_target_that_names_another_host_than_the_header(gateway: Gateway):
    status, _, body = await exchange(gateway, "GET http://evil.example/healthz HTTP/1.1", "Host: 127.0.0.1")
    assert (status, json.loads(body)["code"]) == (403, "HOST_REFUSED")


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip", "deflate", "nonsense"])
async def test_refuses_a_compressed_body_with_a_problem_whatever_the_encoding(gateway: Gateway, encoding: str):
    status, problem = await gateway.post("/v1/calls", b"\x00\xff", headers={"Content-Encoding": encoding})
    assert (status, problem["code"]) == (415, "UNSUPPORTED_ENCODING")


async def test_answers_an_expectation_that_it_does_not_know_with_a_problem(gateway: Gateway):
    status, kind, body = await exchange(gateway, "GET /healthz HTTP/1.1", "Host: 127.0.0.1", "Expect: a miracle")
    assert (status, kind, json.loads(body)["code"]) == (417, "application/problem+json", "EXPECTATION_FAILED")


async def test_asks_for_the_body_of_a_client_that_waits_to_be_asked(gateway: Gateway):
    content = json.dumps(BODY).encode()
    status, problem = await gateway.post("/v1/calls", content, headers={"Expect": "100-continue"})
    assert (status, problem["result"]["status"]) == (200, "ok")


async def test_answers_a_method_that_the_route_does_not_have_with_a_problem(gateway: Gateway):
    status, kind, body = await exchange(gateway, "PROPFIND /v1/calls HTTP/1.1", "Host: 127.0.0.1")
    assert (status, kind, json.loads(body)["code"]) == (405, "application/problem+json", "METHOD_NOT_ALLOWED")


async def test_tells_of_an_unreadable_request_in_one_line_without_a_traceback(gateway: Gateway):
    with capture_logs() as lines:
        for request in (b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", b"FOO / HTTP/1.1\r\n\r\n"):
            await _send_and_leave(gateway, request)
    assert [line["event"] for line in lines] == ["request_unreadable"] * 3
    assert all(line.keys() == {"event", "log_level", "remote", "problem"} and line["log_level"] == "info" for line in lines)


async def test_a_client_that_hangs_up_in_its_body_is_no_error(gateway: Gateway):
    head = f"POST /v1/calls HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {AUDITOR.replace('auditor', 'agent')}\r\n"
    head += "Content-Type: application/json\r\nContent-Length: 5000\r\n\r\n{"
    with capture_logs() as lines:
        await _send_and_leave(gateway, head.encode(), reads=False)
        await asyncio.sleep(0.3)
    assert lines == []


async def test_a_body_in_broken_chunks_is_the_clients_mistake(gateway: Gateway):
    with capture_logs() as lines:
        status, _, body = await exchange(
            gateway, "POST /v1/calls HTTP/1.1", "Host: 127.0.0.1", "Authorization: Bearer dev-agent-key",
            "Content-Type: application/json", "Transfer-Encoding: chunked", body=b'5\r\n{"a":\r\nzz\r\n',
        )  # fmt: skip
    assert (status, [line["event"] for line in lines]) == (400, ["request_unreadable"]), body


@pytest.mark.parametrize(
    ("path", "key", "allowed"),
    [
        ("/v1/decisions?efect=deny", AUDITOR, "allowed: q, after, before, facets, limit, cursor"),
        ("/v1/tools?workflow=trip_planning&subject=ada", "dev-agent-key", "allowed: workflow, on_behalf_of, format"),
        ("/v1/decisions/x?verbose=1", AUDITOR, "this route has none"),
    ],
)
async def test_names_the_parameters_of_a_route_to_who_misspells_one(gateway: Gateway, path: str, key: str, allowed: str):
    status, problem = await gateway.get(path, key=key)
    assert (status, problem["code"]) == (400, "PARAMETER_INVALID")
    assert allowed in problem["detail"]


async def test_takes_each_parameter_once(gateway: Gateway):
    status, problem = await gateway.get("/v1/decisions?q=effect:deny&q=tool:x", key=AUDITOR)
    assert (status, problem["detail"]) == (400, "Give the parameter `q` once.")


ENVELOPES: list[tuple[Any, str, str]] = [
    ([1], "", "must be an object"),
    (BODY | {"call": 3}, "/call", "must be an object"),
    (BODY | {"context": "x"}, "/context", "must be an object"),
    (BODY | {"run_id": 7}, "/run_id", "must be a string"),
    (BODY | {"run_id": "a b"}, "/run_id", r"must match the pattern ^[\x21-\x7e]+$"),
    (BODY | {"run_id": ""}, "/run_id", "must have at least 1 characters"),
    (BODY | {"call": {"id": 7, "name": "x"}}, "/call/id", "must be a string"),
    (BODY | {"call": {"id": "x" * 513, "name": "x"}}, "/call/id", "must have at most 512 characters"),
    (
        BODY | {"approval_id": "a"},
        "/approval_id",
        "unknown field; allowed: workflow, run_id, on_behalf_of, context, call; `approval_id` belongs inside `call`",
    ),
]


@pytest.mark.parametrize(("body", "pointer", "message"), ENVELOPES)
async def test_says_in_words_of_json_what_is_wrong_with_an_envelope(gateway: Gateway, body: Any, pointer: str, message: str):
    status, problem = await gateway.post("/v1/calls", body)
    assert (status, problem["code"], problem["errors"][0]) == (400, "ENVELOPE_INVALID", {"pointer": pointer, "message": message})


async def test_says_of_a_round_how_many_calls_it_may_have_and_where_keys_belong(gateway: Gateway):
    setting = {name: value for name, value in BODY.items() if name != "call"}
    _, problem = await gateway.post("/v1/rounds", setting | {"calls": []})
    assert problem["errors"] == [{"pointer": "/calls", "message": "must have at least 1 items"}]
    _, problem = await gateway.post("/v1/rounds", setting | {"calls": [{"name": "x"}], "idempotency_key": "x" * 20})
    assert problem["errors"][0]["message"].endswith("`idempotency_key` belongs inside `calls`")


@pytest.mark.parametrize("model_id", ["", "x" * 512, "a\0b", "\ud83d", "é\n"])
async def test_takes_any_text_for_the_models_id(gateway: Gateway, model_id: str):
    status, answer = await gateway.post("/v1/calls", BODY | {"call": {"id": model_id, "name": "search_hotels", "args": PARIS}})
    assert (status, answer["result"]["status"]) == (200, "ok")


async def test_takes_a_context_of_null_for_an_empty_one(gateway: Gateway):
    status, answer = await gateway.post("/v1/calls", BODY | {"context": None})
    assert (status, answer["result"]["status"]) == (200, "ok")


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"workflow": "no_such", "on_behalf_of": "ada"}, "WORKFLOW_UNKNOWN"),
        ({"workflow": "trip_alerts", "on_behalf_of": "ada"}, "WORKFLOW_NOT_ALLOWED"),
        ({"workflow": "trip_planning"}, "SUBJECT_REQUIRED"),
        ({"workflow": "trip_planning", "on_behalf_of": "mallory"}, "DELEGATION_INVALID"),
    ],
)
async def test_tells_developers_not_models_why_there_are_no_tools_to_list(gateway: Gateway, params: dict[str, str], code: str):
    status, problem = await gateway.get("/v1/tools", **params)
    assert (status, problem["code"]) == (403, code)
    assert "this turn" not in problem["detail"]
    assert "`" in problem["detail"] or "agent" in problem["detail"]


async def _send_and_leave(gateway: Gateway, request: bytes, *, reads: bool = True) -> None:
    address = urlsplit(gateway.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(request)
    await writer.drain()
    if reads:
        await reader.read()
    writer.close()
