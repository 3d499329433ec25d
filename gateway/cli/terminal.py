"""What commands write on a terminal: data that others wrote may not move its cursor, and help is whole sentences."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class WholeSentences(click.Group):
    """A group whose help shows the first sentence of each command whole; click cuts it where its line ends."""

    def load(self, name: str) -> click.Command | None:
        """The command of that name."""
        return self.commands.get(name)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """The command, with its first sentence as its summary."""
        command = self.load(cmd_name)
        if command is not None and command.short_help is None:
            command.short_help = command.get_short_help_str(limit=1_000)
        return command


def program() -> str:
    """How to call this command line in the shell that called it: what is not on the PATH needs its path."""
    called = Path(sys.argv[0])
    if called.name != "gateway":  # python -m gateway
        return f"{sys.executable} -m gateway"
    found = shutil.which("gateway")
    if found is not None and called.exists() and Path(found).samefile(called):
        return "gateway"
    return str(called)


def printable(value: object) -> str:
    """`value` as text with control and direction characters written as escapes: models and tools choose such texts."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", str(value))


def printable_lines(text: str) -> str:
    """As `printable`, with the line ends of `text` kept."""
    return "\n".join(printable(line) for line in text.split("\n"))


def to_json(value: Any, *, indent: int | None = None) -> str:
    """JSON that is safe to show, readable where it is ASCII or not."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    # json escapes most control characters itself, so that the line ends are those of the indentation.
    return printable_lines(text)


def console() -> "Console":
    """A console on stdout; wide where nobody looks, so that pipes get whole lines."""
    from rich.console import Console  # noqa: PLC0415 - rich is loaded only by commands that draw

    return Console(width=None if sys.stdout.isatty() else 200, highlight=False, markup=False, soft_wrap=not sys.stdout.isatty())


def show(drawing: "RenderableType") -> None:
    """Print a table on stdout, without the blanks that fill its lines up."""
    out = console()
    with out.capture() as captured:
        out.print(drawing)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())
