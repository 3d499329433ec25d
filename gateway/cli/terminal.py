"""What commands write on a terminal: data that others wrote may not move its cursor."""

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


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
