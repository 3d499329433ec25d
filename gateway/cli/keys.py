"""``gateway keys``: make keys, rotate them, end them; over HTTP, or in the database as the host's operator."""

import functools
import getpass
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import click

from gateway.cli.http import CommandFailed, ExitCode, GatewayHttp, connect, connection_options, exits_as_told, path_segment
from gateway.cli.pages import FORMATS, Items, draw_table, show_page
from gateway.cli.settings import EXIT_UNREACHABLE, database_options, describe_unreachable, fail, load_settings, run
from gateway.cli.terminal import WholeSentences, printable, to_json
from gateway.domain.catalogue import parse_duration
from gateway.domain.decision import LedgerUnavailable
from gateway.domain.keys import KeyGrant
from gateway.domain.ports import KeyStore, MadeKey
from gateway.domain.principal import Role
from gateway.settings import Settings

T = TypeVar("T")

_COLUMNS = ("key_id", "hint", "live", "roles", "agent", "person", "label", "created_by", "created_at", "expires_at", "revoked_at")
_MOST_LOCAL = 10_000


class HttpKeys:
    """Over the API, as role operator."""

    def __init__(self, gateway: GatewayHttp) -> None:
        self._gateway = gateway

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        """``POST /v1/keys``."""
        return self._gateway.post("/v1/keys", body)

    def page(self, limit: int, cursor: str | None) -> dict[str, Any]:
        """``GET /v1/keys``."""
        return self._gateway.get("/v1/keys", {"limit": limit, "cursor": cursor})

    def rotate(self, key_id: str, overlap_s: float) -> dict[str, Any]:
        """``POST /v1/keys/{key_id}/rotate``."""
        return self._gateway.post(f"/v1/keys/{path_segment(key_id)}/rotate", {"overlap_s": overlap_s})

    def revoke(self, key_id: str) -> bool:
        """``POST /v1/keys/{key_id}/revoke``."""
        return self._gateway.post(f"/v1/keys/{path_segment(key_id)}/revoke", {})["changed"]


class LocalKeys:
    """In the database itself, as ``local:<user>``: how the first key is made, also while a gateway runs."""

    def __init__(self, settings: Settings, tenant: str) -> None:
        self._settings = settings
        self._tenant = tenant
        self._by = f"local:{getpass.getuser()}"

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        """As the API does it."""
        from uuid_utils.compat import uuid7  # noqa: PLC0415 - only local work needs the server's libraries

        grant = KeyGrant(
            tenant=self._tenant,
            roles=frozenset(map(Role, body["roles"])),
            agent=body["agent"],
            person=body["person"],
            label=body["label"],
        )
        if objection := grant.objection():
            raise CommandFailed(objection, ExitCode.USAGE)
        return _told(self._work(lambda keys: keys.create(grant, key_id=uuid7(), record_id=uuid7(), ttl_s=body["expires_s"], by=self._by)))

    def page(self, limit: int, cursor: str | None) -> dict[str, Any]:  # noqa: ARG002 - the whole list is one page here
        """All keys of the tenant."""
        found = self._work(lambda keys: keys.list_keys(self._tenant, after=None, limit=_MOST_LOCAL))
        items = [
            {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in vars(key).items()}
            | {"key_id": str(key.key_id)}
            for key in found
        ]
        return {"items": items, "next_cursor": None}

    def rotate(self, key_id: str, overlap_s: float) -> dict[str, Any]:
        """As the API does it."""
        from uuid_utils.compat import uuid7  # noqa: PLC0415 - as above

        made = self._work(
            lambda keys: keys.rotate(self._tenant, _as_id(key_id), new_id=uuid7(), record_id=uuid7(), overlap_s=overlap_s, by=self._by)
        )
        if isinstance(made, str):
            raise CommandFailed(f"the key cannot be rotated: {made}", ExitCode.NOT_FOUND if made == "UNKNOWN" else ExitCode.UNEXPECTED)
        return _told(made)

    def revoke(self, key_id: str) -> bool:
        """As the API does it."""
        from uuid_utils.compat import uuid7  # noqa: PLC0415 - as above

        changed = self._work(lambda keys: keys.revoke(self._tenant, _as_id(key_id), record_id=uuid7(), by=self._by))
        if changed is None:
            raise CommandFailed("the tenant has no such key", ExitCode.NOT_FOUND)
        return changed

    def _work(self, work: Callable[[KeyStore], Awaitable[T]]) -> T:
        from gateway.app import operator_keys  # noqa: PLC0415 - the composition root loads engines; `--help` needs none

        async def with_keys() -> T:
            async with operator_keys(self._settings) as keys:
                return await work(keys)

        try:
            return run(with_keys())
        except LedgerUnavailable as error:
            fail(describe_unreachable(self._settings, error), EXIT_UNREACHABLE)


