"""A circuit breaker: a service that mostly fails is left alone for a while, then tried with one call."""

import math
from collections.abc import Callable

from gateway.domain.decision import RETRY_AFTER_MS
from gateway.domain.outcome import Delivery, Phase
from gateway.domain.rolling import RollingCount

WINDOW_S = 10.0
MINIMUM_CALLS = 20
FAILURE_SHARE = 0.5
OPEN_S = 5.0
"""How long an open breaker lets nothing through before it tries one call."""

_OUR_OWN = frozenset({"address", "fault"})  # says nothing about the service


class Breaker:
    """The breaker of one connection.

    Closed: everything passes and is counted. It opens when, of at least 20 answers within 10 seconds, half or more were
    failures. Open: nothing passes. After 5 seconds half-open: one call passes; if it fails the breaker stays open for another
    5 seconds, otherwise it closes and counts anew. Calls that got their permit before it opened still go through.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._calls = RollingCount(window_s=WINDOW_S)
        self._failures = RollingCount(window_s=WINDOW_S)
        self._open_until: float | None = None
        self._trial: Permit | None = None

    @property
    def is_closed(self) -> bool:
        """Whether everything passes."""
        return self._open_until is None

    def take(self) -> "Permit | int":
        """A permit for one call, to be released exactly once; or the milliseconds after which it is worth asking again."""
        if self._open_until is None:
            return Permit(self)
        left = self._open_until - self._clock()
        if left > 0:
            return math.ceil(left * 1000)
        if self._trial is not None:
            return RETRY_AFTER_MS
        self._trial = Permit(self)
        return self._trial

    def record(self, permit: "Permit", delivery: Delivery) -> None:
        """Count what came of a send under `permit`."""
        if delivery.problem in _OUR_OWN:
            return
        now, has_failed = self._clock(), is_failure(delivery)
        if permit is self._trial:
            self._trial = None
            self._open_until = now + OPEN_S if has_failed else None
            self._calls.clear()
            self._failures.clear()
            return
        self._calls.add(now)
        if has_failed:
            self._failures.add(now)
        total = self._calls.total(now)
        if self._open_until is None and total >= MINIMUM_CALLS and self._failures.total(now) >= FAILURE_SHARE * total:
            self._open_until = now + OPEN_S

    def release(self, permit: "Permit") -> None:
        """The call is over, sent or not; a trial that never found out anything makes room for the next one."""
        if permit is self._trial:
            self._trial = None


class Permit:
    """One call's way through a breaker."""

    def __init__(self, breaker: Breaker) -> None:
        self._breaker = breaker

    def may_repeat(self) -> bool:
        """Whether the call may be sent again: only through a closed breaker."""
        return self._breaker.is_closed

    def record(self, delivery: Delivery) -> None:
        """Count what came of a send."""
        self._breaker.record(self, delivery)

    def release(self) -> None:
        """Give the permit back; exactly once."""
        self._breaker.release(self)


def is_failure(delivery: Delivery) -> bool:
    """Whether a delivery counts against its service: no connection, no answer in time, cut off, or 5xx."""
    return delivery.phase is not Phase.ANSWERED or (delivery.status is not None and delivery.status >= 500)
