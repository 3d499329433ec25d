"""``gateway version``."""

import click

from gateway import __version__


@click.command()
def version() -> None:
    """Print the version."""
    click.echo(__version__)
