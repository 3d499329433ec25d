"""Keys that the gateway makes: good at once, shown once, rotated in pairs, refused everywhere within a second of their end."""

import asyncio
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from gateway.domain.keys import is_key
from tests.acceptance.conftest import AUDITOR, Gateway, OpenGateway, serving

OPERATOR = "dev-operator-key"
PARIS = {"city": "Paris, France"}


async def _create(gateway: Gateway, **body: Any) -> tuple[str, str]:
    """The id and the key of a new key; the travel assistant's by default."""
    body = body or {"roles": ["agent"], "agent": "travel-assistant"}
    status, made = await gateway.post("/v1/keys", body, key=OPERATOR)
    assert status == 200, made
    assert is_key(made["key"])
    return made["key_id"], made["key"]


async def _status(gateway: Gateway, key: str) -> int:
    status, _ = await gateway.get("/v1/tools", key=key, workflow="trip_planning", on_behalf_of="ada")
    return status


async def _refused_within_a_second(gateway: Gateway, key: str) -> None:
    await asyncio.sleep(1)
    assert await _status(gateway, key) == 401


async def test_opens_every_gateway_at_once_until_it_is_revoked(open_with: OpenGateway, travel_bundle: Path):
    one, other = await open_with(travel_bundle), await open_with(travel_bundle)
    key_id, key = await _create(one)
    assert [await _status(gateway, key) for gateway in (other, one)] == [200, 200]
    assert await one.post(f"/v1/keys/{key_id}/revoke", {}, key=OPERATOR) == (200, {"changed": True})
    await _refused_within_a_second(other, key)
    assert await _status(one, key) == 401
    assert await one.post(f"/v1/keys/{key_id}/revoke", {}, key=OPERATOR) == (200, {"changed": False})


async def test_nothing_is_admitted_a_second_after_its_key_was_revoked(open_with: OpenGateway, travel_bundle: Path):
    one, other = await open_with(travel_bundle), await open_with(travel_bundle)
    key_id, key = await _create(one)
    clock = asyncio.get_running_loop().time
    allowed_at: list[float] = []

    async def keep_calling() -> None:
        while True:
            try:
                answer = await other.call("search_hotels", PARIS, key=key)
            except AssertionError:  # 401
                return
            if answer["decision"]["effect"] == "allow":
                allowed_at.append(clock())

    callers = [asyncio.create_task(keep_calling()) for _ in range(8)]
    await asyncio.sleep(0.5)
    await one.post(f"/v1/keys/{key_id}/revoke", {}, key=OPERATOR)
    revoked_at = clock()
    async with asyncio.timeout(20):
        await asyncio.gather(*callers)
    assert allowed_at
    _, found = await one.get("/v1/decisions", key=AUDITOR, q="kind:key", limit="1")
    revocation = found["items"][0]
    _, after = await one.get("/v1/decisions", key=AUDITOR, q="effect:allow kind:decision", limit="1")
    # By the log's own order: no admission stands behind the revocation.
    assert after["items"][0]["position"] < revocation["position"], clock() - revoked_at


async def test_a_rotated_key_and_its_successor_both_open_for_a_while(gateway: Gateway):
    key_id, old = await _create(gateway)
    status, made = await gateway.post(f"/v1/keys/{key_id}/rotate", {"overlap_s": 3600}, key=OPERATOR)
    assert (status, await _status(gateway, old), await _status(gateway, made["key"])) == (200, 200, 200)
    status, problem = await gateway.post(f"/v1/keys/{made['key_id']}/rotate", {}, key=OPERATOR)
    assert (status, problem["code"]) == (409, "KEY_ROTATED")
    await gateway.post(f"/v1/keys/{key_id}/revoke", {}, key=OPERATOR)
    status, last = await gateway.post(f"/v1/keys/{made['key_id']}/rotate", {"overlap_s": 0}, key=OPERATOR)
    assert (status, await _status(gateway, last["key"])) == (200, 200)
    await _refused_within_a_second(gateway, made["key"])


@pytest.mark.parametrize(
    "body",
    [
        {"roles": []},
        {"roles": ["agent"]},
        {"roles": ["auditor"]},
        {"roles": ["approver"], "label": "dana"},
        {"roles": ["agent", "approver"], "agent": "travel-assistant", "person": "dana"},
        {"roles": ["root"], "label": "x"},
        {"roles": ["auditor"], "label": "x", "tenant": "other"},
        {"roles": ["auditor"], "label": "x", "expires_s": 0},
    ],
)
async def test_makes_no_key_that_could_do_what_nobody_may(gateway: Gateway, body: dict[str, Any]):
    status, problem = await gateway.post("/v1/keys", body, key=OPERATOR)
    assert (status, problem["code"]) == (400, "ENVELOPE_INVALID")


async def test_only_operators_see_keys_and_nobody_sees_a_key_again(gateway: Gateway, database_url: str):
    key_id, key = await _create(gateway, roles=["auditor"], label="audrey", expires_s=3600)
    assert (await gateway.get("/v1/keys", key=key))[0] == 403
    status, page = await gateway.get("/v1/keys", key=OPERATOR)
    item = page["items"][0]
    assert (status, item["key_id"], item["label"], item["is_live"], key.startswith(item["hint"])) == (200, key_id, "audrey", True, True)
    assert len(item["hint"]) < len(key) - 40
    connection = await asyncpg.connect(database_url)
    try:
        for table in ("keys", "records", "payloads"):
            rows = await connection.fetch(f"SELECT {table}::text AS row FROM {table}")  # noqa: S608 - our own names
            secret = key.rpartition("_")[2]
            assert all(secret not in row["row"] and secret.encode().hex() not in row["row"] for row in rows)
    finally:
        await connection.close()
    _, found = await gateway.get("/v1/decisions", key=AUDITOR, q="kind:key")
    assert found["items"][0]["outcome"] == {
        "key_id": key_id, "action": "created", "by": "dev-operator", "roles": ["auditor"], "person": None, "label": "audrey", "rotates": None,
    }  # fmt: skip


async def test_a_key_of_another_tenant_is_unknown(gateway: Gateway, database_url: str):
    connection = await asyncpg.connect(database_url)
    key_id = uuid4()
    await connection.execute(
        "INSERT INTO keys (tenant, key_id, family, digest, hint, roles, label, created_by) VALUES ('other', $1, $1, $2, 'gw_', '{operator}', 'o', 'o')",
        key_id,
        bytes(32),
    )
    await connection.close()
    for action in ("revoke", "rotate"):
        assert (await gateway.post(f"/v1/keys/{key_id}/{action}", {}, key=OPERATOR))[0] == 404
    assert (await gateway.get("/v1/keys", key=OPERATOR))[1]["items"] == []


async def test_the_first_key_is_made_on_the_host(travel_bundle: Path, data_dir: Path, tmp_path: Path):
    config = tmp_path / "gateway.yaml"
    config.write_text("connections:\n  travel: {origin: 'http://127.0.0.1:9', internal: true}\n")
    args = ("--port", "0", "--data-dir", str(data_dir), "--config", str(config))
    async with serving("--bundle", str(travel_bundle), *args) as (_, ready):
        key = (await _gateway("keys", "create", "--local", "--data-dir", str(data_dir), "--role", "operator", "--label", "olga")).strip()
        listed = await _gateway("keys", "list", "--url", ready["url"], "--key", key)
        assert "local:" in listed
        assert "olga" in listed
        assert key not in listed


async def _gateway(*args: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", *args, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    stdout, stderr = await process.communicate()
    assert process.returncode == 0, stderr.decode()
    return stdout.decode()
