"""The operator's connections: names that bundles may use, and where they lead."""

from collections.abc import Callable
from dataclasses import dataclass, field

from yarl import URL


@dataclass(frozen=True, kw_only=True)
class Connection:
    """An origin with its credential. Raises ValueError for anything that is not a plain http or https origin."""

    name: str
    origin: str
    """``https://host`` or ``http://host:port``; no path, no user, no query."""
    credential: Callable[[], str] | None = field(default=None, repr=False)
    """Gives the bearer token, asked anew for each call so that rotation needs no restart. Raises OSError, LookupError
    or ValueError where there is none now."""
    internal: bool = False
    """Whether it may lead to loopback, private and link-local addresses."""
    tenants: frozenset[str] | None = None
    """The tenants that may use it; None for all."""

    def __post_init__(self) -> None:
        """Refuse what is not an origin: a path or user in it would silently change every request."""
        url = URL(self.origin)
        if url.scheme not in {"http", "https"} or not url.host or url != url.origin():
            msg = f"connection {self.name}: the origin must look like https://host or http://host:port"
            raise ValueError(msg)

    def serves(self, tenant: str) -> bool:
        """Whether `tenant` may use it."""
        return self.tenants is None or tenant in self.tenants
