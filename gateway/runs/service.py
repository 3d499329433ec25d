"""All runs of a gateway: starting, taking over, cancelling, and following their events."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import datetime

from gateway.domain.decision import LedgerUnavailable, Overloaded
from gateway.domain.drafts import cancellation_draft
from gateway.domain.runs import Event, HeldRun, NewRun, PlainRun, RunEnd, RunKey, RunRow, RunState, StoredEvent
from gateway.runs.loop import Loop
from gateway.runs.parts import POLL_S, Parts

EVERY_S = 1.0
"""Between two looks for runs whose gateway died."""
PAGE = 100
"""Events that are read at once."""


class Wakes:
    """Wakes those who follow a run in this process; the others find out by looking."""

    def __init__(self) -> None:
        self._listeners: dict[RunKey, set[asyncio.Event]] = {}

    def wake(self, key: RunKey) -> None:
        """There are new events."""
        for news in self._listeners.get(key, ()):
            news.set()

    @contextmanager
    def listen(self, key: RunKey) -> Generator[asyncio.Event]:
        """An event that is set whenever there are new events."""
        news = asyncio.Event()
        self._listeners.setdefault(key, set()).add(news)
        try:
            yield news
        finally:
            self._listeners[key].discard(news)
            if not self._listeners[key]:
                del self._listeners[key]


class Runs:
    """The runs that this gateway drives, and all others as far as they can be looked at."""

    def __init__(self, parts: Parts, wakes: Wakes, *, tenants: Callable[[], Iterable[str]], max_runs: int, max_streams: int) -> None:
        self._parts = parts
        self._wakes = wakes
        self._tenants = tenants
        self._max_runs = max_runs
        self._max_streams = max_streams
        self._driven = 0
        self._streams = 0

    @property
    def has_model(self) -> bool:
        """Whether runs can be started here."""
        return self._parts.model is not None

    async def start(self, run: NewRun) -> RunKey:
        """Start a run, or find the one that its start key already started. Raises Overloaded, RunKeyReused, LedgerUnavailable."""
        self._refuse_too_many()
        first = Event(type="run.started", data={"run_id": run.key.run_id, "workflow": run.workflow, "model": run.model})
        held = await self._parts.store.start(run, first, lease_s=self._parts.lease_s)
        if isinstance(held, RunKey):
            return held
        self._drive(held)
        return run.key

    async def resume(self, key: RunKey) -> None:
        """Go on here with a run that nobody holds any more, or that ended resumably; nothing happens where neither is so."""
        self._refuse_too_many()
        held = await self._parts.store.reopen(key, lease_s=self._parts.lease_s)
        if held is not None:
            self._drive(held)

    async def cancel(self, key: RunKey) -> None:
        """Let no further call of a run be admitted, and end its loop where it has one. Safe to repeat."""
        record = cancellation_draft(self._parts.new_id(), key.tenant, key.agent, key.run_id)
        end = RunEnd.RUN_CANCELLED
        last = Event(type="run.failed", data={"reason_code": end.value, "message": end.message, "is_resumable": end.is_resumable})
        await self._parts.store.cancel(key, record, last)
        self._wakes.wake(key)

    async def get(self, key: RunKey) -> RunRow | None:
        """A run whose loop a gateway owns."""
        return await self._parts.store.get(key)

    async def get_plain(self, key: RunKey) -> PlainRun | None:
        """A run by its calls, whoever owns its loop."""
        return await self._parts.store.get_plain(key)

    async def find(
        self, tenant: str, agent: str, *, state: RunState | None, before: tuple[datetime, str] | None, limit: int
    ) -> Sequence[RunRow]:
        """An agent's runs, newest first."""
        return await self._parts.store.find(tenant, agent, state=state, before=before, limit=limit)

    async def follow(self, key: RunKey, *, after: int) -> AsyncGenerator[StoredEvent | None]:
        """The events of a run after an id, as they come, until its end or this gateway's; None each time nothing was new.

        Raises Overloaded at the first step.
        """
        if self._streams >= self._max_streams:
            raise Overloaded(f"{self._streams} streams are open")
        self._streams += 1
        try:
            with self._wakes.listen(key) as news:
                is_over = False
                while not is_over:
                    news.clear()
                    events, is_over = await self._look(key, after)
                    for event in events:
                        after = event.id
                        yield event
                    if not events and not is_over:
                        yield None
                        await self._wait_for(news)
                        is_over = self._parts.draining.is_set()
        finally:
            self._streams -= 1

    async def keep(self) -> None:
        """Take over runs whose gateway died or stopped, until cancelled. A fault is reported and does not end it."""
        while True:
            await asyncio.sleep(EVERY_S * random.uniform(0.8, 1.2))  # noqa: S311 - a pause, not a secret
            try:
                await self.look()
            except Exception as fault:  # noqa: BLE001 - the next look goes on
                self._parts.report(fault)

    async def look(self) -> None:
        """Take over what is due, as far as there is room."""
        for tenant in self._tenants():
            room = self._max_runs - self._driven
            if self.has_model and room > 0 and not self._parts.draining.is_set():
                for held in await self._parts.store.take_due(tenant, lease_s=self._parts.lease_s, limit=room):
                    self._drive(held)

    def _refuse_too_many(self) -> None:
        if self._driven >= self._max_runs:
            raise Overloaded(f"{self._driven} runs are under way here")
        if self._parts.draining.is_set():
            raise Overloaded("this gateway stops")

    def _drive(self, held: HeldRun) -> None:
        if self._parts.model is None:
            raise RuntimeError("no model is configured")
        self._driven += 1
        task = self._parts.tasks.start(Loop(self._parts, self._parts.model, held).run())
        task.add_done_callback(self._forget)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._driven -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            self._parts.report(error if isinstance(error, Exception) else RuntimeError(type(error).__name__))

    async def _look(self, key: RunKey, after: int) -> tuple[Sequence[StoredEvent], bool]:
        try:
            found = await self._parts.store.events(key, after=after, limit=PAGE)
        except LedgerUnavailable:
            return (), False  # the stream stays; the events are not lost
        if found is None:
            return (), True
        state, events = found
        return events, state is not RunState.RUNNING and len(events) < PAGE

    async def _wait_for(self, news: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(random.uniform(*POLL_S)):  # noqa: S311 - a pause, not a secret
                await news.wait()
        except TimeoutError:
            return
