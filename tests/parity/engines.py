"""Both engines on the same policies and inputs, through the adapters that the gateway uses; what each comes to, in one form."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from gateway.domain.catalogue import PolicySet
from gateway.domain.decision import PolicyFault
from gateway.domain.json_values import is_array, is_object
from gateway.domain.ports import PolicyEngine
from gateway.policy.embedded import EmbeddedEngine
from gateway.policy.opa import OpaEngine
from tests.opa import PulledOpa, pulled_opa

AT_ONCE = 32
DEADLINE_S = 60.0
"""For both: the suite compares answers, not speed."""

Outcome = bytes
"""The answer as sorted JSON, or the code of the fault."""


class Pair:
    """The embedded engine and a real OPA."""

    def __init__(self, opa: PulledOpa) -> None:
        self.opa = opa
        self.embedded = EmbeddedEngine(evaluation_s=DEADLINE_S, patience_s=2 * DEADLINE_S)

    async def load(self, policies: PolicySet) -> None:
        """Both decide under this revision from now on, and no other."""
        await self.embedded.activate(policies)
        await self.embedded.retain({policies.revision})
        await self.opa.activate(policies)
        await self.opa.retain({policies.revision})

    async def compare(self, revision: str, documents: Sequence[bytes]) -> list[tuple[Outcome, Outcome]]:
        """What the embedded engine and OPA make of each document, in order."""
        ours, theirs = await asyncio.gather(_run(self.embedded, revision, documents), _run(self.opa, revision, documents))
        return list(zip(ours, theirs, strict=True))


@asynccontextmanager
async def open_pair() -> AsyncGenerator[Pair]:
    """Start both; skips where there is no OPA."""
    async with pulled_opa() as make:
        opa: OpaEngine = make(deadline_s=DEADLINE_S)
        pair = Pair(opa)
        try:
            yield pair
        finally:
            await pair.embedded.close()
            await opa.close()


async def _run(engine: PolicyEngine, revision: str, documents: Sequence[bytes]) -> list[Outcome]:
    places = asyncio.Semaphore(AT_ONCE)

    async def run_one(document: bytes) -> Outcome:
        async with places:
            try:
                return write(await engine.decide(revision, document))
            except PolicyFault as fault:
                return fault.reason_code.encode()

    return await asyncio.gather(*(run_one(document) for document in documents))


def write(answer: Any) -> bytes:
    """JSON with sorted keys; a number is what it is worth, however an engine writes it."""
    return json.dumps(_plain(answer), sort_keys=True, ensure_ascii=False).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(value) if abs(value) <= 2**53 and value == int(value) else float(value)
    if is_array(value):
        return [_plain(item) for item in value]
    if is_object(value):
        return {key: _plain(item) for key, item in value.items()}
    return value
