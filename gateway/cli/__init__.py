"""The command line: one file a noun, loaded only when it is named."""

from importlib import import_module

import click

from gateway import __version__
from gateway.cli.terminal import WholeSentences

_COMMANDS = {
    "approvals": "gateway.cli.approvals:approvals",
    "audit": "gateway.cli.audit:audit",
    "budgets": "gateway.cli.budgets:budgets",
    "bundle": "gateway.cli.bundle:bundle",
    "calls": "gateway.cli.calls:calls",
    "chat": "gateway.cli.chat:chat",
    "check": "gateway.cli.check:check",
    "controls": "gateway.cli.controls:controls",
    "db": "gateway.cli.db:db",
    "decisions": "gateway.cli.decisions:decisions",
    "demo": "gateway.cli.demo:demo",
    "policy": "gateway.cli.policy:policy",
    "runs": "gateway.cli.runs:runs",
    "keys": "gateway.cli.keys:keys_group",
    "sample-travel": "gateway.cli.sample:sample_travel",
    "serve": "gateway.cli.serve:serve",
    "version": "gateway.cli.version:version",
}


class _LazyGroup(WholeSentences):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def load(self, name: str) -> click.Command | None:
        where = _COMMANDS.get(name)
        if where is None:
            return None
        module, _, attribute = where.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)  # noqa: S101 - the table above is ours
        return command


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", message="%(version)s")
def gateway() -> None:
    """Decide whether a model's proposed tool call may become real, and make it real at most once.

    Data goes to stdout, words and progress to stderr. Exit codes: 0 ok, 1 unexpected, 2 usage, 3 bundle or policy
    invalid, 4 tests failed, 8 not found, 9 not permitted, 10 unreachable.
    """
