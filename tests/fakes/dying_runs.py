"""Kills a gateway in the middle of a run: a module that a gateway imports as one of its `python_modules`.

KILL_RUN_AT says where: ``turn_stored`` before the calls of a stored turn are governed, ``round_closed`` before the reply to a
turn is stored.
"""

import os
import signal
from typing import Any

from gateway.runs.journal import Journal
from gateway.runs.rounds import Round


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _install(place: str) -> None:
    write, govern = Journal.write, Round.run

    async def write_or_die(self: Journal, step: Any) -> None:
        if place == "round_closed" and step.reply is not None:
            _die()
        await write(self, step)

    async def govern_or_die(self: Round) -> Any:
        if place == "turn_stored":
            _die()
        return await govern(self)

    Journal.write, Round.run = write_or_die, govern_or_die


if place := os.environ.get("KILL_RUN_AT"):
    _install(place)
