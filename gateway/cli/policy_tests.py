"""``gateway policy test``: the tests and cases of a folder, one line each, and what they do not reach."""

import asyncio
import re
from pathlib import Path
from xml.etree import ElementTree as ET  # writing only

import click

from gateway.authoring import TestReport, TestResult, as_document
from gateway.cli.http import ExitCode, exits_as_told
from gateway.cli.settings import EXIT_UNEXPECTED, fail
from gateway.cli.terminal import printable, to_json
from gateway.domain.decision import GatewayFault
from gateway.domain.findings import Finding


def _read_pattern(ctx: click.Context, option: click.Parameter, value: str) -> re.Pattern[str]:  # noqa: ARG001 - click's signature
    try:
        return re.compile(value)
    except re.error as error:
        raise click.BadParameter(f"not a regular expression: {error}") from None


@click.command("test")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--coverage", "with_coverage", is_flag=True, help="Tell which rules, lines and reason codes no test or case reaches.")
@click.option(
    "--threshold", type=click.FloatRange(0, 100), help="Fail where less of the rules, lines or reason codes is reached, in per cent."
)
@click.option("--run", "only", metavar="RE", default="", callback=_read_pattern, help="Only tests and cases whose name matches.")
@click.option("--watch", is_flag=True, help="Run again whenever a file of the folder changes.")
@click.option("-o", "--output", "form", type=click.Choice(["table", "json", "junit"]), default="table", show_default=True)
@click.pass_context
@exits_as_told
def test_policy(
    ctx: click.Context, folder: Path, *, with_coverage: bool, threshold: float | None, only: re.Pattern[str], watch: bool, form: str
) -> None:
    """Run the `test_` rules and the decision cases of the bundle in DIR.

    A rule passes where it is true; for one that is not, the statement that fails is shown with its values. A case passes
    where the gateway's own stages come to the decision that it expects. Exit codes: 0 all passed, 3 the files are not in
    order, 4 something failed, less than the threshold was reached, or nothing ran.
    """
    with_coverage = with_coverage or threshold is not None
    if watch:
        try:
            asyncio.run(_watch(folder, only, form, threshold, with_coverage=with_coverage))
        except KeyboardInterrupt:
            ctx.exit(0)
    try:
        report = asyncio.run(_run(folder, only, with_coverage=with_coverage))
    except GatewayFault as fault:  # no fault of the bundle's: the host cannot run the engine
        fail(f"the tests could not be run: {fault.detail}", EXIT_UNEXPECTED)
    _show(report, folder, form, threshold)
    ctx.exit(_exit_code(report, threshold))


async def _run(folder: Path, only: re.Pattern[str], *, with_coverage: bool) -> TestReport:
    from gateway.app import test_policies  # noqa: PLC0415 - the composition root loads engines; `--help` needs none

    return await test_policies(folder, only=only, with_coverage=with_coverage)


async def _watch(folder: Path, only: re.Pattern[str], form: str, threshold: float | None, *, with_coverage: bool) -> None:
    from gateway.bundle.folder import compute_revision, read_folder  # noqa: PLC0415 - only here
    from gateway.bundle.watch import changes  # noqa: PLC0415 - only here

    # What changes while the tests run is another revision than this one, so that no edit is missed.
    revision = compute_revision(read_folder(folder).files)
    _show(await _run(folder, only, with_coverage=with_coverage), folder, form, threshold)
    async for _ in changes(folder, revision):
        _show(await _run(folder, only, with_coverage=with_coverage), folder, form, threshold)


def _exit_code(report: TestReport, threshold: float | None) -> ExitCode:
    if not report.is_valid:
        return ExitCode.INVALID
    if not report.is_good or _is_below(report, threshold):
        return ExitCode.TESTS_FAILED
    return ExitCode.OK


def _is_below(report: TestReport, threshold: float | None) -> bool:
    return threshold is not None and (report.coverage is None or report.coverage.percent < threshold)