Keys = HttpKeys | LocalKeys
"""Where keys are kept, as commands reach it. Answers are those of the API."""


def _told(made: MadeKey) -> dict[str, Any]:
    return {"key_id": str(made.key_id), "key": made.key}


def _as_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise CommandFailed("that is no key id; see: gateway keys list", ExitCode.NOT_FOUND) from None


def _reaches_keys(command: Callable[..., T]) -> Callable[..., T]:
    @click.option(
        "--local", "is_local", is_flag=True, help="Work in the database itself, as the host's operator; recorded as local:<user>."
    )
    @click.option("--tenant", default="default", show_default=True, help="With --local: whose keys.")
    @database_options
    @connection_options
    @exits_as_told
    @functools.wraps(command)
    def with_keys(
        *args: Any,
        is_local: bool,
        tenant: str,
        config: Path | None,
        data_dir: Path | None,
        database_url: str | None,
        url: str,
        key: str | None,
        key_file: Path | None,
        **options: Any,
    ) -> T:
        if is_local:
            settings = load_settings(config, data_dir=data_dir, database_url=database_url)
            options["keys"] = LocalKeys(settings, tenant)
        else:
            options["keys"] = HttpKeys(connect(url, key, key_file))
        return command(*args, **options)

    return with_keys


def _read_span(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    try:
        return None if value is None else parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.group("keys", cls=WholeSentences)
def keys_group() -> None:
    """Make, rotate and revoke API keys (role operator, or --local on the gateway's host).

    A key is shown once. The gateway keeps its SHA-256 and nothing else.
    """


@keys_group.command("create")
@click.option(
    "--role", "roles", type=click.Choice([role.value for role in Role]), multiple=True, required=True, help="May be given more than once."
)
@click.option("--agent", help="Whose key it is, where it is an agent's.")
@click.option("--person", help="Whose key it is, where it is a person's (approvers).")
@click.option("--label", help="What people call it, where it is neither.")
@click.option("--expires", "expires_s", callback=_read_span, metavar="SPAN", help="When it ends by itself, such as 90d; else never.")
@click.option("-o", "--output", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@_reaches_keys
def create_key(
    *, keys: Keys, roles: tuple[str, ...], agent: str | None, person: str | None, label: str | None, expires_s: float | None, form: str
) -> None:
    """Make a key and print it, this once.

    \b
    Examples:
      gateway keys create --role agent --agent travel-assistant --expires 90d > agent.key
      gateway keys create --local --role operator --label olga
    """  # noqa: D301 - \b keeps click from joining the lines
    body = {"roles": list(roles), "agent": agent, "person": person, "label": label, "expires_s": expires_s}
    _tell(keys.create(body), form)


@keys_group.command("list")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Lines a page.")
@click.option("--cursor", help="Go on after an earlier page.")
@click.option("-o", "--output", "form", type=FORMATS, default="table", show_default=True)
@_reaches_keys
def list_keys(*, keys: Keys, limit: int, cursor: str | None, form: str) -> None:
    """List keys, oldest first: what they open, never the keys themselves."""
    show_page(keys.page(limit, cursor), form, _draw, empty="No key was made yet.")


@keys_group.command("rotate")
@click.argument("key_id")
@click.option(
    "--overlap",
    "overlap_s",
    callback=_read_span,
    default="24h",
    show_default=True,
    metavar="SPAN",
    help="How long the old key still opens.",
)
@click.option("-o", "--output", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@_reaches_keys
def rotate_key(*, keys: Keys, key_id: str, overlap_s: float, form: str) -> None:
    """Make the successor of KEY_ID and print it, this once; for a while both open."""
    _tell(keys.rotate(key_id, overlap_s), form)


@keys_group.command("revoke")
@click.argument("key_id")
@_reaches_keys
def revoke_key(*, keys: Keys, key_id: str) -> None:
    """End the key KEY_ID: every gateway refuses it within a second."""
    click.echo(f"{printable(key_id)} {'is' if keys.revoke(key_id) else 'was already'} revoked")


def _tell(made: dict[str, Any], form: str) -> None:
    if form == "json":
        click.echo(to_json(made, indent=2))
    else:
        click.echo(printable(made["key"]))
        click.echo(f"Its id is {printable(made['key_id'])}. The key is not shown again.", err=True)


def _draw(items: Items) -> None:
    draw_table([_shown(item) for item in items], _COLUMNS, whole=("key_id", "hint"))


def _shown(item: Mapping[str, Any]) -> dict[str, Any]:
    times = {name: str(item[name] or "")[:19] for name in ("created_at", "expires_at", "revoked_at")}
    return dict(item) | times | {"live": "●" if item["is_live"] else "", "roles": ", ".join(item["roles"])}
