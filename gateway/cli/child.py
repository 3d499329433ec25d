"""A gateway that a command starts, waits for, and stops again: its own process, folder and sample service."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gateway.cli.http import CommandFailed

START_S = 90.0
"""Seconds until the gateway listens; the embedded PostgreSQL may have to unpack itself first."""
STOP_S = 30.0
"""Seconds from SIGTERM to the end, after which the process is killed."""
_TAIL = 2_000


@dataclass(frozen=True, kw_only=True)
class Child:
    """A serving gateway."""

    url: str
    sample_service: str | None
    errors: Path
    """What it wrote to stderr."""

    def last_words(self) -> str:
        """The end of what it wrote to stderr."""
        return _tail(self.errors)


@asynccontextmanager
async def serve_for_a_while(bundle: Path, environment: Mapping[str, str]) -> AsyncGenerator[Child]:
    """Run ``gateway serve --dev`` on a free port with a temporary data folder; `CommandFailed` where it does not start.

    `environment` is given to it beside this command's own.
    """
    # PostgreSQL may still be removing files of its own when the folder goes.
    with tempfile.TemporaryDirectory(prefix="gateway-", ignore_cleanup_errors=True) as folder:
        errors = Path(folder) / "stderr"
        process = await _start(bundle, Path(folder) / "data", errors, environment)
        draining: asyncio.Task[Any] | None = None
        try:
            event = await _wait_until_listening(process, errors)
            # Nobody reads on, and a full pipe would stop the gateway.
            draining = asyncio.create_task(_stdout(process).read())
            yield Child(url=event["url"], sample_service=event.get("sample_service"), errors=errors)
        finally:
            await _stop(process)
            if draining is not None:
                await draining


async def _start(bundle: Path, data: Path, errors: Path, more: Mapping[str, str]) -> asyncio.subprocess.Process:
    # Settings of the person's own gateway must not reach this one: it would open their database.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GATEWAY_", "TRAVEL_API", "GEMINI_"))}
    command = ("-m", "gateway", "serve", "--dev", "--bundle", str(bundle), "--port", "0", "--data-dir", str(data))
    with errors.open("wb") as stderr:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env=environment | dict(more),
            start_new_session=True,  # Ctrl-C is for this command, which then stops the gateway in order
        )


async def _wait_until_listening(process: asyncio.subprocess.Process, errors: Path) -> dict[str, Any]:
    try:
        async with asyncio.timeout(START_S):
            while line := await _stdout(process).readline():
                event = _event(line)
                if event.get("event") == "listening":
                    return event
            code = await process.wait()
    except TimeoutError:
        raise CommandFailed(f"gateway serve did not listen within {START_S:.0f} s\n{_tail(errors)}".rstrip()) from None
    raise CommandFailed(f"gateway serve ended with exit code {code} before it listened\n{_tail(errors)}".rstrip())


async def _stop(process: asyncio.subprocess.Process) -> None:
    # The process may end between two lines; then there is nothing left to stop.
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _stdout(process: asyncio.subprocess.Process) -> asyncio.StreamReader:
    assert process.stdout is not None  # noqa: S101 - started with a pipe
    return process.stdout


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return cast("dict[str, Any]", event) if isinstance(event, dict) else {}


def _tail(errors: Path) -> str:
    return errors.read_bytes()[-_TAIL:].decode(errors="replace").strip()
