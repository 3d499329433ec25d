"""A dispatch: once for a write, within one timeout for a read, everything given back exactly once."""

import asyncio
from dataclasses import dataclass, field

import pytest

from gateway.domain.outcome import Delivery, Phase
from gateway.executors.breaker import Breaker, Permit
from gateway.executors.slots import SlotDispatch, Slots

FINE = Delivery(phase=Phase.ANSWERED, status=200)
FAILED = Delivery(phase=Phase.ANSWERED, status=500)


@dataclass
class Setup:
    """A dispatch in the only slot, behind a breaker that is tried with it."""

    now: float = 0.0
    seconds: list[float] = field(default_factory=list[float])
    answer: Delivery = FINE

    def __post_init__(self) -> None:
        self.slots = Slots(1, 0.01)
        self.breaker = Breaker(lambda: self.now)
        for _ in range(20):
            permit = self.breaker.take()
            assert isinstance(permit, Permit)
            permit.record(FAILED)
        self.now = 5.0

    async def send(self, seconds: float) -> Delivery:
        self.seconds.append(seconds)
        return self.answer

    async def dispatch(self, *, is_read: bool) -> SlotDispatch:
        assert await self.slots.take()
        permit = self.breaker.take()
        assert isinstance(permit, Permit)
        return SlotDispatch(self.slots, self.send, timeout=3.0, is_read=is_read, clock=lambda: self.now, permit=permit)


@pytest.fixture
def setup() -> Setup:
    return Setup()


async def test_a_write_is_sent_once(setup: Setup):
    dispatch = await setup.dispatch(is_read=False)
    assert await dispatch.send() == FINE
    assert not dispatch.may_repeat()
    with pytest.raises(RuntimeError):
        await dispatch.send()
    assert setup.seconds == [3.0]


async def test_all_sends_of_a_read_share_one_timeout(setup: Setup):
    dispatch = await setup.dispatch(is_read=True)
    await dispatch.send()
    assert dispatch.may_repeat()
    setup.now += 1.0
    await dispatch.send()
    setup.now += 5.0
    await dispatch.send()
    assert setup.seconds == [3.0, 2.0, 0.0]


async def test_a_read_is_not_repeated_through_an_open_breaker(setup: Setup):
    setup.answer = FAILED
    dispatch = await setup.dispatch(is_read=True)
    await dispatch.send()
    assert not dispatch.may_repeat()


@pytest.mark.parametrize("is_sent", [True, False])
async def test_permit_and_slot_come_back_once_sent_or_not(setup: Setup, is_sent: bool):  # noqa: FBT001
    dispatch = await setup.dispatch(is_read=False)
    if is_sent:
        await dispatch.send()
    dispatch.release()
    with pytest.raises(ValueError):
        dispatch.release()
    with pytest.raises(RuntimeError):
        await dispatch.send()
    again = await setup.dispatch(is_read=False)  # the slot, and the trial of the breaker
    again.release()


async def test_a_cancelled_send_gives_the_trial_of_the_breaker_back(setup: Setup):
    dispatch = await setup.dispatch(is_read=False)

    async def hang(_seconds: float) -> Delivery:
        await asyncio.sleep(60)
        return FINE

    dispatch._send = hang  # pyright: ignore[reportPrivateUsage]
    sending = asyncio.create_task(dispatch.send())
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    dispatch.release()
    (await setup.dispatch(is_read=False)).release()
