"""Policy answers that are no answer: refused with their own codes by the real engine and the real stages."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from gateway.bundle import CheckedBundle, load_bundle
from gateway.domain.call import Facts, Proposed, ProposedCall
from gateway.domain.catalogue import PolicySet
from gateway.domain.principal import Caller, Role
from gateway.enforcer import Evaluation
from gateway.policy.embedded import EmbeddedEngine
from gateway.rehearsal import rehearse

Ask = Callable[[str], Awaitable[Evaluation]]
GOOD = '{"effect": "allow", "reason_code": "POLICY_ALLOWED", "policy": "x", "obligations": [], "rules": [], "revision": "%s"}'


@pytest.fixture
def ask(travel_bundle: Path) -> Ask:
    """Decides ada's search with an engine whose entry point answers the given Rego term for it."""
    loaded = load_bundle(travel_bundle)
    assert isinstance(loaded, CheckedBundle)

    async def ask_one(body: str) -> Evaluation:
        good = GOOD % loaded.bundle.revision
        # Defined for the canary of the activation, and as the test has it for the call.
        module = f'package gateway\n\ndecision := {good} if input.run.id != "r1"\n\n{body % {"revision": loaded.bundle.revision}}\n'
        policy = PolicySet(revision=loaded.bundle.revision, modules={"gateway.rego": module}, data={})
        bundle = replace(loaded.bundle, policy=policy)
        call = Proposed(
            caller=Caller(tenant="default", name="travel-assistant", roles=frozenset({Role.AGENT})),
            bundle=bundle,
            decision_id=uuid4(),
            now=datetime.now(UTC),
            workflow_name="trip_planning",
            run_id="r1",
            on_behalf_of="ada",
            context={},
            call=ProposedCall(name="search_hotels", args={"city": "Paris, France"}),
            is_dry_run=True,
        )
        async with rehearse(bundle, engine=EmbeddedEngine(), report=lambda _: None) as evaluate:
            found = await evaluate(call, Facts())
        assert isinstance(found, Evaluation)
        return found

    return ask_one


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("", "POLICY_UNDEFINED"),
        ('decision := "false" if input.run.id == "r1"', "POLICY_OUTPUT_INVALID"),
        ('decision := false if input.run.id == "r1"', "POLICY_OUTPUT_INVALID"),
        ('decision := null if input.run.id == "r1"', "POLICY_OUTPUT_INVALID"),
        ('decision := {} if input.run.id == "r1"', "POLICY_OUTPUT_INVALID"),
        (
            (
                'decision := {"effect": "maybe", "reason_code": "POLICY_ALLOWED", "policy": "x", "obligations": [], "rules": [],'
                ' "revision": "%(revision)s"} if input.run.id == "r1"'
            ),
            "POLICY_OUTPUT_INVALID",
        ),
        (
            (
                'decision := {"effect": "allow", "reason_code": "POLICY_DENIED", "policy": "x", "obligations": [], "rules": [],'
                ' "revision": "%(revision)s"} if input.run.id == "r1"'
            ),
            "POLICY_OUTPUT_INVALID",
        ),
        (
            (
                'decision := {"effect": "allow", "reason_code": "POLICY_ALLOWED", "policy": "x", "obligations": [], "rules": [],'
                ' "revision": "another"} if input.run.id == "r1"'
            ),
            "POLICY_STALE",
        ),
        (
            (
                'decision := {"effect": "allow", "reason_code": "POLICY_ALLOWED", "policy": "x", "obligations": [{"type": "dance"}],'
                ' "rules": [], "revision": "%(revision)s"} if input.run.id == "r1"'
            ),
            "OBLIGATION_UNSUPPORTED",
        ),
    ],
)
async def test_refuses_an_answer_that_is_none(ask: Ask, body: str, code: str):
    found = await ask(body)
    assert (found.effect, found.reason_code, found.stage) == ("deny", code, "decide")


async def test_takes_a_well_formed_allow(ask: Ask):
    body = f'decision := {GOOD % "%(revision)s"} if input.run.id == "r1"'
    assert (await ask(body)).reason_code == "POLICY_ALLOWED"
