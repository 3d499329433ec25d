"""What auditors take away and follow: exports, tails, timelines, counts and revealed payloads, over HTTP."""

import asyncio
import csv
import hashlib
import io
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from gateway.domain.record import FIELDS, leaf_hash
from tests.acceptance.conftest import AUDITOR, Gateway

PARIS = {"city": "Paris, France"}
HEADERS = {"Authorization": f"Bearer {AUDITOR}"}


async def export(gateway: Gateway, **params: str) -> tuple[aiohttp.ClientResponse, bytes]:
    async with gateway.session.get(gateway.url + "/v1/decisions/export", headers=HEADERS, params=params) as response:
        return response, await response.read()


async def test_an_export_is_the_stored_bytes_in_order_and_a_record_of_itself(gateway: Gateway):
    await gateway.call("search_hotels", PARIS)
    await gateway.call("delete_everything", {})
    response, body = await export(gateway, q="-kind:activation")
    lines = body.splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["position"] for record in records] == [1, 2, 3]
    export_id = response.headers["Gateway-Export-Id"]
    assert (response.headers["Gateway-Export-From"], response.headers["Gateway-Export-To"]) == ("0", "4")
    record = (await gateway.decision(export_id))["record"]
    assert (record["kind"], record["position"]) == ("export", 4)
    assert record["outcome"] == {
        "by": "dev-auditor", "query": "-kind:activation", "format": None, "after": None, "before": None, "from_position": 0, "to_position": 4,
    }  # fmt: skip
    _, page = await gateway.get("/v1/decisions", key=AUDITOR, q="kind:export activation")
    assert [item["decision_id"] for item in page["items"]] == [export_id]
    # The line is what the leaf is the hash of.
    _, table = await export(gateway, q="-kind:activation", format="csv", to_position="4")
    rows = list(csv.DictReader(io.StringIO(table.decode(), newline="")))
    assert [row["leaf"] for row in rows] == [leaf_hash(line).hex() for line in lines]
    _, rest = await export(gateway, q="-kind:activation", from_position="2", to_position="3")
    assert rest.splitlines() == lines[1:2]


async def test_csv_cells_are_no_formulas_and_no_line_ends(gateway: Gateway):
    names = ['=HYPERLINK("http://x")', "+1", "-1", "@SUM(A1)", "  =1", "\t=1", "a\r\nb", "＝1"]  # noqa: RUF001 - a full-width sign on purpose
    for name in names:
        await gateway.call(name, {}, id=f"={name}")
    _, table = await export(gateway, q="reason:TOOL_UNKNOWN", format="csv")
    assert table.count(b"\n") == len(names) + 1
    rows = list(csv.DictReader(io.StringIO(table.decode(), newline="")))
    assert tuple(rows[0]) == (*FIELDS, "leaf")
    for row in rows:
        for cell in row.values():
            assert not cell.lstrip().startswith(("=", "+", "-", "@", "\t", "\r", "＝")), row  # noqa: RUF001 - the same
    assert rows[0]["tool"] == '\'=HYPERLINK("http://x")'


async def test_other_formats_are_events_of_opa_and_opentelemetry(gateway: Gateway):
    answer = await gateway.call("search_hotels", PARIS, id="fc-1", run_id="run-9")
    blocked = await gateway.call("delete_everything", {})
    _, body = await export(gateway, q="tool:*", format="opa")
    events = [json.loads(line) for line in body.splitlines()]
    assert [event["decision_id"] for event in events] == [answer["decision_id"], blocked["decision_id"]]
    assert events[0]["result"]["effect"] == "allow"
    assert events[0]["bundles"] == {"default": {"revision": gateway.revision}}
    assert events[0]["metrics"].keys() >= {"timer_decide_ns"}
    assert "Paris" not in body.decode()
    _, body = await export(gateway, q="tool:*", format="otel")
    first, outcome, refused = (json.loads(line)["attributes"] for line in body.splitlines())
    assert (first["gen_ai.operation.name"], first["gen_ai.tool.name"], first["gen_ai.tool.call.id"]) == (
        "execute_tool",
        "search_hotels",
        "fc-1",
    )
    assert (first["gen_ai.conversation.id"], "error.type" in first, "error.type" in outcome) == ("run-9", False, False)
    assert refused["error.type"] == "TOOL_UNKNOWN"


@pytest.mark.parametrize(
    "params",
    [{"format": "xml"}, {"from_position": "-1"}, {"to_position": "x"}, {"format": "opa", "q": "kind:outcome"}, {"q": "colour:red"}],
)
async def test_an_export_that_cannot_be_is_refused_and_no_record(gateway: Gateway, params: dict[str, str]):
    response, _ = await export(gateway, **params)
    assert response.status == 400
    _, page = await gateway.get("/v1/decisions", key=AUDITOR, q="kind:export")
    assert page["items"] == []


@asynccontextmanager
async def tail(gateway: Gateway, *, last_event_id: str | None = None, **params: str) -> AsyncGenerator[Any]:
    """An async function that gives the next ``(id, event, data)``."""
    headers = HEADERS | ({"Last-Event-ID": last_event_id} if last_event_id is not None else {})
    async with gateway.session.get(gateway.url + "/v1/decisions/tail", headers=headers, params=params) as response:
        assert (response.status, response.content_type) == (200, "text/event-stream")

        async def read() -> tuple[str, str, str]:
            event: dict[str, str] = {}
            while True:
                line = (await asyncio.wait_for(response.content.readline(), 30)).decode()
                assert line, "the stream ended"
                name, _, value = line.rstrip("\n").partition(": ")
                if name:
                    event[name] = value
                elif event.get("event"):
                    return event.get("id", ""), event["event"], event.get("data", "")

        yield read


