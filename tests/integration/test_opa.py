"""OPA as an engine that can go wrong: whatever answers, only a plain decision under the call's revision counts."""

import asyncio
import io
import tarfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from gateway.domain.catalogue import PolicySet
from gateway.domain.decision import PolicyFault
from gateway.domain.policy_input import CANARY
from gateway.domain.reasons import ReasonCode
from gateway.policy.opa import ANSWER_LIMIT, QUESTION, OpaEngine
from gateway.policy.opa_bundle import BundleSigner, pack_bundle
from tests.fakes.broken_server import (
    accept_then_close,
    answer_bytes,
    find_refused_origin,
    read_then_close,
    read_then_hang,
    run_broken_server,
)
from tests.opa import BundleHost, PulledOpa, opa_version, run_opa, until, until_ready

GOOD: dict[str, Any] = {"effect": "allow", "reason_code": "POLICY_ALLOWED", "policy": "x", "obligations": [], "rules": [], "revision": "r1"}
PROVENANCE = {"version": "1.22.3", "bundles": {"gateway": {"revision": "r1"}}}
DEADLINE_S = 1.0


def policies(revision: str, source: str | None = None, data: dict[str, Any] | None = None) -> PolicySet:
    return PolicySet(
        revision=revision,
        modules={"gateway/gateway.rego": source or f'package gateway\n\ndecision := {{"revision": "{revision}"}}\n'},
        data=data or {},
    )


@asynccontextmanager
async def engine_at(url: str, *, deadline_s: float = DEADLINE_S) -> AsyncGenerator[OpaEngine]:
    engine = OpaEngine(url, deadline_s=deadline_s)
    await engine.activate(policies("r1"))
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def answering(answer: Callable[[web.Request], web.StreamResponse]) -> AsyncGenerator[tuple[str, list[str]]]:
    """A fake OPA; its URL, and what it was asked."""
    asked: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append(f"{request.method} {request.path_qs}")
        await request.read()
        return answer(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}", asked
    finally:
        await runner.cleanup()


def json_body(
    body: bytes, status: int = 200, content_type: str = "application/json", headers: dict[str, str] | None = None
) -> Callable[[web.Request], web.Response]:
    def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, status=status, content_type=content_type, headers=headers)

    return answer


async def ask(url: str) -> Any:
    """What the engine gives for a call under r1: the raw answer, or the code of its fault."""
    async with engine_at(url) as engine:
        try:
            return await engine.decide("r1", CANARY)
        except PolicyFault as fault:
            return fault.reason_code


