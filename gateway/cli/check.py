"""``gateway check``: what is wrong with a bundle, where, and how to mend it."""

import asyncio
from pathlib import Path

import click

from gateway.bundle import Report
from gateway.cli.settings import EXIT_UNEXPECTED, fail
from gateway.cli.terminal import printable, to_json
from gateway.domain.decision import GatewayFault
from gateway.domain.findings import Finding

INVALID = 3
FAILED = 4
_COLOURS = {"error": "red", "warning": "yellow"}


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("-o", "--output", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def check(ctx: click.Context, folder: Path, form: str) -> None:
    """Check the bundle in DIR: its files, its Rego, its tests and its decision cases.

    Each finding is one line, `file:line:column: error code: message`, with how to mend it beneath; docs/findings.md lists
    the codes. With `-o json`, `valid` says whether the files are in order, and `good` whether the bundle may be activated:
    tests and cases, which run only in a valid bundle, passed too. Exit codes: 0 it may be activated, 3 the files are not
    in order, 4 tests or cases failed.
    """
    from gateway.app import check as check_bundle  # noqa: PLC0415 - the composition root loads engines; `--help` needs none

    try:
        report = asyncio.run(check_bundle(folder))
    except GatewayFault as fault:  # no fault of the bundle's: the host cannot run the engine
        fail(f"the check could not be made: {fault.detail}", EXIT_UNEXPECTED)
    show_report(report, folder, form)
    ctx.exit(exit_code(report))


def exit_code(report: Report) -> int:
    """0 it may be activated, 3 the files are not in order, 4 tests or cases failed."""
    if not report.is_valid:
        return INVALID
    return 0 if report.is_good else FAILED


def show_report(report: Report, folder: Path, form: str) -> None:
    """Findings on stdout, the summary on stderr."""
    if form == "json":
        click.echo(to_json(_as_json(report), indent=2))
    else:
        for finding in report.all_findings:
            _show(finding, folder)
    click.echo(_summarize(report, folder), err=True)


def _show(finding: Finding, folder: Path) -> None:
    # The path as the caller named it, so that editors and CI can jump there; click leaves colours out where no terminal is.
    place = printable((folder / finding.file).as_posix() + finding.place[len(finding.file) :])
    severity = click.style(finding.severity, fg=_COLOURS[finding.severity], bold=True)
    click.echo(f"{click.style(place, bold=True)}: {severity} {finding.code}: {printable(finding.message)}")
    click.echo(f"    {printable(finding.mend)}")


def _summarize(report: Report, folder: Path) -> str:
    errors = sum(finding.severity == "error" for finding in report.all_findings)
    counts = f"{_count(errors, 'error')}, {_count(len(report.all_findings) - errors, 'warning')}"
    if report.checked is None:
        return f"{folder}: not valid: {counts}. Tests and cases were not run."
    bundle = report.checked.bundle
    contents = (
        f"{_count(len(bundle.tools), 'tool')}, {_count(len(bundle.workflows), 'workflow')}, {_count(len(report.checked.cases), 'case')}"
    )
    verdict = "may be activated" if report.is_good else "tests or cases failed"
    return f"{folder}: {verdict}: {counts} ({contents}; revision {bundle.revision})"


def _as_json(report: Report) -> dict[str, object]:
    parts = (("files", report.findings), ("tests", report.failures))
    return {
        "valid": report.is_valid,
        "good": report.is_good,
        "revision": report.checked.bundle.revision if report.checked else None,
        "findings": [{**vars(finding), "stage": stage} for stage, findings in parts for finding in findings],
    }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
