"""The judge: a pure function from what a run left behind to the list of promises that it broke.

The ids are those of the invariants I1-I12, B1-B5 and L1-L4 (shared/research/reliability.md), read with the gateway's own
words, and ten of the fault tests' own: A1-A3 what people agreed to, T1 what is told is true, D1 nothing runs past its lease for long, D2 doubts end as
their class allows, R1 nothing is allowed under a replaced revision, P1 the policy "only if none was sent" holds, O1 without
a fault the ledger is there for everybody, O2 there is no deadlock.
"""

from collections.abc import Callable, Iterator

from tests.faults.rules_budgets import BUDGET_RULES
from tests.faults.rules_calls import CALL_RULES
from tests.faults.rules_effects import EFFECT_RULES
from tests.faults.rules_log import LOG_RULES
from tests.faults.rules_people import PEOPLE_RULES
from tests.faults.run_index import RunIndex, Violation

Rule = Callable[[RunIndex], Iterator[str]]

RULES: dict[str, Rule] = {**EFFECT_RULES, **CALL_RULES, **BUDGET_RULES, **LOG_RULES, **PEOPLE_RULES}
"""Each rule yields a sentence for each violation that it finds."""


def check(run: RunIndex) -> list[Violation]:
    """Everything that the run broke, in the order of the rules; empty for a good run."""
    return [Violation(invariant=name, what=what) for name, rule in RULES.items() for what in rule(run)]
