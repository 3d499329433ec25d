"""``gateway serve``: the gateway as a process."""

import asyncio
import contextlib
import errno
import gc
import json
import logging
import signal
import sys
from collections.abc import AsyncGenerator, Generator, Mapping
from pathlib import Path
from typing import Any

import click
import structlog
from aiohttp import web

from gateway.api.server import make_runner
from gateway.app import DEV_HOSTS, BundleRefused, DevMode, Running, StartError, check, open_gateway, operator_database, put_in_force
from gateway.bundle.watch import changes
from gateway.cli.check import show_report
from gateway.cli.protocol_log import log_protocol
from gateway.cli.settings import (
    EXIT_INVALID,
    EXIT_UNEXPECTED,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    database_options,
    describe_unreachable,
    fail,
    load_settings,
    run,
)
from gateway.cli.workers import Crew, Parent, WorkerFailed, reserve_port
from gateway.domain.decision import GatewayFault, LedgerUnavailable
from gateway.sample.travel import create_app as create_travel
from gateway.settings import Settings, SettingsError

_CLOSE_S = 15.0
"""What a worker may take to stop beside its two waits: for open requests, and for executions."""


@click.command()
@click.option(
    "--bundle",
    "bundle_dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder to put in force and serve; without it, what is in force already.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.")
@database_options
@click.option("--opa-url", help="OPA to decide instead of the embedded engine, such as http://127.0.0.1:8181. [GATEWAY_OPA_URL]")
@click.option("--dev", "is_dev", is_flag=True, help="Fixed keys, loopback only, the sample travel service. Never for real.")
@click.option(
    "--workers", default=1, show_default=True, type=click.IntRange(1, 64), help="Processes that share the port, each a whole gateway."
)
@click.option("--worker-line", type=int, hidden=True, help="Descriptor of the line to the parent that started this worker.")
def serve(
    bundle_dir: Path | None,
    host: str,
    port: int,
    config: Path | None,
    data_dir: Path | None,
    database_url: str | None,
    opa_url: str | None,
    workers: int,
    worker_line: int | None,
    *,
    is_dev: bool,
) -> None:
    """Check a bundle, put it in force and serve it until SIGTERM or Ctrl-C.

    Where another revision is in force already, --bundle is an error: `gateway bundle` changes what is in force. With --dev
    the folder counts, and is followed: what is saved there is in force a second later, unless a check fails.

    Prints one JSON line when ready. Stopping lets running executions end first. With --workers this process watches the
    others: it replaces one that dies, and ends when all have ended. Limits of the settings hold for each worker.
    """
    if is_dev and host not in DEV_HOSTS:
        fail("--dev has fixed keys and listens on loopback only", EXIT_USAGE)
    _log_to_stderr()
    settings = load_settings(config, data_dir=data_dir, database_url=database_url, opa_url=opa_url)
    try:
        if workers == 1:
            parent = Parent(worker_line) if worker_line is not None else None
            run(_serve(settings, bundle_dir, host, port, is_dev=is_dev, parent=parent))
        else:
            shared = {"--bundle": bundle_dir, "--config": config, "--data-dir": data_dir, "--opa-url": opa_url}
            arguments = [word for option, value in shared.items() if value is not None for word in (option, str(value))]
            run(_serve_with_workers(settings, workers, arguments, host, port, is_dev=is_dev))
    except WorkerFailed as failed:
        sys.exit(failed.exit_code)
    except BundleRefused as refused:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for the ready line
            show_report(refused.report, bundle_dir or Path(), "table")
        sys.exit(EXIT_INVALID)
    except SettingsError as error:
        fail(str(error), EXIT_USAGE)
    except (StartError, OSError) as error:
        fail(str(error), EXIT_UNEXPECTED)
    except LedgerUnavailable as fault:
        fail(describe_unreachable(settings, fault), EXIT_UNREACHABLE)
    except GatewayFault as fault:
        fail(f"{fault.reason_code}: {fault.detail}", EXIT_UNEXPECTED)


