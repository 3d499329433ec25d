"""How a bug is planted: another function, method or SQL text in the place of the gateway's own. LookupError where it has none."""

import sys
from collections.abc import Callable
from typing import Any

from gateway.ledger import database

Sql = dict[str, str]


def replace_everywhere(home: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Put another function in the place of `home.name`, also where it was imported by name."""
    old = getattr(home, name, None)
    if old is None:
        raise LookupError(f"{home.__name__}.{name}")
    new = make(old)
    for module in [found for title, found in sys.modules.items() if title.split(".")[0] == "gateway"]:
        for attribute, value in list(vars(module).items()):
            if value is old:
                setattr(module, attribute, new)
    setattr(home, name, new)


def replace_method(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Put another method in the place of `owner.name`, which must exist."""
    if name not in vars(owner):
        raise LookupError(f"{owner.__name__}.{name}")
    setattr(owner, name, make(vars(owner)[name]))


def swap_sql(*changes: tuple[str, str]) -> None:
    """Change texts of statements. Each must stand somewhere."""

    def make(read: Callable[[], Sql]) -> Callable[[], Sql]:
        statements = dict(read())
        for old, new in changes:
            if not any(old in text for text in statements.values()):
                raise LookupError(f"no statement says {old}")
            statements = {name: text.replace(old, new) for name, text in statements.items()}
        return lambda: dict(statements)

    replace_everywhere(database, "read_statements", make)
