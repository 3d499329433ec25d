"""``gateway decisions export`` against a real gateway: killed in the middle, gone on with, and never another's folder."""

import asyncio
import hashlib
import json
import os
import sys
from pathlib import Path

import pytest

from gateway.cli.export_folder import MANIFEST, ExportFolder, State, read_state
from tests.acceptance.conftest import AUDITOR, Gateway


async def run(gateway: Gateway, *arguments: str) -> tuple[int, str, str]:
    environment = os.environ | {"GATEWAY_API_KEY": AUDITOR, "GATEWAY_URL": gateway.url}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", "decisions", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment,
    )  # fmt: skip
    stdout, stderr = await process.communicate()
    return process.returncode or 0, stdout.decode(), stderr.decode()


@pytest.mark.parametrize("form", ["ndjson", "csv"])
async def test_goes_on_where_a_killed_export_was(gateway: Gateway, tmp_path: Path, form: str):
    await gateway.round([{"name": "delete_everything", "args": {}}] * 30)
    whole = tmp_path / "whole"
    code, _, stderr = await run(gateway, "export", "effect:deny", "--out", str(whole), "--format", form)
    assert code == 0, stderr
    manifest = json.loads((whole / MANIFEST).read_text())
    content = (whole / manifest["file"]).read_bytes()
    assert (manifest["count"], manifest["first_position"], manifest["last_position"]) == (30, 1, 30)
    assert manifest["sha256"] == hashlib.sha256(content).hexdigest()

    # What a kill leaves: some lines certain, and behind them half of what was being written.
    killed = tmp_path / "killed"
    killed.mkdir()
    asked = {"q": "effect:deny", "after": None, "before": None, "format": form}
    folder = ExportFolder(killed, State(asked=asked, to_position=manifest["to_position"]))
    cut = content.index(b"\n", len(content) // 3) + 1
    folder.take(content[:cut])
    folder.save()
    folder.take(content[cut : cut + 2_000])
    folder.close()
    await gateway.round([{"name": "delete_everything", "args": {}}] * 5)
    code, _, stderr = await run(gateway, "export", "effect:deny", "--out", str(killed), "--format", form)
    assert code == 0, stderr
    assert (killed / manifest["file"]).read_bytes() == content
    again = json.loads((killed / MANIFEST).read_text())
    assert {name: again[name] for name in ("count", "sha256", "first_position", "last_position")} == {
        name: manifest[name] for name in ("count", "sha256", "first_position", "last_position")
    }
    assert read_state(killed) is None
    code, _, stderr = await run(gateway, "export", "effect:deny", "--out", str(killed), "--format", form)
    assert (code, "holds a complete export" in stderr) == (2, True)


async def test_refuses_a_folder_of_something_else(gateway: Gateway, tmp_path: Path):
    (tmp_path / "notes").write_text("mine")
    code, _, stderr = await run(gateway, "export", "--out", str(tmp_path))
    assert (code, "is not empty" in stderr) == (2, True)
    begun = tmp_path / "begun"
    begun.mkdir()
    folder = ExportFolder(begun, State(asked={"q": "effect:deny", "after": None, "before": None, "format": "ndjson"}))
    folder.save()
    folder.close()
    code, _, stderr = await run(gateway, "export", "effect:allow", "--out", str(begun))
    assert (code, "interrupted export of something else: q 'effect:deny'" in stderr) == (2, True)


async def test_an_error_points_at_the_character(gateway: Gateway):
    code, _, stderr = await run(gateway, "list", "effect:deny", "colour:red")
    assert code == 2
    assert stderr.splitlines()[-2:] == ["  effect:deny colour:red", "              ^^^^^^"]


async def test_counts_tails_and_timelines_show_no_raw_control_characters(gateway: Gateway):
    await gateway.call("evil\x1b[2Jtool", {}, run_id="run-1")
    for arguments in (["stats", "--by", "tool"], ["tail", "--from-position", "0", "--count", "2"], ["timeline", "run-1"], ["list"]):
        code, stdout, stderr = await run(gateway, *arguments)
        assert (code, "evil" in stdout, "\x1b" in stdout) == (0, True, False), stderr
