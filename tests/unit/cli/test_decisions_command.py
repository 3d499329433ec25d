import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner, Result

from gateway.cli.decisions import decisions
from gateway.cli.terminal import printable, to_json
from gateway.domain.record import FIELDS
from gateway.domain.search import SEARCH_FIELDS

RECORD: dict[str, Any] = dict.fromkeys(FIELDS) | {
    "decision_id": "0199-a", "position": 7, "kind": "decision", "at": "2026-03-01T10:00:00.000001Z", "tenant": "default",
    "agent": "travel-assistant", "subject": "ada", "run_id": "demo-run", "call_id": "fc-4", "workflow": "trip_booking", "tool": "book_hotel",
    "risk": "irreversible", "effect": "confirm", "status": "confirmation_required", "reason_code": "CONFIRMATION_REQUIRED", "stage": "decide",
    "policy": "travel.booking", "engine": "embedded", "argument_keys": ["hotelId", "totalUsd"], "arguments_digest": "hmac-sha256:00",
    "rules": [{"effect": "confirm", "policy": "travel.booking", "reason_code": "CONFIRMATION_REQUIRED"}],
    "stages": [{"name": "resolve", "outcome": "passed", "ms": 0.1}, {"name": "decide", "outcome": "refused", "ms": 1.5}],
    "obligations": [], "budgets": [], "links": [],
}  # fmt: skip
OUTCOME = RECORD | {
    "decision_id": "0199-b",
    "kind": "outcome",
    "tool": "a\x1b[2J",
    "effect": None,
    "status": "ok",
    "reason_code": "EXECUTION_SUCCEEDED",
}
FOUND = {"record": RECORD, "linked": [OUTCOME], "payloads": {"arguments": {"args": {"hotelId": "h1"}}}}


@asynccontextmanager
async def gateway(answer: Any, status: int = 200) -> AsyncGenerator[tuple[str, list[web.Request]]]:
    asked: list[web.Request] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(request)
        return web.json_response(answer, status=status)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    async with TestServer(app) as server:
        yield str(server.make_url("")), asked


async def run(*arguments: str, key: str | None = "dev-auditor-key") -> Result:
    environment = {"GATEWAY_API_KEY": key, "GATEWAY_URL": None}
    # In a thread: a command runs a loop of its own.
    return await asyncio.to_thread(CliRunner().invoke, decisions, list(arguments), env=environment)


async def test_get_shows_who_what_why_and_what_is_linked():
    async with gateway(FOUND) as (url, asked):
        done = await run("get", "0199-a", "--url", url)
    assert done.exit_code == 0
    assert done.stderr == ""
    assert [line.strip().split(None, 1) for line in done.stdout.splitlines()] == [
        ["decision", "0199-a (decision, position 7)"],
        ["at", "2026-03-01T10:00:00.000001Z"],
        ["who", "agent travel-assistant on behalf of ada in tenant default"],
        ["what", "book_hotel (irreversible) in trip_booking run demo-run call fc-4"],
        ["arguments", "hotelId, totalUsd hmac-sha256:00"],
        ["effect", "confirm answered confirmation_required"],
        ["why", "CONFIRMATION_REQUIRED at decide by policy travel.booking in engine embedded"],
        ["rules", "confirm CONFIRMATION_REQUIRED (travel.booking)"],
        ["stages", "resolve passed 0.1 ms · decide refused 1.5 ms"],
        ["linked", "outcome 0199-b: ok EXECUTION_SUCCEEDED, at 2026-03-01T10:00:00.000001Z"],
        ["recorded", 'arguments.args {"hotelId": "h1"}'],
    ]
    assert (asked[0].path, asked[0].headers["Authorization"]) == ("/v1/decisions/0199-a", "Bearer dev-auditor-key")


async def test_get_as_json_is_the_answer_itself():
    async with gateway(FOUND) as (url, _):
        done = await run("get", "../0199?x", "--url", url, "-o", "json")
    assert json.loads(done.stdout) == FOUND


async def test_ids_cannot_leave_their_path_segment():
    async with gateway(FOUND) as (url, asked):
        await run("get", "../keys?x=1", "--url", url)
    assert asked[0].raw_path == "/v1/decisions/..%2Fkeys%3Fx=1"


async def test_list_draws_a_line_per_record_and_tells_how_to_go_on():
    async with gateway({"items": [RECORD, OUTCOME], "next_cursor": "c-2"}) as (url, asked):
        done = await run(
            "list", "--url", url, "--q", "effect:deny", "--after", "2026-03-01T11:00:00+01:00", "--limit", "2", "--cursor", "c-1"
        )
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["at", "kind", "decision_id", "agent", "subject", "tool", "effect", "reason_code", "status"]
    assert lines[1].split()[2] == "0199-a"
    assert "a\\u001b[2J" in lines[2]
    assert done.stderr == "More: --cursor c-2\n"
    assert dict(asked[0].query) == {"q": "effect:deny", "after": "2026-03-01T10:00:00Z", "limit": "2", "cursor": "c-1"}


