"""``gateway sample-travel``: the sample travel service as a process of its own."""

import asyncio
import json
import signal

import click
from aiohttp import web

from gateway.sample.travel import create_app


@click.command("sample-travel")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, show_default=True, type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.")
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
        await web.TCPSite(runner, host, port).start()
        listening_host, listening_port = runner.addresses[0][:2]
        name = f"[{listening_host}]" if ":" in listening_host else listening_host
        print(json.dumps({"event": "listening", "url": f"http://{name}:{listening_port}"}), flush=True)
        await stop.wait()
    finally:
        await runner.cleanup()