def _show(report: TestReport, folder: Path, form: str, threshold: float | None) -> None:
    if form == "json":
        click.echo(to_json(as_document(report), indent=2))
    elif form == "junit":
        click.echo(write_junit(report))
    else:
        for finding in report.findings:
            _show_finding(finding, folder)
        for result in report.results:
            _show_result(result, folder)
        _show_coverage(report, folder)
    click.echo(_summarize(report, folder, threshold), err=True)


def _show_finding(finding: Finding, folder: Path) -> None:
    place = printable((folder / finding.file).as_posix() + finding.place[len(finding.file) :])
    click.echo(f"{place}: {finding.severity} {finding.code}: {printable(finding.message)}")
    click.echo(f"    {printable(finding.mend)}")


def _show_result(result: TestResult, folder: Path) -> None:
    if result.failure is None:
        click.echo(f"{click.style('PASS', fg='green')} {result.kind} {printable(result.name)}")
        return
    place = f"{(folder / result.file).as_posix()}:{result.line}"
    click.echo(f"{click.style('FAIL', fg='red', bold=True)} {result.kind} {printable(result.name)}")
    click.echo(f"    {printable(place)}: {printable(result.failure)}")
    if (failing := result.failing) is not None:
        click.echo(f"    line {failing.line}: {printable(failing.statement)}")
        for value in failing.values:
            click.echo(f"        {printable(value.expression)} is {printable(value.value)}")


def _show_coverage(report: TestReport, folder: Path) -> None:
    if report.coverage is None:
        return
    shares = (("rules", report.coverage.rules), ("lines", report.coverage.lines), ("reason codes", report.coverage.reason_codes))
    for what, share in shares:
        click.echo(f"{what}: {share.percent:.1f} % ({share.reached} of {share.total})")
        for place in share.missing:
            where = (folder / place.file).as_posix() + (f":{place.line}" if place.line else "")
            click.echo(f"    {printable(where)}: {printable(place.what)}")


def _summarize(report: TestReport, folder: Path, threshold: float | None) -> str:
    if not report.is_valid:
        return f"{folder}: not valid: no test was run."
    if not report.results:
        return f"{folder}: no test or case ran."
    counts = f"{len(report.results) - len(report.failed)} of {len(report.results)} tests and cases passed"
    if report.coverage is None:
        return f"{folder}: {counts}."
    told = f"{folder}: {counts}; {report.coverage.percent:.1f} % reached"
    return f"{told}, less than {threshold:g} %." if _is_below(report, threshold) else f"{told}."


def write_junit(report: TestReport) -> str:
    """The results as JUnit XML, one suite for the rules and one for the cases."""
    top = ET.Element("testsuites", tests=str(len(report.results)), failures=str(len(report.failed)), errors=str(len(report.findings)))
    for kind in ("rego", "case"):
        results = [result for result in report.results if result.kind == kind]
        failures = sum(result.failure is not None for result in results)
        suite = ET.SubElement(top, "testsuite", name=kind, tests=str(len(results)), failures=str(failures))
        for result in results:
            case = ET.SubElement(suite, "testcase", classname=result.file, name=_xml(result.name), file=result.file, line=str(result.line))
            if result.failure is not None:
                failure = ET.SubElement(case, "failure", message=_xml(result.failure))
                if (failing := result.failing) is not None:
                    values = "".join(f"\n{value.expression} is {value.value}" for value in failing.values)
                    failure.text = _xml(f"line {failing.line}: {failing.statement}{values}")
    if report.findings:
        suite = ET.SubElement(top, "testsuite", name="files", tests="0", errors=str(len(report.findings)))
        for finding in report.findings:
            ET.SubElement(
                ET.SubElement(suite, "testcase", classname=finding.file, name=finding.code), "error", message=_xml(finding.message)
            )
    ET.indent(top)
    return ET.tostring(top, encoding="unicode", xml_declaration=True)


def _xml(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))
