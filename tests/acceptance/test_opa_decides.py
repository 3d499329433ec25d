"""A gateway whose policy engine is the real OPA: who decided is in the record, and an OPA that goes wrong allows nothing."""

import asyncio
import io
import json
import tarfile
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.conftest import AUDITOR, AUTHOR, Gateway, OpenGateway
from tests.fakes.mischief import ANSWERS, Mischief
from tests.opa import ENGINE_KEY, Opa, find_opa, free_port, opa_version, run_opa

PARIS = {"city": "Paris, France"}
UNAVAILABLE, TIMEOUT, STALE = "POLICY_ENGINE_UNAVAILABLE", "POLICY_TIMEOUT", "POLICY_STALE"
CODES: dict[str, str] = {
    "reset": UNAVAILABLE, "slow": TIMEOUT, "noise": UNAVAILABLE, "html": UNAVAILABLE, "half": UNAVAILABLE, "true": "POLICY_OUTPUT_INVALID",
    "empty": "POLICY_UNDEFINED", "other revision": STALE, "error": UNAVAILABLE, "redirect": UNAVAILABLE,
}  # fmt: skip
CALLS_A_MODE = 100


@dataclass
class Engine:
    """A key for OPA, as the operator's settings carry it, and where OPA will be."""

    settings: dict[str, Any]
    port: int


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    find_opa()
    secret = tmp_path / "engine.key"
    secret.write_text(ENGINE_KEY)
    port = free_port()
    keys = [{"secret": {"file": str(secret)}, "roles": ["engine"], "name": "opa"}]
    return Engine(settings={"opa_url": f"http://127.0.0.1:{port}", "opa_deadline_s": 5, "keys": keys}, port=port)


@pytest.fixture
async def opened() -> AsyncGenerator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def until_ready(gateway: Gateway) -> None:
    async with asyncio.timeout(60):
        while (await gateway.get("/readyz"))[0] != 200:  # noqa: ASYNC110 - OPA sets no event of ours
            await asyncio.sleep(0.05)


async def start_opa(gateway: Gateway, engine: Engine, opened: AsyncExitStack, *options: str) -> Opa:
    opa = await opened.enter_async_context(run_opa(gateway.url, *options, port=engine.port))
    await until_ready(gateway)
    return opa


async def test_waits_for_opa_and_then_names_it_in_the_record(
    open_with: OpenGateway, travel_bundle: Path, engine: Engine, opened: AsyncExitStack
):
    gateway = await open_with(travel_bundle, **engine.settings)
    assert (await gateway.get("/readyz"))[1]["checks"]["policy"] is False
    early = await gateway.call("search_hotels", PARIS)
    assert (early["result"]["status"], early["result"]["reason_code"]) == ("temporary_error", UNAVAILABLE)
    assert gateway.travel.arrivals == []
    opa = await start_opa(gateway, engine, opened)
    answer = await gateway.call("search_hotels", PARIS)
    assert answer["result"]["status"] == "ok"
    refused = await gateway.call("search_hotels", PARIS, subject="cy", workflow="trip_booking", context={"requestVersion": "1"})
    for decision_id in (answer["decision_id"], refused["decision_id"]):
        record = (await gateway.decision(decision_id))["record"]
        assert (record["engine"], record["revision"]) == (f"opa {opa_version()}", gateway.revision)
    await opa.stop()
    assert (await gateway.get("/readyz"))[1]["checks"]["policy"] is False
    assert (await gateway.call("search_hotels", PARIS))["result"]["reason_code"] == UNAVAILABLE


