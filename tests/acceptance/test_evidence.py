"""The log as evidence on a running gateway: checkpoints, proofs, and the checks of both."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from gateway.app import check_database
from gateway.evidence import verify as verifier
from gateway.settings import Settings
from tests.acceptance.conftest import AUDITOR, Gateway

PARIS = {"city": "Paris, France"}


async def proof_of(gateway: Gateway, decision_id: str) -> Any:
    """The proof of a record, as soon as a checkpoint covers it."""
    async with asyncio.timeout(20):
        while True:
            status, found = await gateway.get(f"/v1/decisions/{decision_id}/proof", key=AUDITOR)
            if status == 200:
                return found
            assert (status, found["code"]) == (409, "NOT_COVERED_YET")
            await asyncio.sleep(0.2)


async def state_of(gateway: Gateway, **params: str) -> Any:
    """The state of the log."""
    status, state = await gateway.get("/v1/log/checkpoint", key=AUDITOR, **params)
    assert status == 200, state
    return state


async def covered(gateway: Gateway, size: int) -> Any:
    """The state of the log, as soon as its checkpoint covers `size` records."""
    async with asyncio.timeout(20):
        state = await state_of(gateway)
        while state["size"] < size:
            await asyncio.sleep(0.2)
            state = await state_of(gateway)
    return state


async def test_proves_a_refusal_to_who_has_only_the_key_and_python(gateway: Gateway, tmp_path: Path):
    await gateway.call("search_hotels", PARIS)
    refused = await gateway.call("delete_everything", {})
    proof, key = tmp_path / "proof.json", tmp_path / "log.pub"
    proof.write_text(json.dumps(await proof_of(gateway, refused["decision_id"])))
    key.write_text((await state_of(gateway))["public_key"] + "\n")
    command = (sys.executable, "-I", verifier.__file__, str(proof), "--pubkey", str(key), "--json")
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert (done.returncode, found["result"], found["records"]) == (0, "verified", 1)
    assert json.loads(json.loads(proof.read_text())["record"])["decision_id"] == refused["decision_id"]


async def test_the_log_extends_its_earlier_checkpoints(gateway: Gateway):
    await gateway.call("delete_everything", {})
    first = await covered(gateway, 1)
    for _ in range(5):
        await gateway.call("delete_everything", {})
    second = await covered(gateway, 7)
    assert (second["log_size"], second["behind_s"], second["alarm"]) == (second["size"], 0.0, None)
    answer = await state_of(gateway, extends=str(first["size"]))
    assert len(answer["consistency"]) > 0
    status, problem = await gateway.get("/v1/log/checkpoint", key=AUDITOR, extends="999")
    assert (status, problem["code"]) == (400, "PARAMETER_INVALID")


async def test_the_stored_log_is_verified_and_a_changed_one_is_not(gateway: Gateway, database_url: str, data_dir: Path):
    for _ in range(10):
        await gateway.call("delete_everything", {})
    await proof_of(gateway, (await gateway.call("search_hotels", PARIS))["decision_id"])
    settings = Settings(database_url=database_url, data_dir=data_dir)
    code, found = await check_database(settings, "default", None, "")
    assert (code, found["records"] >= 12) == (0, True), found
