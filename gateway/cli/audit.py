"""``gateway audit``: the decision log as evidence."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from gateway.cli.http import GatewayHttp, path_segment, speaks_to_gateway
from gateway.cli.settings import EXIT_UNREACHABLE, database_options, describe_unreachable, fail, load_settings, run
from gateway.cli.terminal import WholeSentences, printable, to_json
from gateway.domain.decision import LedgerUnavailable
from gateway.evidence import verify as verifier

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(cls=WholeSentences)
def audit() -> None:
    """Checkpoints, proofs and checks of the decision log (role auditor)."""


@audit.command()
@speaks_to_gateway
def pubkey(*, gateway: GatewayHttp) -> None:
    """Print the public key of the log. Keep it where the operator cannot change it.

    \b
    Example:
      gateway audit pubkey > log.pub
    """  # noqa: D301 - \b keeps click from joining the lines
    click.echo(printable(gateway.get("/v1/log/checkpoint")["public_key"]))


@audit.command()
@click.option("-o", "--output", "form", type=click.Choice(["note", "json"]), default="note", show_default=True)
@click.option("--extends", type=click.IntRange(min=1), help="With the proof that the log still begins with this many records (json).")
@speaks_to_gateway
def checkpoint(*, gateway: GatewayHttp, form: str, extends: int | None) -> None:
    """Print the last signed checkpoint of the log; what it does not cover yet, and alarms, go to stderr.

    \b
    Example:
      gateway audit checkpoint >> checkpoints-i-keep
    """  # noqa: D301 - as above
    state = gateway.get("/v1/log/checkpoint", {"extends": extends})
    if form == "json":
        click.echo(to_json(state, indent=2))
    elif state["checkpoint"] is not None:
        click.echo(to_json({"size": state["size"], "note": state["checkpoint"]}))
    if state["alarm"] is not None:
        click.echo(f"gateway: nothing is signed: {printable(state['alarm'])}", err=True)
    if state["log_size"] > state["size"]:
        click.echo(f"{state['log_size'] - state['size']} records are not covered yet, for {state['behind_s']:.1f} s", err=True)
    if state["checkpoint"] is None:
        sys.exit(verifier.UNCHECKABLE)


@audit.command()
@click.argument("decision_id", metavar="ID")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the proof to this file.")
@speaks_to_gateway
def prove(*, gateway: GatewayHttp, decision_id: str, out: Path | None) -> None:
    """Get the proof that the record ID stands in the signed log.

    The proof is a JSON file; `gateway audit verify` and verify.py check it without the gateway.

    \b
    Example:
      gateway audit prove 0199a5… --out proof.json
    """  # noqa: D301 - as above
    text = json.dumps(gateway.get(f"/v1/decisions/{path_segment(decision_id)}/proof"), ensure_ascii=False, indent=2) + "\n"
    if out is None:
        click.echo(text, nl=False)
    else:
        out.write_text(text, encoding="utf-8")


@audit.command()
@click.option("--subject", required=True, help="Whose data.")
@click.option("--reason", required=True, help="Why, for the record: one line of 10 to 2000 characters.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@speaks_to_gateway
def erase(*, gateway: GatewayHttp, subject: str, reason: str, is_sure: bool) -> None:
    """Make what was kept about a subject unreadable for ever (role operator).

    Destroys the keys of its arguments, results and replay data. Records name no such data and stay; every proof stays
    valid, and the erasure is a record itself. Copies of the database that hold the keys must be destroyed by who keeps them.

    \b
    Example:
      gateway audit erase --subject ada --reason "request of 2026-11-01, ticket 4711"
    """  # noqa: D301 - as above
    if not is_sure:
        click.confirm(f"Nothing about {printable(subject)} can be read again afterwards. Go on?", abort=True, err=True)
    found = gateway.post("/v1/log/erasures", {"subject": subject, "reason": reason})
    click.echo(f"{found['keys']} keys destroyed" + (f", record {printable(found['record_id'])}" if found["record_id"] else ""))


@audit.command()
@click.argument("export", required=False, type=click.Path(exists=True, path_type=Path))
@click.option("--database", "is_database", is_flag=True, help="Check the whole log in the database, as the host's operator.")
@click.option("--pubkey", "key_file", type=_FILE, help="File with the log's public key (gateway audit pubkey).")
@click.option("--known", type=_FILE, help="File with checkpoints that you kept from earlier looks.")
@click.option("--tenant", default="default", show_default=True, help="With --database: whose log.")
@click.option("-o", "--output", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@database_options
def verify(
    *,
    export: Path | None,
    is_database: bool,
    key_file: Path | None,
    known: Path | None,
    tenant: str,
    form: str,
    config: Path | None,
    data_dir: Path | None,
    database_url: str | None,
) -> None:
    """Check an EXPORT, a proof, or with --database the log itself.

    Exit code 0: verified, with range and count. 6: broken, with the position. 7: it cannot be checked. A log without
    records is never verified. Exports of this release carry no proof yet and end with 7; proofs of single records
    (`gateway audit prove`) are checked without any gateway.

    \b
    Examples:
      gateway audit verify export/ --pubkey log.pub
      gateway audit verify --database
    """  # noqa: D301 - as above
    if is_database == (export is not None):
        raise click.UsageError("name an EXPORT, or give --database")
    known_text = known.read_text(encoding="utf-8") if known else ""
    if export is not None:
        if key_file is None:
            raise click.UsageError("an export is checked with the log's public key: --pubkey FILE")
        _end(*verifier.verify(export, key_file.read_text(encoding="utf-8"), known_text), form)
        return
    settings = load_settings(config, data_dir=data_dir, database_url=database_url)
    from gateway.app import check_database  # noqa: PLC0415 - an export is checked without everything that a gateway needs

    key_text = key_file.read_text(encoding="utf-8") if key_file else None
    try:
        code, found = run(check_database(settings, tenant, key_text, known_text))
    except LedgerUnavailable as error:
        fail(describe_unreachable(settings, error), EXIT_UNREACHABLE)
    _end(code, found, form)


def _end(code: int, found: dict[str, Any], form: str) -> None:
    click.echo(to_json(found) if form == "json" else "\n".join(map(printable, verifier.describe(code, found).split("\n"))))
    sys.exit(code)