async def test_gives_the_bundle_to_engines_and_authors_only(open_with: OpenGateway, travel_bundle: Path, engine: Engine):
    gateway = await open_with(travel_bundle, **engine.settings)
    path = gateway.url + "/v1/bundles/active.tar.gz"

    async def pull(key: str | None, **headers: str) -> tuple[int, str | None, bytes]:
        sent = headers | ({"Authorization": f"Bearer {key}"} if key else {})
        async with gateway.session.get(path, headers=sent) as response:
            return response.status, response.headers.get("ETag"), await response.read()

    assert [(await pull(key))[0] for key in (None, "dev-agent-key", AUDITOR, "dev-operator-key")] == [401, 403, 403, 403]
    assert (await gateway.get("/v1/decisions", key=ENGINE_KEY))[0] == 403
    status, tag, content = await pull(ENGINE_KEY)
    assert (status, await pull(AUTHOR)) == (200, (200, tag, content))
    assert tag
    assert (await pull(ENGINE_KEY, **{"If-None-Match": tag}))[::2] == (304, b"")
    assert (await pull(ENGINE_KEY, **{"If-None-Match": '"old"', "Prefer": "modes=snapshot;wait=30"}))[0] == 200
    assert (await pull(ENGINE_KEY, **{"If-None-Match": f'W/"x", {tag}', "Prefer": "wait=1"}))[0] == 304
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as packed:
        names = set(packed.getnames())
        manifest = json.loads(packed.extractfile(".manifest").read())  # pyright: ignore[reportOptionalMemberAccess]
    assert manifest == {"revision": gateway.revision, "roots": ["gateway", "policies", "travel"], "rego_version": 1}
    assert {"data.json", "gateway/gateway.rego", "gateway/bundle.rego", "rego/travel/booking.rego"} < names
    assert not [name for name in names if name.endswith("_test.rego")]


async def test_an_opa_that_must_see_signatures_decides_under_signed_bundles_only(
    open_with: OpenGateway, travel_bundle: Path, engine: Engine, opened: AsyncExitStack, tmp_path: Path
):
    secret = tmp_path / "signing.key"
    secret.write_text("a-secret-of-32-bytes-for-the-tests!")
    signing = {"key": {"file": str(secret)}, "algorithm": "HS256"}
    gateway = await open_with(travel_bundle, **engine.settings, bundle_signing=signing)
    required = ("--set", "keys.gateway.algorithm=HS256", "--set", f"keys.gateway.key={secret.read_text()}")
    await start_opa(gateway, engine, opened, *required, "--set", "bundles.gateway.signing.keyid=gateway")
    assert (await gateway.call("search_hotels", PARIS))["result"]["status"] == "ok"


async def call_many(gateway: Gateway, count: int) -> list[Any]:
    """Many calls, 50 at once; each a run of its own."""
    places = asyncio.Semaphore(50)

    async def call_one() -> Any:
        async with places:
            return await gateway.call("search_hotels", PARIS)

    return await asyncio.gather(*(call_one() for _ in range(count)))


async def test_allows_nothing_while_opa_is_killed_slow_or_talks_nonsense(
    open_with: OpenGateway, copied_bundle: Path, edit: Callable[..., None], engine: Engine, opened: AsyncExitStack
):
    edit("tools/search_hotels.yaml", facts="none")  # else equal calls take turns, and OPA sees one at a time
    budgets = yaml.safe_load((copied_bundle / "budgets.yaml").read_text())
    (copied_bundle / "budgets.yaml").write_text(yaml.safe_dump([budget for budget in budgets if "rate" not in budget]))
    proxy = await opened.enter_async_context(Mischief(engine.port).serving())
    gateway = await open_with(copied_bundle, **engine.settings | {"opa_url": proxy.url, "opa_deadline_s": 2})
    opa = await start_opa(gateway, engine, opened)
    assert {answer["result"]["status"] for answer in await call_many(gateway, 20)} == {"ok"}
    refused = 0
    for mode, code in CODES.items():
        proxy.turn(mode)
        gateway.travel.arrivals.clear()
        answers = await call_many(gateway, CALLS_A_MODE)
        assert Counter(answer["result"]["reason_code"] for answer in answers) == {code: CALLS_A_MODE}, mode
        assert {answer["decision"]["effect"] for answer in answers} == {"deny"}
        assert gateway.travel.arrivals == [], mode
        refused += len(answers)
        sample = (await gateway.decision(answers[-1]["decision_id"]))["record"]
        assert (sample["reason_code"], sample["stage"], sample["effect"]) == (code, "decide", "deny")
    assert refused == 1_000
    assert CODES.keys() == ANSWERS.keys() | {"reset", "slow"}
    proxy.turn("pass")
    assert {answer["result"]["status"] for answer in await call_many(gateway, 20)} == {"ok"}
    # Killed while calls flow: each is decided rightly or refused, and after it nothing is allowed.
    flowing = asyncio.create_task(call_many(gateway, 100))
    await asyncio.sleep(0.05)
    await opa.stop()
    assert {answer["result"]["reason_code"] for answer in await flowing} <= {"EXECUTION_SUCCEEDED", UNAVAILABLE}
    gateway.travel.arrivals.clear()
    assert {answer["result"]["reason_code"] for answer in await call_many(gateway, 100)} == {UNAVAILABLE}
    assert gateway.travel.arrivals == []
