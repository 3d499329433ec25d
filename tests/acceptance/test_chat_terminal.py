"""``gateway chat`` on a real terminal: the person there agrees to a call, and does what is for the client."""

import asyncio
import os
import pty
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from tests.acceptance.conftest import Gateway, OpenGateway
from tests.fakes.gemini import KEY, calls, run_gemini, text

BOOKING = {"hotelId": "h1", "itineraryId": "it-1", "totalUsd": 200}


class Terminal:
    """A command on a pseudo terminal, and the screen as it has been written so far."""

    def __init__(self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, terminal: int) -> None:
        self._reader = reader
        self._terminal = terminal
        self.process = process
        self.screen = ""

    async def read(self, until: str | None = None) -> None:
        """Read on until a text has come, or the command has ended."""
        async with asyncio.timeout(30):
            while until is None or until not in self.screen:
                try:
                    chunk = await self._reader.read(4096)
                except OSError:  # Linux says so once nobody has the terminal open any more
                    chunk = b""
                if not chunk:
                    assert until is None, self.screen
                    return
                self.screen += chunk.decode()

    def type(self, line: str) -> None:
        """Type a line."""
        os.write(self._terminal, line.encode() + b"\n")


@asynccontextmanager
async def terminal_with(*arguments: str, **environment: str) -> AsyncGenerator[Terminal]:
    """A command of the gateway's, whose three standard files are one terminal."""
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", *arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=dict(os.environ) | environment,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(ours), "rb", buffering=0)
    )
    try:
        yield Terminal(process, reader, ours)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        transport.close()
        os.close(ours)


@pytest.mark.parametrize(("answer", "bookings", "status"), [("y", 1, "ok"), ("", 0, "blocked")])
async def test_the_person_at_the_terminal_is_asked(
    open_with: OpenGateway,
    copied_bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    bookings: int,
    status: str,
):
    workflows = yaml.safe_load((copied_bundle / "workflows.yaml").read_text())
    workflows["trip_booking"]["tools"].append("open_screen")
    workflows["trip_booking"]["confirmation"] |= {"rule": "self"}
    (copied_bundle / "workflows.yaml").write_text(yaml.safe_dump(workflows, sort_keys=False))
    principals = yaml.safe_load((copied_bundle / "principals.yaml").read_text())
    principals["subjects"]["ada"]["permissions"] += ["booking:approve"]
    (copied_bundle / "principals.yaml").write_text(yaml.safe_dump(principals))
    (copied_bundle / "cases" / "screens.yaml").unlink()  # says among others that bookings show no screens
    secret = tmp_path / "ada.key"
    secret.write_text("key-of-ada")
    keys = [{"secret": {"file": str(secret)}, "roles": ["approver"], "person": "ada", "tenant": "default"}]
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    script = [calls(("book_hotel", BOOKING)), calls(("open_screen", {"screen": "hotel/h1"})), text("That is all.")]
    async with run_gemini(script) as gemini:
        gateway: Gateway = await open_with(copied_bundle, gemini_base_url=gemini.url, keys=keys)
        asked = ("chat", "Book it", "--workflow", "trip_booking", "--context", "requestVersion=1")
        environment = {"GATEWAY_URL": gateway.url, "GATEWAY_API_KEY": "dev-agent-key", "GATEWAY_PERSON_KEY": "key-of-ada"}
        async with terminal_with(*asked, **environment) as terminal:
            await terminal.read("Do you agree? [y/N]: ")
            assert '"hotelId": "h1"' in terminal.screen
            assert gateway.travel.arrivals.count("POST /bookings") == 0
            terminal.type(answer)
            await terminal.read("Did you do it? [Y/n]: ")
            assert "hotel/h1" in terminal.screen
            assert gemini.asked[2] == 0
            terminal.type("y")
            await terminal.read()
            assert await asyncio.wait_for(terminal.process.wait(), 30) == 0
    told = [request["contents"][-1]["parts"][0]["functionResponse"]["response"]["status"] for request in gemini.requests[1:]]
    assert told == [status, "ok"]
    assert "That is all." in terminal.screen
    assert gateway.travel.arrivals.count("POST /bookings") == bookings
