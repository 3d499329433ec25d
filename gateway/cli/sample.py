"""``gateway sample-travel``: the sample travel service as a process of its own."""

import asyncio
import errno
import json
import os
import signal

import click
from aiohttp import web

from gateway.cli.http import CommandFailed, exits_as_told
from gateway.sample.travel import create_app


@click.command("sample-travel")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, show_default=True, type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.")
@exits_as_told
def sample_travel(host: str, port: int) -> None:
    """Run the sample travel service until SIGTERM or Ctrl-C."""
    asyncio.run(_serve(host, port))


async def _serve(host: str, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # Requests that hang on order must not keep the service from ending.
    runner = web.AppRunner(create_app(), access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be opened: {os.strerror(error.errno or 0)}"
            raise CommandFailed(f"port {port} of {host} {why}; choose another one with --port") from None
        listening_host, listening_port = runner.addresses[0][:2]
        name = f"[{listening_host}]" if ":" in listening_host else listening_host
        print(json.dumps({"event": "listening", "url": f"http://{name}:{listening_port}"}), flush=True)
        await stop.wait()
    finally:
        await runner.cleanup()