class TestAnswers:
    async def test_a_plain_decision_under_the_calls_revision_counts(self) -> None:
        async with answering(json_body(orjson.dumps({"result": GOOD, "provenance": PROVENANCE}))) as (url, asked), engine_at(url) as engine:
            assert await engine.decide("r1", CANARY) == GOOD
            assert engine.name == "opa 1.22.3"
        assert asked == [f"POST {QUESTION}"]
        assert "strict-builtin-errors=true" in QUESTION

    @pytest.mark.parametrize("raw", [b"false", b'"false"', b"null", b"1", b"[]", b"{}"])
    async def test_what_is_no_decision_is_passed_on_as_it_is(self, raw: bytes) -> None:
        async with answering(json_body(b'{"result":%s}' % raw)) as (url, _):
            assert await ask(url) == orjson.loads(raw)

    @pytest.mark.parametrize(
        ("body", "code"),
        [
            (b"{}", ReasonCode.POLICY_UNDEFINED),
            (b'{"decision_id":"d"}', ReasonCode.POLICY_UNDEFINED),
            (orjson.dumps({"provenance": PROVENANCE}), ReasonCode.POLICY_UNDEFINED),
            (b"[]", ReasonCode.POLICY_ENGINE_UNAVAILABLE),
            (b"true", ReasonCode.POLICY_ENGINE_UNAVAILABLE),
            (b"", ReasonCode.POLICY_ENGINE_UNAVAILABLE),
            (b'{"result":', ReasonCode.POLICY_ENGINE_UNAVAILABLE),
            (b'{"result":{"a":NaN}}', ReasonCode.POLICY_ENGINE_UNAVAILABLE),
            (b'{"result":{"effect":"deny","effect":"allow"}}', ReasonCode.POLICY_ENGINE_UNAVAILABLE),
            (b'{"result":"\xff"}', ReasonCode.POLICY_ENGINE_UNAVAILABLE),
            (b"[" * 100_000, ReasonCode.POLICY_ENGINE_UNAVAILABLE),
            (b'{"result":"' + b"x" * ANSWER_LIMIT + b'"}', ReasonCode.POLICY_EVALUATION_ERROR),
            (orjson.dumps({"result": GOOD, "provenance": {"version": "1.16.2"}}), ReasonCode.POLICY_ENGINE_UNAVAILABLE),
            (orjson.dumps({"result": GOOD, "provenance": {"version": "edge"}}), ReasonCode.POLICY_ENGINE_UNAVAILABLE),
            (orjson.dumps({"result": GOOD | {"revision": "r2"}}), ReasonCode.POLICY_STALE),
            (orjson.dumps({"result": GOOD | {"revision": "r2"}, "provenance": PROVENANCE}), ReasonCode.POLICY_STALE),
            (orjson.dumps({"provenance": {"version": "1.22.3"}}), ReasonCode.POLICY_STALE),
        ],
    )
    async def test_refuses_what_is_none(self, body: bytes, code: ReasonCode) -> None:
        async with answering(json_body(body)) as (url, _):
            assert await ask(url) is code

    @pytest.mark.parametrize(
        ("status", "content_type", "body", "code"),
        [
            (200, "text/html", b"<html>allow</html>", ReasonCode.POLICY_ENGINE_UNAVAILABLE),
            (200, "text/html", orjson.dumps({"result": GOOD}), ReasonCode.POLICY_ENGINE_UNAVAILABLE),
            (204, "application/json", b"", ReasonCode.POLICY_ENGINE_UNAVAILABLE),
            (401, "application/json", b'{"code":"unauthorized"}', ReasonCode.POLICY_ENGINE_UNAVAILABLE),
            (404, "application/json", orjson.dumps({"result": GOOD}), ReasonCode.POLICY_ENGINE_UNAVAILABLE),
            (500, "application/json", orjson.dumps({"result": GOOD}), ReasonCode.POLICY_ENGINE_UNAVAILABLE),
            (503, "text/plain", b"busy", ReasonCode.POLICY_ENGINE_UNAVAILABLE),
            (
                500,
                "application/json",
                b'{"code":"internal_error","errors":[{"code":"eval_conflict_error","message":"values: {\\"card\\": \\"4111\\"}"}]}',
                ReasonCode.POLICY_EVALUATION_ERROR,
            ),
            (500, "application/json", b'{"code":"internal_error","errors":[{"code":"eval_cancel_error"}]}', ReasonCode.POLICY_TIMEOUT),
            (500, "application/json", b'{"code":"internal_error","errors":7}', ReasonCode.POLICY_ENGINE_UNAVAILABLE),
        ],
    )
    async def test_refuses_other_statuses_and_types(self, status: int, content_type: str, body: bytes, code: ReasonCode) -> None:
        async with answering(json_body(body, status, content_type)) as (url, asked):
            assert await ask(url) is code
        assert len(asked) == 1  # nothing is asked a second time

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    async def test_follows_no_redirect(self, status: int) -> None:
        async with answering(json_body(orjson.dumps({"result": GOOD}))) as (elsewhere, reached):
            async with answering(json_body(b"", status, headers={"Location": elsewhere + QUESTION})) as (url, asked):
                assert await ask(url) is ReasonCode.POLICY_ENGINE_UNAVAILABLE
            assert (len(asked), reached) == (1, [])

    async def test_opens_no_compressed_answer(self) -> None:
        async with answering(json_body(b"\x1f\x8b\x08", headers={"Content-Encoding": "gzip"})) as (url, _):
            assert await ask(url) is ReasonCode.POLICY_ENGINE_UNAVAILABLE

    async def test_an_error_says_nothing_of_the_input(self) -> None:
        quoting = b'{"code":"internal_error","errors":[{"code":"eval_builtin_error","message":"to_number: parsing \\"4111\\""}]}'
        async with answering(json_body(quoting, 500)) as (url, _), engine_at(url) as engine:
            with pytest.raises(PolicyFault) as caught:
                await engine.decide("r1", CANARY)
        assert caught.value.detail == "eval_builtin_error: to_number"


