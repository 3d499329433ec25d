"""Group commit: writes share batches, endings go first, one bad write fails alone, too many are refused at once."""

import asyncio
from collections.abc import Sequence

import pytest

from gateway.domain.decision import LedgerUnavailable, Overloaded
from gateway.ledger.coalescer import Coalescer, Write


class Commits:
    """Commits that take a moment, and what was in each."""

    def __init__(self) -> None:
        self.batches: list[list[Write]] = []
        self.bad: set[Write] = set()
        self.fault: Exception | None = None
        self.postpone: set[Write] = set()
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, _: str, writes: Sequence[Write]) -> Sequence[Write]:
        await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        if self.bad.intersection(writes):
            raise ValueError("bad data")
        self.batches.append(list(writes))
        for place, write in enumerate(writes):
            write.found = place
        later = [write for write in writes if write in self.postpone]
        self.postpone.difference_update(later)
        return later


@pytest.fixture
async def commits() -> Commits:
    return Commits()


async def test_gathers_what_comes_while_a_batch_is_under_way(commits: Commits):
    coalescer = Coalescer(commits, max_batch=8, max_parallel=1)
    found = await asyncio.gather(*(coalescer.submit("t", Write()) for _ in range(20)))
    assert [len(batch) for batch in commits.batches] == [1, 8, 8, 3]
    assert found[0] == 0
    assert found[1:9] == list(range(8))


async def test_puts_endings_first_and_never_sheds_them(commits: Commits):
    coalescer = Coalescer(commits, max_batch=2, max_parallel=1, max_waiting=1)
    commits.gate.clear()
    first = asyncio.create_task(coalescer.submit("t", Write()))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(coalescer.submit("t", Write()))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await coalescer.submit("t", Write())
    ends = [Write(is_ending=True) for _ in range(2)]
    ending = [asyncio.create_task(coalescer.submit("t", end)) for end in ends]
    await asyncio.sleep(0)
    commits.gate.set()
    await asyncio.gather(first, waiting, *ending)
    assert [len(batch) for batch in commits.batches] == [1, 2, 1]
    assert commits.batches[1] == ends


async def test_fails_a_bad_write_alone(commits: Commits):
    coalescer = Coalescer(commits, max_parallel=1)
    writes = [Write() for _ in range(5)]
    commits.bad = {writes[2]}
    results = await asyncio.gather(*(coalescer.submit("t", write) for write in writes), return_exceptions=True)
    assert [type(result).__name__ for result in results] == ["int", "int", "ValueError", "int", "int"]


async def test_fails_a_whole_batch_when_the_ledger_is_away(commits: Commits):
    coalescer = Coalescer(commits, max_parallel=1)
    commits.fault = LedgerUnavailable("away")
    results = await asyncio.gather(*(coalescer.submit("t", Write()) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [LedgerUnavailable] * 3
    commits.fault = None
    assert await coalescer.submit("t", Write()) == 0


async def test_commits_what_a_batch_postponed_next(commits: Commits):
    coalescer = Coalescer(commits, max_parallel=1)
    write = Write()
    commits.postpone = {write}
    assert await coalescer.submit("t", write) == 0
    assert commits.batches == [[write], [write]]


async def test_commits_a_write_whose_caller_has_left(commits: Commits):
    coalescer = Coalescer(commits, max_parallel=1)
    commits.gate.clear()
    waiting = asyncio.create_task(coalescer.submit("t", Write()))
    await asyncio.sleep(0)
    waiting.cancel()
    commits.gate.set()
    await coalescer.close()
    assert len(commits.batches) == 1


async def test_keeps_tenants_apart(commits: Commits):
    coalescer = Coalescer(commits, max_parallel=1)
    await asyncio.gather(*(coalescer.submit(tenant, Write()) for tenant in ("a", "b", "a", "b")))
    assert [len(batch) for batch in commits.batches] == [1, 1, 1, 1]
