"""``gateway check``: what a security engineer sees, and what a pipeline reads."""

import json
from pathlib import Path

import pytest

from gateway.bundle import CheckedBundle, Report, load_bundle
from gateway.cli.check import exit_code, show_report
from gateway.domain.findings import Finding
from tests.fakes.small_bundle import SmallBundle

FAILED_CASE = Finding(file="cases/rooms.yaml", line=9, column=3, code="case-failed", message="`a` expects deny", mend="Mend the policy.")


def report_on(small: SmallBundle, *failures: Finding) -> Report:
    loaded = load_bundle(small.folder)
    if isinstance(loaded, CheckedBundle):
        return Report(checked=loaded, findings=loaded.warnings, failures=failures)
    return Report(checked=None, findings=tuple(loaded))


def test_a_good_bundle_prints_nothing_but_its_summary(small: SmallBundle, capsys: pytest.CaptureFixture[str]):
    report = report_on(small)
    show_report(report, Path("small"), "table")

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("small: may be activated: 0 errors, 0 warnings (2 tools, 1 workflow, 2 cases; revision sha256:")
    assert exit_code(report) == 0


def test_a_finding_is_a_place_a_code_a_sentence_and_how_to_mend_it(small: SmallBundle, capsys: pytest.CaptureFixture[str]):
    small.change("workflows.yaml", "max_risk: write", "max_risk: read")
    report = report_on(small)
    show_report(report, Path("small"), "table")

    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "small/workflows.yaml:2:22: error risk-above-workflow: `take_room` has risk write, above the workflow's max_risk read",
        "    Raise `max_risk`, or take the tool out of the workflow.",
    ]
    assert err == "small: not valid: 1 error, 0 warnings. Tests and cases were not run.\n"
    assert exit_code(report) == 3


def test_failed_cases_have_an_exit_code_of_their_own(small: SmallBundle, capsys: pytest.CaptureFixture[str]):
    report = report_on(small, FAILED_CASE)
    show_report(report, Path("small"), "table")

    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "small/cases/rooms.yaml:9:3: error case-failed: `a` expects deny"
    assert "tests or cases failed: 1 error" in err
    assert exit_code(report) == 4


def test_json_is_one_document_that_names_files_inside_the_bundle(small: SmallBundle, capsys: pytest.CaptureFixture[str]):
    report = report_on(small, FAILED_CASE)
    show_report(report, Path("small"), "json")

    document = json.loads(capsys.readouterr().out)
    assert report.checked is not None
    assert document == {
        "valid": True,
        "good": False,
        "revision": report.checked.bundle.revision,
        "findings": [
            {
                "file": "cases/rooms.yaml",
                "line": 9,
                "column": 3,
                "code": "case-failed",
                "message": "`a` expects deny",
                "mend": "Mend the policy.",
                "severity": "error",
                "stage": "tests",
            }
        ],
    }


def test_names_in_the_bundle_cannot_move_the_cursor(small: SmallBundle, capsys: pytest.CaptureFixture[str]):
    small.change("workflows.yaml", "[find_room, take_room]", '[find_room, take_room]\n  "a\\e[2J": 1')
    show_report(report_on(small), Path("small"), "table")

    assert "\x1b" not in capsys.readouterr().out
