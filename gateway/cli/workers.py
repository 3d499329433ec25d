"""Several gateway processes on one port: a parent starts them, replaces those that die, and stops them in order.

Each worker is a whole gateway that listens on the shared port itself (SO_REUSEPORT), so that the kernel spreads
connections and a dead worker's share goes to the others at once. Parent and worker are joined by a socket pair: the
worker tells over it that it accepts; its end tells the worker that its parent is gone.
"""

import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

LOG = structlog.get_logger("gateway.workers")

STEADY_S = 30.0
"""A worker that lived this long did not die of how it was started."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 30.0


class WorkerFailed(Exception):
    """A worker ended that should not have; it said why on stderr."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"a worker ended with {exit_code}")
        self.exit_code = exit_code if exit_code > 0 else 1


@dataclass(frozen=True, kw_only=True)
class _Worker:
    process: asyncio.subprocess.Process
    line: asyncio.StreamWriter
    ready: Mapping[str, Any]
    since: float


class Crew:
    """The workers of one parent. `arguments` are those of ``gateway serve``, `environment` what is added to our own."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], *, patience_s: float) -> None:
        # A worker imports from where its parent does: the current folder counts only where it did there.
        path = () if {"", str(Path.cwd())} & set(sys.path) else ("-P",)
        self._command = (*path, "-m", "gateway", "serve", *arguments)
        self._environment = dict(os.environ) | dict(environment)
        self._patience_s = patience_s
        self._stopping = asyncio.Event()
        self._processes: set[asyncio.subprocess.Process] = set()

    def stop(self) -> None:
        """Let every worker end its work and then itself."""
        self._stopping.set()
        for process in self._processes:
            # The process may end between two lines; then there is nothing left to stop.
            with contextlib.suppress(ProcessLookupError):
                process.terminate()

    async def serve(
        self, count: int, *, hold: Callable[[], AbstractAsyncContextManager[Any]], announce: Callable[[Mapping[str, Any]], None]
    ) -> None:
        """Run `count` workers until `stop`. Raises WorkerFailed where one cannot start at first, or does not stop in order.

        `hold` is entered before the second worker starts and left after the last has ended: it keeps what they share.
        """
        async with AsyncExitStack() as shared:
            try:
                # Alone: it checks the bundle, migrates and activates, and says what is wrong once. The rest find it done.
                workers = [await self._start()]
                await shared.enter_async_context(hold())
                others = await asyncio.gather(*(self._start() for _ in range(count - 1)), return_exceptions=True)
                for other in others:
                    if isinstance(other, BaseException):
                        raise other
                    workers.append(other)
                if not self._stopping.is_set():
                    announce(workers[0].ready)
                async with asyncio.TaskGroup() as keeping:
                    for worker in workers:
                        keeping.create_task(self._keep(worker))
                    await self._stopping.wait()
                    await self._end()
            except WorkerFailed:
                # Who is told to stop while it starts ends in any way that it can.
                if not self._stopping.is_set():
                    raise
            finally:
                is_clean = await self._end()
            if not is_clean:
                raise WorkerFailed(1)

    async def _start(self) -> _Worker:
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self._command,
                "--worker-line",
                str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                env=self._environment,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # a terminal's Ctrl-C is for the parent, which then stops its workers in order
            )
        self._processes.add(process)
        if self._stopping.is_set():
            self.stop()
        reader, line = await asyncio.open_connection(sock=ours)
        told = await reader.readline()
        if not told:
            line.close()
            raise WorkerFailed(await process.wait())
        return _Worker(process=process, line=line, ready=json.loads(told), since=asyncio.get_running_loop().time())

    async def _keep(self, worker: _Worker) -> None:
        """Replace a worker that ends, and its successors, until everything stops."""
        failures = 0
        while True:
            code = await worker.process.wait()
            worker.line.close()
            if self._stopping.is_set():
                return
            self._processes.discard(worker.process)
            LOG.error("worker_died", pid=worker.process.pid, exit_code=code)
            failures = 0 if asyncio.get_running_loop().time() - worker.since > STEADY_S else failures + 1
            successor = None
            while successor is None:
                if await self._pause(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**failures)):
                    return
                try:
                    successor = await self._start()
                except (WorkerFailed, OSError) as error:
                    LOG.error("worker_not_replaced", reason=str(error))  # noqa: TRY400 - the worker said more than our traceback would
                    failures = min(failures + 1, 16)
            LOG.warning("worker_replaced", pid=successor.process.pid)
            worker = successor

    async def _pause(self, seconds: float) -> bool:
        """Wait; whether everything stops meanwhile."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        return self._stopping.is_set()

    async def _end(self) -> bool:
        """Stop what still runs, at last by force; whether all ended in order."""
        self.stop()
        waits = {asyncio.create_task(process.wait()): process for process in self._processes}
        if waits:
            _, late = await asyncio.wait(waits, timeout=self._patience_s)
            for wait in late:
                LOG.error("worker_killed", pid=waits[wait].pid, patience_s=self._patience_s)
                waits[wait].kill()
            if late:
                await asyncio.wait(late)
        # One that was told to stop before it could listen to signals ends by this one.
        return all(process.returncode in (0, -signal.SIGTERM) for process in self._processes)


class Parent:
    """A worker's line to its parent."""

    def __init__(self, descriptor: int) -> None:
        self._line = socket.socket(fileno=descriptor)
        self._line.set_inheritable(False)
        self._line.setblocking(False)

    def tell(self, ready: Mapping[str, Any]) -> None:
        """Say that this worker accepts."""
        self._line.send(json.dumps(ready).encode() + b"\n")

    def watch(self, on_end: Callable[[], None]) -> None:
        """Call `on_end` once the parent is gone."""
        loop = asyncio.get_running_loop()

        def end() -> None:
            loop.remove_reader(self._line)
            on_end()

        loop.add_reader(self._line, end)


@contextmanager
def reserve_port(host: str, port: int) -> Generator[int]:
    """Bind the port for workers to share, without listening on it; the number, which was free where `port` is 0. May raise OSError.

    It stays ours while no worker listens, and another gateway that was started by mistake is noticed: it could share
    the port as well as a worker does.
    """
    with ExitStack() as sockets:
        bound = 0
        for family, kind, protocol, _, address in dict.fromkeys(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)):
            if port:
                with _bound_socket(family, kind, protocol, address, is_shared=False):
                    pass
            try:
                found = sockets.enter_context(
                    _bound_socket(family, kind, protocol, (address[0], port or bound, *address[2:]), is_shared=True)
                )
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT) or not bound:
                    raise
                continue  # a host's second family may be switched off
            bound = found.getsockname()[1]
        yield bound


def _bound_socket(family: int, kind: int, protocol: int, address: tuple[Any, ...], *, is_shared: bool) -> socket.socket:
    found = socket.socket(family, kind, protocol)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        found.bind(address)
    except OSError:
        found.close()
        raise
    return found
