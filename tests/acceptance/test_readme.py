"""What the README shows works as it stands there."""

import asyncio
import json
import re
import sys
from pathlib import Path

from gateway.policy.analysis import analyse
from gateway.policy.checks.names import DeclaredNames
from tests.acceptance.conftest import Gateway
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The code blocks of a language, without the indentation of lists."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", README, re.MULTILINE | re.DOTALL)
    return ["".join(line.removeprefix(indent) for line in body.splitlines(keepends=True)) for indent, body in found]


async def test_the_python_program_runs_as_a_file(gateway: Gateway, tmp_path: Path):
    (program,) = blocks("python")
    (tmp_path / "program.py").write_text(program.replace("http://127.0.0.1:8080", gateway.url))
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(tmp_path / "program.py"), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    stdout, stderr = await process.communicate()
    assert (process.returncode, stderr) == (0, b"")
    assert b"'hotelId': 'h1'" in stdout


async def test_the_curl_line_gets_the_answer_that_stands_below_it(gateway: Gateway):
    line = next(block for block in blocks("sh") if "/v1/calls" in block)
    status, answer = await gateway.post("/v1/calls", json.loads(line[line.index("-d '") + 4 : line.rindex("'")]))
    shown = json.loads(blocks("json")[0])
    assert status == 200
    assert answer.keys() == shown.keys()
    assert {part: answer[part].keys() for part in ("call", "decision", "result")} == {
        part: shown[part].keys() for part in ("call", "decision", "result")
    }
    assert answer["decision"]["reason_code"] == shown["decision"]["reason_code"]


async def test_the_route_of_tools_is_complete_as_it_is_named(gateway: Gateway):
    (path,) = re.findall(r"`GET (/v1/tools\?[^`]+)`", README)
    status, answer = await gateway.get(path)
    assert (status, answer["workflow"]) == (200, "trip_planning")


def test_the_rego_sample_passes_the_checks():
    (rego,) = blocks("rego")
    declared = DeclaredNames(tools=frozenset({"cancel_trip"}))
    assert analyse({"rego/trips.rego": rego}, {}, argument_names=frozenset(), own_codes={}, declared=declared) == []


async def test_a_person_agrees_as_the_commands_show(gateway: Gateway):
    # As the demo leaves it: something else waits for dana already.
    await gateway.call("cancel_booking", {"bookingRef": "b-1"}, workflow="trip_booking", run_id="demo")
    (script,) = (block for block in blocks("sh") if "approvals approve" in block)
    script = script.replace("http://127.0.0.1:8080", gateway.url).replace(".venv/bin/gateway", f"{sys.executable} -m gateway")
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-euo",
        "pipefail",
        "-c",
        script.replace("'\"$1\"'", "'\"${1:-}\"'"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = (text.decode() for text in await process.communicate())
    assert process.returncode == 0, stderr
    asked, done = (json.loads(line) for line in stdout.splitlines() if line.startswith('{"decision_id"'))
    assert (asked["result"]["status"], done["result"]["status"]) == ("confirmation_required", "ok")
    assert asked["result"]["approval_id"] in stdout
    assert "Book a hotel: book_hotel (irreversible)" in stdout
    assert gateway.travel.arrivals.count("POST /bookings") == 1
