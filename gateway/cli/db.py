"""``gateway db``: the schema of the ledger's database, as the host's operator."""

from collections.abc import Callable, Coroutine
from pathlib import Path

import click

from gateway.app import operator_database
from gateway.cli.settings import EXIT_UNREACHABLE, database_options, describe_unreachable, fail, load_settings, run
from gateway.cli.terminal import WholeSentences, program
from gateway.domain.decision import LedgerUnavailable
from gateway.ledger.migrate import current_version, read_migrations, upgrade
from gateway.settings import Settings


@click.group(cls=WholeSentences)
def db() -> None:
    """Look at or upgrade the schema of the ledger's database.

    The database URL must be able to create roles the first time; the gateway itself works with fewer rights.
    """


@db.command("upgrade")
@database_options
def upgrade_command(config: Path | None, data_dir: Path | None, database_url: str | None) -> None:
    """Apply the migrations that are missing."""

    async def work(url: str) -> None:
        for migration in await upgrade(url):
            click.echo(f"applied {migration.version:04d} {migration.name}", err=True)
        click.echo(read_migrations()[-1].version)

    _run(work, load_settings(config, data_dir=data_dir, database_url=database_url))


@db.command("current")
@database_options
def current_command(config: Path | None, data_dir: Path | None, database_url: str | None) -> None:
    """Print the schema version of the database; 0 for an empty one."""

    async def work(url: str) -> None:
        found, newest = await current_version(url), read_migrations()[-1].version
        if found != newest:
            click.echo(f"this release needs {newest}: run {program()} db upgrade", err=True)
        click.echo(found)

    _run(work, load_settings(config, data_dir=data_dir, database_url=database_url))


def _run(work: Callable[[str], Coroutine[None, None, None]], settings: Settings) -> None:
    async def with_database() -> None:
        async with operator_database(settings) as url:
            await work(url)

    try:
        run(with_database())
    except LedgerUnavailable as error:
        fail(describe_unreachable(settings, error), EXIT_UNREACHABLE)