async def test_list_as_ndjson_is_one_record_a_line():
    async with gateway({"items": [RECORD, OUTCOME], "next_cursor": None}) as (url, _):
        done = await run("list", "--url", url, "-o", "ndjson")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [RECORD, OUTCOME]
    assert done.stderr == ""


async def test_an_empty_list_is_no_error():
    async with gateway({"items": [], "next_cursor": None}) as (url, _):
        done = await run("list", "--url", url, "-o", "json")
    assert (done.exit_code, json.loads(done.stdout)["items"], done.stderr) == (0, [], "No records.\n")


@pytest.mark.parametrize(("status", "code"), [(400, 2), (401, 9), (403, 9), (404, 8), (500, 1), (503, 10)])
async def test_refusals_have_exit_codes(status: int, code: int):
    async with gateway({"code": "SOME_CODE", "detail": "Say what.\x1b[2J"}, status) as (url, _):
        done = await run("get", "0199-a", "--url", url)
    assert (done.exit_code, done.stdout, done.stderr) == (code, "", "gateway: SOME_CODE: Say what.\\u001b[2J\n")


async def test_nothing_listening_is_exit_code_ten():
    done = await run("list", "--url", "http://127.0.0.1:9")
    assert done.exit_code == 10
    assert "no answer from http://127.0.0.1:9" in done.stderr
    assert "dev-auditor-key" not in done.output


async def test_no_key_and_unusable_times_are_usage_errors():
    assert (await run("list", key=None)).exit_code == 2
    assert (await run("list", "--after", "yesterday")).exit_code == 2
    assert "not a time with a zone" in (await run("list", "--after", "2026-03-01T10:00:00")).output


async def test_a_key_may_stand_in_a_file(tmp_path: Path):
    (tmp_path / "key").write_text("from-file\n")
    async with gateway({"items": [], "next_cursor": None}) as (url, asked):
        await run("list", "--url", url, "--key-file", str(tmp_path / "key"), key=None)
    assert asked[0].headers["Authorization"] == "Bearer from-file"


@pytest.mark.parametrize(
    ("arguments", "environment", "counts"),
    [
        (["--key", "told", "--key-file", "FILE"], "from-environment", "told"),
        (["--key-file", "FILE"], "from-environment", "from-file"),
        (["--key", "told"], "from-environment", "told"),
        ([], "from-environment", "from-environment"),
    ],
)
async def test_a_key_that_is_told_counts_before_a_file_and_a_file_before_the_environment(
    tmp_path: Path, arguments: list[str], environment: str, counts: str
):
    (tmp_path / "key").write_text("from-file\n")
    told = [str(tmp_path / "key") if argument == "FILE" else argument for argument in arguments]
    async with gateway({"items": [], "next_cursor": None}) as (url, asked):
        await run("list", "--url", url, *told, key=environment)
    assert asked[0].headers["Authorization"] == f"Bearer {counts}"


async def test_a_key_of_several_lines_is_a_usage_error(tmp_path: Path):
    (tmp_path / "key").write_text("one\ntwo\n")
    done = await run("list", "--url", "http://127.0.0.1:9", "--key-file", str(tmp_path / "key"), key=None)
    assert (done.exit_code, "not one line" in done.stderr) == (2, True)


@pytest.mark.parametrize("url", ["foo", "127.0.0.1:8080", "localhost:8080", "ftp://127.0.0.1", ""])
async def test_a_url_without_http_is_a_usage_error(url: str):
    done = await run("list", "--url", url)
    assert (done.exit_code, "is not a url such as http://127.0.0.1:8080" in done.stderr) == (2, True)


async def test_says_in_the_systems_words_why_nobody_answers():
    done = await run("list", "--url", "http://127.0.0.1:9")
    assert done.stderr == "gateway: no answer from http://127.0.0.1:9: Connection refused\n"
    done = await run("list", "--url", "http://nowhere.invalid:9")
    assert (done.exit_code, "ssl:" in done.stderr) == (10, False)


@pytest.mark.parametrize("decision_id", ["", ".", ".."])
async def test_what_cannot_be_an_id_is_not_looked_for(decision_id: str):
    async with gateway(FOUND) as (url, asked):
        done = await run("get", decision_id, "--url", url)
    assert (done.exit_code, done.stderr, asked) == (8, "gateway: NOT_FOUND: That is no decision id.\n", [])


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
async def test_times_beyond_what_can_be_calculated_with_are_usage_errors(time: str):
    assert (await run("list", "--after", time)).exit_code == 2


async def test_help_names_the_fields_of_a_search_and_how_terms_combine():
    text = " ".join((await run("list", "--help")).stdout.split())
    assert all(field in text for field in SEARCH_FIELDS)
    assert "All terms must hold; values of one field are alternatives" in text


def test_texts_of_others_cannot_move_the_cursor():
    assert printable("a\x1b[2J\u202eb\x9b") == "a\\u001b[2J\\u202eb\\u009b"
    assert to_json({"a": "\x1b\x9bé"}) == '{"a": "\\u001b\\u009bé"}'
    assert isinstance(decisions, click.Group)