class TestConnections:
    async def test_refuses_when_nobody_listens(self) -> None:
        assert await ask(find_refused_origin()) is ReasonCode.POLICY_ENGINE_UNAVAILABLE

    @pytest.mark.parametrize(
        ("script", "code"),
        [
            (accept_then_close, ReasonCode.POLICY_ENGINE_UNAVAILABLE),
            (read_then_close, ReasonCode.POLICY_ENGINE_UNAVAILABLE),
            (read_then_hang, ReasonCode.POLICY_TIMEOUT),
            (answer_bytes(b"no HTTP at all\r\n\r\n"), ReasonCode.POLICY_ENGINE_UNAVAILABLE),
            (
                answer_bytes(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"),
                ReasonCode.POLICY_ENGINE_UNAVAILABLE,
            ),
            (
                answer_bytes(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{", then_hang=True),
                ReasonCode.POLICY_TIMEOUT,
            ),
            (answer_bytes(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000 + b"\r\n\r\n{}"), ReasonCode.POLICY_ENGINE_UNAVAILABLE),
        ],
        ids=["closes", "reads and closes", "hangs", "speaks no HTTP", "half an answer", "half an answer, then hangs", "endless header"],
    )
    async def test_refuses_when_it_breaks(self, script: Any, code: ReasonCode) -> None:
        async with run_broken_server(script) as server:
            assert await ask(server.origin) is code
            assert server.connections == 1

    async def test_sheds_beyond_its_queue(self) -> None:
        async with run_broken_server(read_then_hang) as server:
            engine = OpaEngine(server.origin, deadline_s=DEADLINE_S, queue_limit=5)
            await engine.activate(policies("r1"))
            answers = await asyncio.gather(*(engine.decide("r1", CANARY) for _ in range(8)), return_exceptions=True)
            await engine.close()
        codes = [answer.reason_code for answer in answers if isinstance(answer, PolicyFault)]
        assert codes == [ReasonCode.POLICY_TIMEOUT] * 5 + [ReasonCode.POLICY_ENGINE_UNAVAILABLE] * 3

    async def test_a_token_is_sent_and_is_read_anew_each_time(self) -> None:
        seen: list[str | None] = []

        def answer(request: web.Request) -> web.Response:
            seen.append(request.headers.get("Authorization"))
            return web.json_response({"result": GOOD})

        tokens = iter(("one", "two"))
        async with answering(answer) as (url, _):
            engine = OpaEngine(url, token=lambda: next(tokens))
            await engine.activate(policies("r1"))
            await engine.decide("r1", CANARY)
            await engine.decide("r1", CANARY)
            await engine.close()
        assert seen == ["Bearer one", "Bearer two"]


class TestRevisions:
    async def test_many_calls_that_wait_share_their_looks(self) -> None:
        async with answering(json_body(orjson.dumps({"result": GOOD | {"revision": "r0"}}))) as (url, asked), engine_at(url) as engine:
            answers = await asyncio.gather(*(engine.decide("r1", CANARY) for _ in range(50)), return_exceptions=True)
            assert {answer.reason_code for answer in answers if isinstance(answer, PolicyFault)} == {ReasonCode.POLICY_STALE}
        assert len(asked) < 2 * 50 + 20

    async def test_a_call_waits_for_its_revision(self) -> None:
        began = time.monotonic()

        def answer(_: web.Request) -> web.Response:
            return web.json_response({"result": GOOD | {"revision": "r1" if time.monotonic() - began > 0.15 else "r0"}})

        async with answering(answer) as (url, _), engine_at(url, deadline_s=5) as engine:
            assert await engine.decide("r1", CANARY) == GOOD


class TestRealOpa:
    async def test_pulls_what_is_in_force_and_waits_for_the_next(self) -> None:
        async with BundleHost().serving() as host, run_opa(host.url) as opa:
            engine = PulledOpa(opa.url, host, deadline_s=2)
            for number in range(5):
                await engine.activate(policies(f"r{number}"))
                assert await engine.decide(f"r{number}", CANARY) == {"revision": f"r{number}"}
            assert engine.name == f"opa {opa_version()}"
            assert host.pulls <= 2 * 5  # it is told at once, instead of asking again and again
            await engine.close()

    async def test_is_not_ready_without_a_bundle_and_while_down(self) -> None:
        async with BundleHost().serving() as host, run_opa(host.url) as opa, engine_at(opa.url) as engine:
            assert not await engine.is_ready()
            with pytest.raises(PolicyFault) as caught:
                await engine.decide("r1", CANARY)
            assert caught.value.reason_code is ReasonCode.POLICY_STALE
            host.in_force = policies("r1")
            await until_ready(engine)
            await opa.stop()
            assert not await engine.is_ready()

    async def test_a_bundle_that_does_not_compile_leaves_the_old_one_and_the_new_one_stale(self) -> None:
        async with BundleHost().serving() as host, run_opa(host.url) as opa:
            engine = PulledOpa(opa.url, host)
            await engine.activate(policies("r1"))
            host.in_force = policies("r2", "package gateway\n\ndecision { true }\n")  # Rego of before 1.0
            with pytest.raises(PolicyFault) as caught:
                await engine.decide("r2", CANARY)
            assert caught.value.reason_code is ReasonCode.POLICY_STALE
            assert await engine.decide("r1", CANARY) == {"revision": "r1"}
            await engine.close()

    async def test_a_type_error_in_a_builtin_refuses(self) -> None:
        source = 'package gateway\n\ndecision := {"open": true} if not broken\n\nbroken if to_number(input.agent.name) > 1\n'
        async with BundleHost().serving() as host, run_opa(host.url) as opa, engine_at(opa.url, deadline_s=3) as engine:
            host.in_force = policies("r1", source)
            with pytest.raises(PolicyFault) as caught:
                await engine.decide("r1", CANARY)
            assert caught.value.reason_code is ReasonCode.POLICY_EVALUATION_ERROR

    async def test_nobody_can_change_the_policies_beside_the_bundle(self) -> None:
        async with BundleHost().serving() as host, run_opa(host.url) as opa:
            engine = PulledOpa(opa.url, host)
            await engine.activate(policies("r1"))
            module = 'package gateway\ndecision := {"mine": 1}'
            async with aiohttp.request("PUT", f"{opa.url}/v1/policies/x", data=module) as response:
                assert response.status == 400
            assert await engine.decide("r1", CANARY) == {"revision": "r1"}
            await engine.close()


SECRET = "a-secret-of-32-bytes-for-the-tests!"
REQUIRED = (
    "--set",
    "keys.gateway.algorithm=HS256",
    "--set",
    f"keys.gateway.key={SECRET}",
    "--set",
    "bundles.gateway.signing.keyid=gateway",
)
STRANGE: dict[str, Any] = {
    "names": {"ü": "\u2028\u2029", "<&>": '"\\\b\f\n\t\x01\x7f', "😀": [1, 2**53 - 1, -7, True, None, ""], "\uffff": {}, "z": "é"}
}


class TestSigning:
    async def ends_ready(self, signer: BundleSigner | None, *options: str) -> bool:
        """Whether OPA takes a bundle with strange data."""
        async with BundleHost(signer).serving() as host:
            host.in_force = policies("r1", data=STRANGE)
            async with run_opa(host.url, *options) as opa, engine_at(opa.url, deadline_s=5) as engine:
                await until(lambda: host.pulls >= 2)  # what it pulled first, it has taken or refused by now
                return await engine.is_ready()

    async def test_takes_what_is_signed_with_the_key(self) -> None:
        assert await self.ends_ready(BundleSigner(SECRET, algorithm="HS256", key_id="gateway"), *REQUIRED)

    async def test_takes_what_is_signed_with_a_private_key(self, tmp_path: Path) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        public = tmp_path / "bundle-key.pub"
        public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        assert await self.ends_ready(
            BundleSigner(private, algorithm="ES256", key_id="gateway"),
            "--set", "keys.gateway.algorithm=ES256", "--set-file", f"keys.gateway.key={public}", "--set", "bundles.gateway.signing.keyid=gateway",
        )  # fmt: skip

    @pytest.mark.parametrize(
        "signer", [None, BundleSigner("another-secret-of-32-bytes-for-tests", algorithm="HS256", key_id="gateway")], ids=["none", "other"]
    )
    async def test_takes_nothing_else(self, signer: BundleSigner | None) -> None:
        assert not await self.ends_ready(signer, *REQUIRED)

    @pytest.mark.parametrize("name", ["gateway/gateway.rego", "data.json", ".manifest", "extra.rego"])
    async def test_covers_every_file(self, name: str) -> None:
        signed = pack_bundle(policies("r1", data=STRANGE), BundleSigner(SECRET, algorithm="HS256", key_id="gateway"))
        forged = change_file(signed.content, name)

        pulls: list[str] = []

        async def pull(request: web.Request) -> web.Response:
            pulls.append(request.path)
            return web.Response(body=forged, content_type="application/gzip")

        app = web.Application()
        app.router.add_get("/v1/bundles/active.tar.gz", pull)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            url = "http://{}:{}".format(*runner.addresses[0][:2])
            async with run_opa(url, *REQUIRED) as opa, engine_at(opa.url, deadline_s=5) as engine:
                await until(lambda: len(pulls) >= 2)
                assert not await engine.is_ready()
        finally:
            await runner.cleanup()

    def test_a_key_that_does_not_fit_is_told_at_the_start(self) -> None:
        with pytest.raises(ValueError, match="the key does not fit ES256"):
            BundleSigner("no PEM", algorithm="ES256", key_id="gateway")


def change_file(archive: bytes, name: str) -> bytes:
    """The archive with one file changed (or added)."""
    changed = {".manifest": b'{"revision":"r1","roots":[""],"rego_version":1}', "data.json": b'{"names":{}}'}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as packed:
        files = {entry.name: found.read() for entry in packed if (found := packed.extractfile(entry)) is not None}
    files[name] = changed.get(name, b"package gateway.extra\n\nx := 1\n" if name not in files else files[name] + b"\n# more\n")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as packed:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def test_equal_revisions_give_equal_bytes_and_other_ones_others() -> None:
    first, second, other = pack_bundle(policies("r1")), pack_bundle(policies("r1")), pack_bundle(policies("r2"))
    assert first == second
    assert first.etag != other.etag
