"""``gateway policy``: write policies, test them, and see what they decide."""

import click

from gateway.cli.policy_eval import ask
from gateway.cli.policy_impact import show_impact
from gateway.cli.policy_tests import test_policy
from gateway.cli.terminal import WholeSentences


@click.group(cls=WholeSentences)
def policy() -> None:
    """Write policies, test them, and see what they would decide; docs/policies.md goes through it in order."""


policy.add_command(ask)
policy.add_command(show_impact)
policy.add_command(test_policy)
