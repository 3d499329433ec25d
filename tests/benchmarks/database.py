"""The benches' own PostgreSQL and folder, held by a process that clears both away when its stdin ends, however the bench ends.

Prints one JSON line when the server is ready.
"""

import asyncio
import atexit
import contextlib
import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import asyncpg

from gateway.ledger.embedded import EmbeddedPostgres
from gateway.ledger.migrate import upgrade
from tests.conftest import TEMPLATE, url_of


async def _make_template(owner_url: str) -> None:
    connection = await asyncpg.connect(owner_url)
    await connection.execute(f"CREATE DATABASE {TEMPLATE}")
    await connection.close()
    await upgrade(url_of(owner_url, TEMPLATE, "postgres"))


def main() -> None:
    """Serve until stdin ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C is for the bench, which then closes our stdin
    folder = Path(tempfile.mkdtemp(prefix="gateway-bench-"))
    # Registered before the wheel's own last act, which writes a lock file, and so done after it.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    server = EmbeddedPostgres(folder / "data")
    try:
        asyncio.run(_make_template(server.owner_url))
        with contextlib.suppress(BrokenPipeError):  # the bench is gone already
            sys.stdout.write(json.dumps({"event": "listening", "url": server.owner_url, "folder": str(folder)}) + "\n")
            sys.stdout.flush()
        sys.stdin.read()
    finally:
        server.stop()


if __name__ == "__main__":
    main()
