"""Counting over the last seconds, in bounded memory."""

from collections import deque
from dataclasses import dataclass, field

_PARTS = 10


@dataclass(kw_only=True)
class RollingCount:
    """How often something happened in the last `window_s` seconds, seen in tenths: never more than that, up to one tenth less.

    Times are seconds of any clock that does not go backwards.
    """

    window_s: float
    _tenths: deque[list[int]] = field(default_factory=deque[list[int]], init=False)
    """[number of the tenth, count], oldest first."""

    def add(self, now: float) -> None:
        """It happened once more."""
        current = self._number(now)
        if self._tenths and self._tenths[-1][0] >= current:
            self._tenths[-1][1] += 1
        else:
            self._tenths.append([current, 1])
        self._forget(current)

    def total(self, now: float) -> int:
        """How often it happened within the window that ends now."""
        self._forget(self._number(now))
        return sum(count for _, count in self._tenths)

    def clear(self) -> None:
        """Start anew."""
        self._tenths.clear()

    def _number(self, now: float) -> int:
        return int(now * _PARTS // self.window_s)

    def _forget(self, current: int) -> None:
        while self._tenths and self._tenths[0][0] <= current - _PARTS:
            self._tenths.popleft()
