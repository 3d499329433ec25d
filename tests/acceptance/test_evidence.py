"""The log as evidence on a running gateway: checkpoints, proofs, and the checks of both."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from gateway.app import check_database
from gateway.evidence import verify as verifier
from gateway.ledger.embedded import EmbeddedPostgres
from gateway.settings import Settings
from tests.acceptance.conftest import AUDITOR, Gateway, new_key
from tests.conftest import url_of

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


async def test_erasure_makes_data_unreadable_and_leaves_the_log_verified(gateway: Gateway, database_url: str, data_dir: Path):
    settings = Settings(database_url=database_url, data_dir=data_dir)
    key = new_key()
    first = await gateway.call("search_hotels", PARIS, run_id="run-1", headers={"Idempotency-Key": key})
    other = await gateway.call("search_hotels", PARIS, subject="bob")
    assert (await gateway.payloads(first["decision_id"]))["arguments"]["args"] == PARIS
    assert await dump_of(database_url, "calls", "payloads") & {"Paris, France", "Hotel"} == set()

    body = {"subject": "ada", "reason": "a request of the traveller"}
    assert (await gateway.post("/v1/log/erasures", body, key=AUDITOR))[0] == 403
    status, erased = await gateway.post("/v1/log/erasures", body, key="dev-operator-key")
    assert (status, erased["keys"]) == (200, 1)
    record = (await gateway.decision(erased["record_id"]))["record"]
    assert (record["kind"], record["subject"], record["outcome"]["by"]) == ("redaction", "ada", "dev-operator")

    assert (await gateway.payloads(first["decision_id"])) == {}
    assert (await gateway.payloads(other["decision_id"]))["arguments"]["args"] == PARIS
    again = await gateway.call("search_hotels", PARIS, run_id="run-1", headers={"Idempotency-Key": key})
    assert (again["replayed"], again["result"]["data"], again["result"]["data_omitted"]) == (True, None, "expired")
    fresh = await gateway.call("search_hotels", PARIS)
    assert (await gateway.payloads(fresh["decision_id"]))["arguments"]["args"] == PARIS

    await proof_of(gateway, fresh["decision_id"])
    code, found = await check_database(settings, "default", None, "")
    assert code == 0, found


CHANGES = {
    "a payload": ("UPDATE payloads SET body = body || '\\x00' WHERE kind = 'arguments'", "payload was changed"),
    "a payload taken away": ("DELETE FROM payloads", "payload is missing"),
    "a key": ("UPDATE subject_keys SET wrapped = wrapped || '\\x00' WHERE subject = 'ada'", "was changed"),
    "a key destroyed quietly": ("UPDATE subject_keys SET wrapped = NULL, destroyed_at = now() WHERE subject = 'ada'", "without a record"),
    "a column": ("UPDATE records SET subject = 'bob' WHERE subject = 'ada'", "column subject"),
    "the last records": ("DELETE FROM records WHERE position > 2; UPDATE log_heads SET size = 3", "cut off or rolled back"),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_changed_database_is_not_verified(
    gateway: Gateway, database_url: str, data_dir: Path, postgres: EmbeddedPostgres, name: str
):
    last = await gateway.call("search_hotels", PARIS)
    await proof_of(gateway, (await gateway.call("delete_everything", {}))["decision_id"])
    statement, why = CHANGES[name]
    owner = await asyncpg.connect(url_of(postgres.owner_url, urlsplit(database_url).path.strip("/"), "postgres"))
    await owner.execute(f"SET session_replication_role = replica; {statement}")
    await owner.close()
    code, found = await check_database(Settings(database_url=database_url, data_dir=data_dir), "default", None, "")
    assert (code, why in found["why"]) == (6, True), (found, last)


async def dump_of(database_url: str, *tables: str) -> set[str]:
    """Words that stand readable in any row of the tables."""
    connection = await asyncpg.connect(database_url)
    texts = [str(dict(row)) for table in tables for row in await connection.fetch(f"SELECT * FROM {table}")]  # noqa: S608 - our own names
    await connection.close()
    assert texts
    return {word for word in ("Paris, France", "Hotel") if any(word in text for text in texts)}
