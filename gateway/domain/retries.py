"""When a read is sent again inside its call, after which pause, and how much of that a tool gets. Writes never are."""

from collections import deque
from dataclasses import dataclass, field

from gateway.domain.catalogue import Replay, Risk, Tool
from gateway.domain.classify import classify
from gateway.domain.outcome import CallState, Delivery, Phase
from gateway.domain.rolling import RollingCount

MAX_ATTEMPTS = 3
"""Sends of one call, the first included."""
FIRST_PAUSE_S = 0.1
"""The longest pause before the second attempt; it doubles with each further one."""
WINDOW_S = 10.0
RETRY_SHARE = 0.1
"""Retries per call of a tool over the window, beyond the floor."""
RETRIES_PER_S = 1.0
"""What every tool may retry, however few its calls are."""

_PERMANENT = frozenset({"address"})  # what the operator must mend


def is_worth_retrying(tool: Tool, delivery: Delivery) -> bool:
    """Whether sending again may bring what this delivery did not: only for reads that may be repeated, never after a refusal.

    Nothing sent, answer lost, 408, 5xx, and what the tool declares as ``no_effect`` may pass; 3xx and other 4xx are final.
    """
    if tool.declaration.risk is not Risk.READ or tool.replay is not Replay.SAFE or delivery.problem in _PERMANENT:
        return False
    if delivery.phase is Phase.ANSWERED and (delivery.status is None or delivery.status < 400):
        return False
    return classify(tool.declaration, None, delivery).state is CallState.OPEN


def pause_before(attempt: int, delivery: Delivery, chance: float) -> float:
    """Seconds to wait before `attempt` (2 and more): full jitter (AWS, "Exponential backoff and jitter"), after what Retry-After asks for.

    `chance` is drawn evenly from 0 to 1.
    """
    return (delivery.retry_after_ms or 0) / 1000 + chance * FIRST_PAUSE_S * 2 ** (attempt - 2)


@dataclass
class RetryBudget:
    """What one tool may retry: a tenth of its calls of the last 10 seconds, and one a second (Finagle's retry budgets).

    Times are seconds of any clock that does not go backwards. With it a tool that is down gets about a tenth more load, not
    three times as much.
    """

    _calls: RollingCount = field(default_factory=lambda: RollingCount(window_s=WINDOW_S), init=False)
    _retries: deque[float] = field(default_factory=deque[float], init=False)

    def count_call(self, now: float) -> None:
        """A call was sent for the first time."""
        self._calls.add(now)

    def take(self, now: float) -> bool:
        """Take one retry; False where there is none left."""
        while self._retries and self._retries[0] <= now - WINDOW_S:
            self._retries.popleft()
        if len(self._retries) + 1 > RETRIES_PER_S * WINDOW_S + RETRY_SHARE * self._calls.total(now):
            return False
        self._retries.append(now)
        return True
