"""An engine that remembers the inputs that it decided on."""

from collections.abc import Set as AbstractSet
from typing import Any

from gateway.domain.catalogue import PolicySet
from gateway.domain.ports import PolicyEngine


class ListeningEngine:
    """Passes everything on to `engine`; `heard` are the input documents, in order."""

    def __init__(self, engine: PolicyEngine) -> None:
        self._engine = engine
        self.heard: list[bytes] = []

    @property
    def name(self) -> str:
        """The engine's own name."""
        return self._engine.name

    async def is_ready(self) -> bool:
        """As the engine says."""
        return await self._engine.is_ready()

    async def activate(self, policies: PolicySet) -> None:
        """As the engine does."""
        await self._engine.activate(policies)

    async def retain(self, revisions: AbstractSet[str]) -> None:
        """As the engine does."""
        await self._engine.retain(revisions)

    async def decide(self, revision: str, document: bytes) -> Any:
        """Remember the document, then as the engine does."""
        self.heard.append(document)
        return await self._engine.decide(revision, document)

    async def close(self) -> None:
        """As the engine does."""
        await self._engine.close()
