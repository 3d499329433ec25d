"""The HTTP side of commands: where the gateway is, who asks, and which exit code a refusal becomes."""

import asyncio
import functools
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast
from urllib.parse import quote

import aiohttp
import click
from click.core import ParameterSource

from gateway.cli.terminal import printable, printable_lines
from gateway.client import explain_failure

DEFAULT_URL = "http://127.0.0.1:8080"
_TIMEOUT = aiohttp.ClientTimeout(total=60)
_STREAM_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)
_WIDEST_QUERY = 100

Params = Mapping[str, str | int | None]
"""Parameters of a request; those that are None are left out."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


class ExitCode(IntEnum):
    """Exit codes of all commands; 5 to 7 belong to impact and integrity."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    INVALID = 3
    TESTS_FAILED = 4
    NOT_FOUND = 8
    NOT_PERMITTED = 9
    UNREACHABLE = 10
    INTERRUPTED = 130


class CommandFailed(Exception):
    """A command ends here: one sentence for stderr, and its exit code."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.UNEXPECTED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def exits_as_told(command: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let a command end by `CommandFailed`: the sentence goes to stderr, the process ends with the code."""

    @functools.wraps(command)
    def run(*args: _P.args, **options: _P.kwargs) -> _R:
        try:
            return command(*args, **options)
        except CommandFailed as failed:
            click.echo(f"gateway: {printable_lines(str(failed))}", err=True)
            sys.exit(failed.exit_code)

    return run


@dataclass(frozen=True, kw_only=True)
class GatewayHttp:
    """A gateway and the key that a command speaks to it with."""

    url: str
    key: str = field(repr=False)

    def get(self, path: str, params: Params | None = None) -> Any:
        """The JSON body of a GET; `CommandFailed` with the right exit code for everything else."""
        return asyncio.run(self.request("GET", path, params=params))

    def post(self, path: str, body: Any = None) -> Any:
        """The JSON body that answers a POST; `CommandFailed` with the right exit code for everything else."""
        return asyncio.run(self.request("POST", path, body=body))

    async def request(self, method: str, path: str, *, params: Params | None = None, body: Any = None) -> Any:
        """The JSON body of a 2xx answer (None where it is empty); parameters that are None are left out."""
        async with self.stream(method, path, params=params, body=body, timeout=_TIMEOUT) as response:
            content = await response.read()
            return await _json(response) if content else None

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        timeout: aiohttp.ClientTimeout = _STREAM_TIMEOUT,  # noqa: ASYNC109 - the client's own kind of timeout
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """A 2xx answer whose body is read in the block; `CommandFailed` for every other one, and for a connection that breaks."""
        query = {name: value for name, value in (params or {}).items() if value is not None}
        sent = {"Authorization": f"Bearer {self.key}"} | dict(headers or {})
        try:
            async with (
                aiohttp.ClientSession(headers=sent, timeout=timeout, read_bufsize=2**20) as session,
                # A redirect would carry the key elsewhere.
                session.request(method, self.url.rstrip("/") + path, params=query, json=body, allow_redirects=False) as response,
            ):
                if not response.ok or response.status >= 300:
                    document = await _json(response) if await response.read() else None
                    raise _refused(response.status, document, str(query.get("q", "")))
                yield response
        except aiohttp.InvalidURL:
            raise CommandFailed(f"{self.url} is not a url such as {DEFAULT_URL}", ExitCode.USAGE) from None
        except (aiohttp.ClientError, TimeoutError) as error:
            raise CommandFailed(f"no answer from {self.url}: {explain_failure(error)}", ExitCode.UNREACHABLE) from error


async def _json(response: aiohttp.ClientResponse) -> Any:
    try:
        return await response.json(content_type=None)
    except ValueError:
        if response.status == 200:
            raise CommandFailed("the answer is not JSON; is this the gateway's url?") from None
        return None


