"""`GatewayClient` for programs without an event loop.

    with SyncGatewayClient(GatewayClient("http://127.0.0.1:8080", key, workflow="trip_planning", run_id="run-42")) as client:
        answer = client.call("search_hotels", {"city": "Paris, France"})

Each method does what the one of the same name does there, and raises the same. Safe to call from several threads.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

from gateway.client import GatewayClient, ToolFormat, TurnDialect
from gateway.domain.result import Answer, RoundAnswer

_T = TypeVar("_T")


class SyncGatewayClient:
    """Runs a `GatewayClient`, which nobody has entered yet, on an event loop in a thread of its own. Use as a context manager."""

    def __init__(self, client: GatewayClient, *, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._client = client
        self._loop = loop
        """Where the client runs; None outside the `with` block."""
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            loop = asyncio.new_event_loop()
            opened.callback(loop.close)
            thread = threading.Thread(target=loop.run_forever, name="gateway-client", daemon=True)
            thread.start()
            opened.callback(thread.join)
            opened.callback(loop.call_soon_threadsafe, loop.stop)
            self._loop = loop
            self._run(self._client.__aenter__())
            self._exits = opened.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._exits:
            self._run(self._client.__aexit__(kind, error, trace))
            self._loop = None

    def within(self, **envelope: Any) -> "SyncGatewayClient":
        """See `GatewayClient.within`."""
        return SyncGatewayClient(self._client.within(**envelope), loop=self._loop)

    def tools(self, format: ToolFormat = "gemini") -> list[dict[str, Any]]:  # noqa: A002 - the wire's word
        """See `GatewayClient.tools`."""
        return self._run(self._client.tools(format))

    def gemini_config(self, *, tools: Sequence[Any] = (), **fields: Any) -> dict[str, Any]:
        """See `GatewayClient.gemini_config`."""
        return self._run(self._client.gemini_config(tools=tools, **fields))

    def call(
        self,
        name: str,
        args: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the wire's word
        idempotency_key: str | None = None,
        approval_id: str | None = None,
    ) -> Answer:
        """See `GatewayClient.call`."""
        return self._run(self._client.call(name, args, id=id, idempotency_key=idempotency_key, approval_id=approval_id))

    def round(self, calls: Iterable[Mapping[str, Any]], *, idempotency_key: str | None = None) -> RoundAnswer:
        """See `GatewayClient.round`."""
        return self._run(self._client.round(calls, idempotency_key=idempotency_key))

    def answer_turn(self, turn: Any, dialect: TurnDialect, *, idempotency_key: str | None = None, patience_s: float = 0) -> Any:
        """See `GatewayClient.answer_turn`."""
        return self._run(self._client.answer_turn(turn, dialect, idempotency_key=idempotency_key, patience_s=patience_s))

    def answer_gemini(self, response: Any, *, idempotency_key: str | None = None, patience_s: float = 0) -> Any:
        """See `GatewayClient.answer_gemini`."""
        return self._run(self._client.answer_gemini(response, idempotency_key=idempotency_key, patience_s=patience_s))

    def look_up(self, decision_id: str, *, wait: float | None = None) -> Answer:
        """See `GatewayClient.look_up`."""
        return self._run(self._client.look_up(decision_id, wait=wait))

    def wait(self, answer: Answer, *, patience_s: float = 600) -> Answer:
        """See `GatewayClient.wait`."""
        return self._run(self._client.wait(answer, patience_s=patience_s))

    def report(self, execution_id: str, status: str, data: Any = None) -> Answer:
        """See `GatewayClient.report`."""
        return self._run(self._client.report(execution_id, status, data))

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        if self._loop is None or not self._loop.is_running():
            work.close()
            raise RuntimeError("use SyncGatewayClient in a `with` block")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C: nobody waits for it any more
            raise