async def test_a_tail_gives_every_record_once_under_load_and_across_connections(gateway: Gateway):
    calls = asyncio.create_task(_load(gateway, 60))
    seen: list[int] = []
    last: str | None = None
    deadline = asyncio.get_running_loop().time() + 120
    while len(seen) < 121:  # the activation, and two records a call
        assert asyncio.get_running_loop().time() < deadline, seen
        async with tail(gateway, last_event_id=last, **({} if last else {"from_position": "0"})) as read:
            for _ in range(30):
                said, event, data = await read()
                if event == "record":
                    assert int(said) == json.loads(data)["position"]
                    seen.append(int(said))
                    last = said
                if len(seen) == 121:
                    break
    await calls
    assert seen == list(range(121))


async def _load(gateway: Gateway, count: int) -> None:
    for _ in range(0, count, 6):
        # Not a search: the sample bundle limits the rate of those, and a refused one has no second record.
        await asyncio.gather(*(gateway.call("get_itinerary", {"itineraryId": "it-1"}) for _ in range(6)))


async def test_a_tail_begins_now_and_shows_what_its_query_means(gateway: Gateway):
    await gateway.call("delete_everything", {})
    async with tail(gateway, q="effect:deny") as read:
        assert await read() == ("1", "open", "2")
        await gateway.call("search_hotels", PARIS)
        blocked = await gateway.call("delete_everything", {})
        said, event, data = await read()
        assert (said, event, json.loads(data)["decision_id"]) == ("4", "record", blocked["decision_id"])


async def test_counts_by_field_and_effect(gateway: Gateway):
    await gateway.call("search_hotels", PARIS)
    for subject in ("ada", "bob"):
        await gateway.call("delete_everything", {}, subject=subject)
    status, page = await gateway.get("/v1/decisions", key=AUDITOR, q="kind:decision", facets="tool,subject", limit="1")
    assert (status, len(page["items"])) == (200, 1)
    assert page["facets"] == {
        "counted": 3,
        "is_complete": True,
        "effects": {"allow": 1, "deny": 2},
        "fields": {
            "tool": {
                "values": [
                    {"value": "delete_everything", "count": 2, "effects": {"deny": 2}},
                    {"value": "search_hotels", "count": 1, "effects": {"allow": 1}},
                ],
                "others": 0,
            },
            "subject": {
                "values": [{"value": "ada", "count": 2, "effects": {"allow": 1, "deny": 1}}, {"value": "bob", "count": 1, "effects": {"deny": 1}}],
                "others": 0,
            },
        },
    }  # fmt: skip
    status, problem = await gateway.get("/v1/decisions", key=AUDITOR, facets="colour")
    assert (status, problem["code"]) == (400, "PARAMETER_INVALID")


async def test_a_timeline_is_a_run_from_its_first_record(gateway: Gateway):
    await gateway.call("delete_everything", {}, run_id="run-7")
    await gateway.call("search_hotels", PARIS, run_id="run-7")
    await gateway.call("search_hotels", PARIS, run_id="run-8")
    seen: list[tuple[str, str]] = []
    params: dict[str, str] = {"limit": "2"}
    while True:
        status, page = await gateway.get("/v1/runs/run-7/timeline", key=AUDITOR, **params)
        assert (status, page["run_id"]) == (200, "run-7")
        seen += [(item["kind"], item["reason_code"]) for item in page["items"]]
        if page["next_cursor"] is None:
            break
        params["cursor"] = page["next_cursor"]
    assert seen == [("decision", "TOOL_UNKNOWN"), ("decision", "USER_REQUEST_MATCHED_TOOL_SCOPE"), ("outcome", "EXECUTION_SUCCEEDED")]
    for path in ("/v1/runs/run-9/timeline", "/v1/runs/run-7/timeline?agent=nobody"):
        status, _ = await gateway.get(path, key=AUDITOR)
        assert status == 404


async def test_payloads_are_shown_for_a_reason_that_stays_in_the_log(gateway: Gateway):
    answer = await gateway.call("search_hotels", PARIS)
    path = f"/v1/decisions/{answer['decision_id']}"
    found = await gateway.decision(answer["decision_id"])
    assert found["payloads"] == ["arguments"]
    assert "Paris" not in json.dumps(found)
    for body in ({}, {"reason": "   \t  "}, {"reason": "four"}, {"reason": "two\nlines of it"}):
        status, problem = await gateway.post(path + "/reveal", body, key=AUDITOR)
        assert (status, "Paris" in json.dumps(problem)) == (400, False)
    assert (await gateway.post(path + "/reveal", {"reason": "ticket 4711"}))[0] == 403
    status, revealed = await gateway.post(path + "/reveal", {"reason": " ticket 4711 "}, key=AUDITOR)
    assert (status, revealed["payloads"]["arguments"]["args"]) == (200, PARIS)
    (reveal,) = [record for record in (await gateway.decision(answer["decision_id"]))["linked"] if record["kind"] == "reveal"]
    assert (reveal["decision_id"], reveal["subject"]) == (revealed["reveal_id"], "ada")
    assert reveal["outcome"] == {"by": "dev-auditor", "reason": "ticket 4711"}
    _, page = await gateway.get("/v1/decisions", key=AUDITOR, q='kind:reveal "ticket 4711"')
    assert [item["decision_id"] for item in page["items"]] == [revealed["reveal_id"]]


async def test_an_export_of_everything_can_be_hashed_again(gateway: Gateway):
    await asyncio.gather(*(gateway.call("search_hotels", PARIS) for _ in range(5)))
    _, first = await export(gateway, to_position="11")
    _, again = await export(gateway, to_position="11")
    assert first.count(b"\n") == 11
    assert hashlib.sha256(first).digest() == hashlib.sha256(again).digest()