def _refused(status: int, document: Any, query: str) -> CommandFailed:
    known = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    detail = known.get("detail") or known.get("title") or "no detail given"
    match status:
        case 422:
            code = ExitCode.TESTS_FAILED if known.get("code") == "BUNDLE_TESTS_FAILED" else ExitCode.INVALID
        case 400:
            code = ExitCode.USAGE
        case 401 | 403:
            code = ExitCode.NOT_PERMITTED
        case 404:
            code = ExitCode.NOT_FOUND
        case 429 | 502 | 503 | 504:
            code = ExitCode.UNREACHABLE
        case _:
            code = ExitCode.UNEXPECTED
    lines = [f"{known.get('code') or f'HTTP {status}'}: {detail}"]
    for error in known.get("errors") or ():
        if error.get("pointer") == "q" and isinstance(error.get("offset"), int):
            lines = [f"{known.get('code')}: {error.get('message')}", _mark(query, error["offset"], error.get("length") or 1)]
        else:
            lines.append(f"  {error.get('pointer')}: {error.get('message')}")
    return CommandFailed("\n".join(lines), code)


def _mark(query: str, offset: int, length: int) -> str:
    """The query with carets under the characters that are wrong; only their neighbourhood where it is long."""
    from rich.cells import cell_len  # noqa: PLC0415 - rich is loaded only by commands that draw

    begin = max(0, offset - 40) if len(query) > _WIDEST_QUERY else 0
    before, wrong, after = query[begin:offset], query[offset : offset + length], query[offset + length : begin + _WIDEST_QUERY]
    shown = ("…" if begin else "") + printable(before)
    carets = "^" * min(max(1, cell_len(printable(wrong))), _WIDEST_QUERY)
    return f"  {shown}{printable(wrong)}{printable(after)}\n  {' ' * cell_len(shown)}{carets}"


def path_segment(decision_id: str) -> str:
    """An id as one segment of a path; ids come from people and may hold anything."""
    if not decision_id.strip("."):  # such a segment would name another path
        raise CommandFailed("NOT_FOUND: That is no decision id.", ExitCode.NOT_FOUND)
    return quote(decision_id, safe="")


def _read_url(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    if not value.lower().startswith(("http://", "https://")):
        raise click.BadParameter(f"{value!r} is not a url such as {DEFAULT_URL}")
    return value


def _read_key(key: str | None, key_file: Path | None) -> str:
    """What stands on the command line counts before the environment, and --key before --key-file."""
    is_told = click.get_current_context().get_parameter_source("key") is ParameterSource.COMMANDLINE
    if key_file is not None and not is_told:
        key = key_file.read_text(encoding="utf-8").strip()
    if not key:
        raise click.UsageError("give a key: --key, --key-file or GATEWAY_API_KEY")
    if not (key.isascii() and key.isprintable()):
        raise click.UsageError("the key is not one line of ASCII")
    return key


def speaks_to_gateway(command: Callable[_P, _R]) -> Callable[..., _R]:
    """Give a command ``--url``, ``--key`` and ``--key-file``, and call it with `gateway`, a `GatewayHttp`."""

    @connection_options
    @exits_as_told
    @functools.wraps(command)
    def with_gateway(*args: Any, url: str, key: str | None, key_file: Path | None, **options: Any) -> _R:
        options["gateway"] = connect(url, key, key_file)
        return command(*args, **options)

    return with_gateway


def connect(url: str, key: str | None, key_file: Path | None) -> GatewayHttp:
    """The gateway that the options of `connection_options` name; a usage error where they name no key."""
    return GatewayHttp(url=url, key=_read_key(key, key_file))


def connection_options(command: Callable[..., _R]) -> Callable[..., _R]:
    """``--url``, ``--key`` and ``--key-file``."""
    for option in (
        click.option(
            "--key-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="File that holds the key; counts before GATEWAY_API_KEY, after --key.",
        ),
        click.option("--key", envvar="GATEWAY_API_KEY", help="API key or JWT [GATEWAY_API_KEY]."),
        click.option(
            "--url",
            envvar="GATEWAY_URL",
            default=DEFAULT_URL,
            callback=_read_url,
            show_default=True,
            help="The gateway's url [GATEWAY_URL].",
        ),
    ):
        command = option(command)
    return command
