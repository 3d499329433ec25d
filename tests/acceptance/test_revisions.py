"""Revisions: pushed, activated everywhere at once, rolled back; nothing is allowed under a replaced one."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from gateway.bundle.folder import compute_revision, read_folder
from tests.acceptance.conftest import AUDITOR, AUTHOR, Gateway, OpenGateway, serving

PARIS = {"city": "Paris, France"}
SUITE_RULE = 'package policies.suite.second\n\nsuppress contains "SUPPRESSED_FREQUENCY" if {\n\tinput.tool.name == "search_hotels"\n\tinput.args.city == "Nowhere"\n}\n'
ACTIVATIONS = int(os.environ.get("ACTIVATIONS", "8"))
"""How often the revision changes under load."""


def _files(folder: Path) -> dict[str, str]:
    return {path: content.decode() for path, content in read_folder(folder).files.items()}


def _revision(files: dict[str, str]) -> str:
    return compute_revision({path: text.encode() for path, text in files.items()})


async def _push(gateway: Gateway, files: dict[str, str]) -> tuple[int, Any]:
    return await gateway.post("/v1/bundles", {"files": files, "note": "a note"}, key=AUTHOR)


async def _activate(gateway: Gateway, revision: str, **body: Any) -> tuple[int, Any]:
    return await gateway.post(f"/v1/bundles/{revision}/activate", body, key=AUTHOR)


async def _revisions(gateway: Gateway) -> list[Any]:
    status, page = await gateway.get("/v1/bundles", key=AUTHOR)
    assert status == 200, page
    return page["items"]


@pytest.fixture
def second(travel_bundle: Path) -> dict[str, str]:
    """The files of a second revision."""
    return _files(travel_bundle) | {"rego/suite/second.rego": SUITE_RULE}


async def test_an_activation_holds_on_every_gateway_at_once(open_with: OpenGateway, travel_bundle: Path, second: dict[str, str]):
    one, other = await open_with(travel_bundle), await open_with(travel_bundle)
    status, pushed = await _push(one, second)
    assert (status, pushed) == (200, {"revision": _revision(second), "warnings": []})
    assert (await other.call("search_hotels", PARIS))["decision"]["revision"] == one.revision  # kept, not in force
    status, active = await _activate(one, pushed["revision"])
    assert (status, active["revision"], active["replaced"]) == (200, pushed["revision"], one.revision)
    # The other gateway was told nothing: its admission finds out, and the call is decided anew.
    answer = await other.call("search_hotels", PARIS)
    assert (answer["result"]["status"], answer["decision"]["revision"]) == ("ok", pushed["revision"])
    items = await _revisions(other)
    assert [(item["revision"], item["is_active"], item["note"]) for item in items] == [
        (pushed["revision"], True, "a note"),
        (one.revision, False, ""),
    ]
    status, found = await other.get("/v1/decisions", key=AUDITOR, q="kind:activation")
    assert [(item["revision"], item["outcome"]) for item in found["items"]] == [
        (pushed["revision"], {"by": "dev-author", "replaced": one.revision}),
        (one.revision, {"by": "serve --bundle", "replaced": None}),
    ]


async def test_rolls_back_to_what_was_in_force_before(gateway: Gateway, second: dict[str, str]):
    assert (await gateway.post("/v1/bundles/active/rollback", {}, key=AUTHOR))[0] == 409
    _, pushed = await _push(gateway, second)
    await _activate(gateway, pushed["revision"])
    status, active = await gateway.post("/v1/bundles/active/rollback", {}, key=AUTHOR)
    assert (status, active["revision"], active["replaced"]) == (200, gateway.revision, pushed["revision"])
    assert (await gateway.call("search_hotels", PARIS))["decision"]["revision"] == gateway.revision
    status, shown = await gateway.get("/v1/bundles/active", key=AUTHOR)
    assert (status, shown["revision"], shown["is_active"]) == (200, gateway.revision, True)
    assert "rego/suite/second.rego" not in shown["files"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("workflows.yaml", "", "nonsense: true\n"), "BUNDLE_INVALID"),
        (("../escape.yaml", "", "a: 1\n"), "BUNDLE_INVALID"),
        (("rego/suite/second_test.rego", "", "package policies.suite.second_test\n\ntest_no if false\n"), "BUNDLE_TESTS_FAILED"),
        (("tools/get_itinerary.yaml", "connection: travel", "connection: elsewhere"), "BUNDLE_CANNOT_RUN"),
    ],
)
async def test_what_does_not_pass_its_checks_is_not_kept(gateway: Gateway, second: dict[str, str], change: tuple[str, str, str], code: str):
    path, old, new = change
    second[path] = second[path].replace(old, new) if old else new
    status, problem = await _push(gateway, second)
    assert (status, problem["code"]) == (422, code)
    assert problem["errors"]
    assert [item["revision"] for item in await _revisions(gateway)] == [gateway.revision]


async def test_activates_only_what_it_was_to_replace(gateway: Gateway, second: dict[str, str]):
    _, pushed = await _push(gateway, second)
    status, problem = await _activate(gateway, pushed["revision"], replaces="sha256:" + "0" * 64)
    assert (status, problem["code"]) == (409, "OTHER_REVISION_ACTIVE")
    assert (await _activate(gateway, "sha256:" + "0" * 64))[0] == 404
    assert (await gateway.call("search_hotels", PARIS))["decision"]["revision"] == gateway.revision


async def test_under_load_every_allow_names_the_revision_that_was_in_force(
    open_with: OpenGateway, travel_bundle: Path, second: dict[str, str]
):
    gateways = [await open_with(travel_bundle), await open_with(travel_bundle)]
    _, pushed = await _push(gateways[0], second)
    revisions = [pushed["revision"], gateways[0].revision]
    is_over = asyncio.Event()
    statuses: list[str] = []

    async def keep_calling(gateway: Gateway, subject: str) -> None:
        while not is_over.is_set():
            answer = await gateway.call("get_itinerary", {"itineraryId": "it-1"}, subject=subject)
            statuses.append(answer["result"]["reason_code"])

    # A subject for each gateway, so that they do not contend for the versions of facts, which is not what this is about.
    subjects = zip(gateways, ("ada", "cy"), strict=True)
    callers = [asyncio.create_task(keep_calling(gateway, subject)) for gateway, subject in subjects for _ in range(3)]
    for number in range(ACTIVATIONS):
        status, active = await _activate(gateways[number % 2], revisions[number % 2])
        assert status == 200, active
        await asyncio.sleep(0.1)
    is_over.set()
    await asyncio.gather(*callers)
    assert set(statuses) == {"EXECUTION_SUCCEEDED"}
    in_force, allowed = None, 0
    for record in await _all_records(gateways[0]):
        if record["kind"] == "activation":
            in_force = record["revision"]
        elif record["kind"] == "decision":
            allowed += 1
            assert record["revision"] == in_force, record
    assert allowed == len(statuses)


async def _all_records(gateway: Gateway) -> list[Any]:
    """By position."""
    records: list[Any] = []
    cursor: dict[str, str] = {}
    while True:
        _, page = await gateway.get("/v1/decisions", key=AUDITOR, limit="200", **cursor)
        records += page["items"]
        if page["next_cursor"] is None:
            return records[::-1]
        cursor = {"cursor": page["next_cursor"]}


async def test_dev_follows_its_folder(copied_bundle: Path, data_dir: Path):
    async with serving("--dev", "--bundle", str(copied_bundle), "--port", "0", "--data-dir", str(data_dir)) as (process, ready):
        assert process.stderr is not None
        second = copied_bundle / "rego" / "suite" / "second.rego"
        second.parent.mkdir()
        second.write_text("package policies.suite.second\n\nsuppress contains")
        assert "stays in force" in await _line_with(process.stderr, "revision before")
        second.write_text(SUITE_RULE)
        line = await _line_with(process.stderr, "in force now")
        assert _revision(_files(copied_bundle)) in line
        assert ready["revision"] not in line


async def _line_with(stream: asyncio.StreamReader, words: str) -> str:
    async with asyncio.timeout(60):
        while words not in (line := (await stream.readline()).decode()):
            assert line, f"the process ended before it said {words!r}"
    return line


async def test_serves_what_is_in_force_without_a_folder(travel_bundle: Path, data_dir: Path):
    args = ("--dev", "--port", "0", "--data-dir", str(data_dir))
    async with serving(*args) as (process, ready):
        _, stderr = await process.communicate()
        assert (ready, process.returncode, b"serve --bundle DIR" in stderr) == ({}, 1, True)
    async with serving(*args, "--bundle", str(travel_bundle)) as (process, first):
        process.terminate()
        await process.wait()
    async with serving(*args) as (_, again):
        assert json.dumps(again["revision"]) == json.dumps(first["revision"])
