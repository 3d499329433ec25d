"""``gateway serve``: the gateway as a process."""

import asyncio
import contextlib
import json
import logging
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import click
import structlog
from aiohttp import web

from gateway.app import DEV_HOSTS, BundleRefused, DevMode, StartError, open_gateway
from gateway.cli.check import show_report
from gateway.cli.settings import EXIT_INVALID, EXIT_UNEXPECTED, EXIT_USAGE, database_options, fail, load_settings, run
from gateway.domain.decision import GatewayFault
from gateway.sample.travel import create_app as create_travel
from gateway.settings import Settings, SettingsError


@click.command()
@click.option(
    "--bundle", "bundle_dir", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True, help="Folder to serve."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.")
@database_options
@click.option("--dev", "is_dev", is_flag=True, help="Fixed keys, loopback only, the sample travel service. Never for real.")
def serve(
    bundle_dir: Path, host: str, port: int, config: Path | None, data_dir: Path | None, database_url: str | None, *, is_dev: bool
) -> None:
    """Check a bundle, put it in force and serve it until SIGTERM or Ctrl-C.

    Prints one JSON line when ready. Stopping lets running executions end first.
    """
    if is_dev and host not in DEV_HOSTS:
        fail("--dev has fixed keys and listens on loopback only", EXIT_USAGE)
    _log_to_stderr()
    settings = load_settings(config, data_dir=data_dir, database_url=database_url)
    try:
        run(_serve(settings, bundle_dir, host, port, is_dev=is_dev))
    except BundleRefused as refused:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for the ready line
            show_report(refused.report, bundle_dir, "table")
        sys.exit(EXIT_INVALID)
    except SettingsError as error:
        fail(str(error), EXIT_USAGE)
    except (StartError, OSError) as error:
        fail(str(error), EXIT_UNEXPECTED)
    except GatewayFault as fault:
        fail(f"{fault.reason_code}: {fault.detail}", EXIT_UNEXPECTED)


async def _serve(settings: Settings, bundle_dir: Path, host: str, port: int, *, is_dev: bool) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with _sample_service(settings, is_dev=is_dev) as travel_api:
        dev = DevMode(travel_api=travel_api) if travel_api is not None else None
        async with open_gateway(settings, bundle_dir=bundle_dir, dev=dev) as running:
            runner = web.AppRunner(running.app, access_log=None, shutdown_timeout=settings.drain_s)
            await runner.setup()
            try:
                await web.TCPSite(runner, host, port).start()
                listening = {"event": "listening", "url": _url_of(runner), "sample_service": travel_api, "revision": running.revision}
                print(json.dumps(listening), flush=True)
                await stop.wait()
                running.draining.set()
            finally:
                await runner.cleanup()
                cut_off = await running.tasks.drain(settings.drain_s)
                if cut_off:
                    structlog.get_logger("gateway").warning("executions_cut_off", count=cut_off)


@contextlib.asynccontextmanager
async def _sample_service(settings: Settings, *, is_dev: bool) -> AsyncGenerator[str | None]:
    """The origin of the travel service for --dev, started here where none was named; None without --dev."""
    if not is_dev:
        yield None
    elif settings.travel_api is not None:
        yield settings.travel_api
    else:
        runner = web.AppRunner(create_travel(), access_log=None, shutdown_timeout=0.2)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield _url_of(runner)
        finally:
            await runner.cleanup()


def _url_of(runner: web.AppRunner) -> str:
    host, port = runner.addresses[0][:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _log_to_stderr() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )
