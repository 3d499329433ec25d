"""Answers that go on for long: how many there may be at once, and how one ends early."""

from collections.abc import Generator
from contextlib import contextmanager

from aiohttp import web

from gateway.api.problems import Problem


class Places:
    """A bounded number of streams of one kind on this process."""

    def __init__(self, count: int) -> None:
        self._free = count

    @contextmanager
    def take(self) -> Generator[None]:
        """Hold one place for the block. Raises Problem where none is free."""
        if self._free == 0:
            raise Problem(429, "TOO_MANY_STREAMS", "This gateway serves no more of these at once.", headers={"Retry-After": "5"})
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1


EXPORTS = web.AppKey("exports", Places)
TAILS = web.AppKey("tails", Places)


def cut(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """End an answer that cannot be completed so that its reader knows: the connection breaks off."""
    if request.transport is not None:
        request.transport.abort()
    return response
