"""The command line as a whole: help that is complete, the version, and how to call it again."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway import __version__
from gateway.cli import gateway
from gateway.cli.terminal import program


def test_help_shows_whole_sentences():
    done = CliRunner().invoke(gateway, ["--help"])
    assert done.exit_code == 0
    summaries = done.stdout.partition("Commands:")[2]
    assert "..." not in summaries
    assert "…" not in summaries


@pytest.mark.parametrize("group", ["db", "decisions"])
def test_help_of_a_group_shows_whole_sentences(group: str):
    assert "..." not in CliRunner().invoke(gateway, [group, "--help"]).stdout.partition("Commands:")[2]


def test_tells_its_version_by_option_and_by_command():
    assert CliRunner().invoke(gateway, ["--version"]).stdout == f"{__version__}\n"
    assert CliRunner().invoke(gateway, ["version"]).stdout == f"{__version__}\n"


def test_an_unknown_command_is_a_usage_error():
    assert CliRunner().invoke(gateway, ["frobnicate"]).exit_code == 2


@pytest.mark.parametrize(
    ("called", "path", "printed"),
    [
        (".venv/bin/gateway", "/usr/bin", ".venv/bin/gateway"),
        ("{bin}/gateway", "{bin}:/usr/bin", "gateway"),
        ("{bin}/gateway", "/usr/bin", "{bin}/gateway"),
        ("/somewhere/gateway/__main__.py", "/usr/bin", f"{sys.executable} -m gateway"),
    ],
)
def test_prints_commands_so_that_they_can_be_pasted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, called: str, path: str, printed: str):
    script = tmp_path / "gateway"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", path.format(bin=tmp_path))
    monkeypatch.setattr(sys, "argv", [called.format(bin=tmp_path)])
    assert program() == printed.format(bin=tmp_path)
