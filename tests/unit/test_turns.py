"""Turns: equal keys wait for each other, others do not, nothing is kept when nobody waits."""

import asyncio

import pytest

from gateway.domain.decision import Overloaded
from gateway.turns import Turns


async def test_lets_one_at_a_time_through_for_a_key_in_order_of_arrival():
    turns, order, inside = Turns(), list[int](), 0

    async def work(number: int) -> None:
        nonlocal inside
        async with turns.open() as turn:
            await turn.take(["a", f"own-{number}"])
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            order.append(number)
            inside -= 1

    await asyncio.gather(*(work(number) for number in range(5)))
    assert order == [0, 1, 2, 3, 4]
    assert vars(turns) == {"_locks": {}, "_users": {}}


async def test_gives_up_after_its_patience_and_leaves_nothing_locked():
    turns = Turns()
    async with turns.open() as first:
        await first.take(["b"])
        with pytest.raises(Overloaded):
            async with turns.open(patience_s=0.01) as second:
                await second.take(["a", "b"])
        async with turns.open(patience_s=0.01) as third:
            await third.take(["a"])
    assert vars(turns) == {"_locks": {}, "_users": {}}