async def _serve(settings: Settings, bundle_dir: Path | None, host: str, port: int, *, is_dev: bool, parent: Parent | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if parent is not None:
        parent.watch(on_end=stop.set)
    async with _sample_service(settings, is_dev=is_dev) as travel_api:
        dev = DevMode(travel_api=travel_api) if travel_api is not None else None
        async with open_gateway(settings, report=await check(bundle_dir) if bundle_dir else None, dev=dev) as running:
            runner = make_runner(running.app, patience_s=settings.drain_s)
            await runner.setup()
            try:
                await listen(runner, host, port, is_shared=parent is not None)
                listening = {"event": "listening", "url": _url_of(runner), "sample_service": travel_api, "revision": running.revision}
                _announce(listening) if parent is None else parent.tell(listening)
                _spare_the_collector()
                async with asyncio.TaskGroup() as watching:
                    watch = watching.create_task(_follow(bundle_dir, running)) if is_dev and bundle_dir is not None else None
                    await stop.wait()
                    if watch is not None:
                        watch.cancel()
                running.draining.set()
            finally:
                await runner.cleanup()
                cut_off = await running.tasks.drain(settings.drain_s)
                if cut_off:
                    structlog.get_logger("gateway").warning("executions_cut_off", count=cut_off)


async def _serve_with_workers(settings: Settings, count: int, arguments: list[str], host: str, port: int, *, is_dev: bool) -> None:
    async with contextlib.AsyncExitStack() as stack:
        with _explained(host, port):
            port = stack.enter_context(reserve_port(host, port))
        travel_api = await stack.enter_async_context(_sample_service(settings, is_dev=is_dev))
        # By the environment: it is not for everybody who lists processes.
        shared = {"TRAVEL_API": travel_api, "GATEWAY_DATABASE_URL": settings.database_url}
        crew = Crew(
            [*arguments, "--host", host, "--port", str(port), *(["--dev"] if is_dev else [])],
            {name: value for name, value in shared.items() if value is not None},
            patience_s=2 * settings.drain_s + _CLOSE_S,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, crew.stop)
        # Held here too: the embedded PostgreSQL outlives every worker, however they end.
        await crew.serve(count, hold=lambda: operator_database(settings), announce=_announce)


async def _follow(folder: Path, running: Running) -> None:
    """Put in force what is saved in the folder, where it passes its checks; else say why not, and the revision before stays."""
    async for _ in changes(folder, running.revision):
        try:
            report = await check(folder)
            with contextlib.redirect_stdout(sys.stderr):
                show_report(report, folder, "table")
            if report.checked is not None and report.is_good:
                await put_in_force(running.revisions, report.checked, by="serve --dev", replaces_any=True)
                click.echo(f"{folder}: in force now: {report.checked.bundle.revision}", err=True)
            else:
                click.echo(f"{folder}: the revision before stays in force", err=True)
        except (StartError, SettingsError, GatewayFault) as error:
            click.echo(f"{folder}: the revision before stays in force: {error}", err=True)


def _spare_the_collector() -> None:
    """What stands when a gateway is ready stays; and calls leave few cycles behind, so looking for them seldom is enough."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)


def _announce(ready: Mapping[str, Any]) -> None:
    print(json.dumps(ready), flush=True)


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


async def listen(runner: web.AppRunner, host: str, port: int, *, is_shared: bool = False) -> None:
    """Open the port, shared with other workers or alone; StartError where that cannot be."""
    with _explained(host, port):
        await web.TCPSite(runner, host, port, reuse_port=is_shared).start()


@contextlib.contextmanager
def _explained(host: str, port: int) -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise StartError(f"port {port} of {host} is in use; choose another one with --port, or 0 for any") from None
        raise StartError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None


def _url_of(runner: web.AppRunner) -> str:
    host, port = runner.addresses[0][:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _log_to_stderr() -> None:
    log_protocol()
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
