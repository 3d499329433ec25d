"""Whole bundles: their tests, their cases, and what becomes of each case's input when parts of it are missing or strange."""

import asyncio
import random
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from gateway.app import report_fault
from gateway.bundle import CheckedBundle, load_bundle
from gateway.bundle.case_runs import run_cases
from gateway.domain.canonical import integral_floats_as_integers
from gateway.domain.catalogue import Bundle, PolicySet
from gateway.domain.json_values import is_array, is_object
from gateway.domain.policy_input import PolicyInput
from gateway.policy.embedded import EmbeddedEngine
from gateway.policy.rego_tests import run_tests
from gateway.rehearsal import rehearse
from tests.fakes.small_bundle import SmallBundle
from tests.opa import PulledOpa, find_opa, pulled_opa
from tests.parity.engines import Pair, open_pair

ROOT = Path(__file__).resolve().parents[2]
BUNDLES = [ROOT / "policies" / "travel", ROOT / "tests" / "faults" / "bundle"]
MUTATIONS = 60
"""Of each case's input."""
GENERATED = 300
"""Inputs made from the published schema alone, for each bundle."""
STRANGE: list[Any] = [
    None, True, False, 0, 1, -1, 2**53 - 1, 2**53, 1.5, 1e300, "", "a", "é", "İ", "😀", "\u0000", "\u2028", "gold", "UTC", "Nowhere/City", [], [1], ["a"], {}, {"a": 1}, [[]],
    "2026-03-01T10:00:00Z", "2026-02-30T10:00:00Z", "unknown", "delivered", "failed", [22, 7], [7, 22], [7], ["22", "7"],
]  # fmt: skip


def load(folder: Path) -> CheckedBundle:
    loaded = load_bundle(folder)
    assert isinstance(loaded, CheckedBundle), loaded
    return loaded


class Spy(EmbeddedEngine):
    """Keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.documents: list[bytes] = []

    async def decide(self, revision: str, document: bytes) -> Any:
        """As the engine does."""
        self.documents.append(document)
        return await super().decide(revision, document)


async def inputs_of_cases(loaded: CheckedBundle) -> list[bytes]:
    spy = Spy()
    async with rehearse(loaded.bundle, engine=spy, report=report_fault) as evaluate:
        findings = await run_cases(loaded.bundle, loaded.cases, evaluate)
    assert [finding for finding in findings if finding.severity == "error" and finding.code != "case-slow"] == []
    return spy.documents


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if is_object(value):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif is_array(value):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


def mutate(document: bytes, chance: random.Random) -> bytes:
    """The document with one to three parts taken away or replaced."""
    value = orjson.loads(document)
    for _ in range(chance.randint(1, 3)):
        path = chance.choice(list(places(value)))
        node = value
        for step in path[:-1]:
            node = node[step]
        if chance.random() < 0.4:
            del node[path[-1]]
        else:
            node[path[-1]] = chance.choice(STRANGE)
        if not value:
            break
    return orjson.dumps(value)


def generated(loaded: CheckedBundle, count: int) -> list[bytes]:
    """Documents that fit `PolicyInput`, with the bundle's own names here and there; the same ones in every run."""
    found: list[bytes] = []

    @seed(7)
    @settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        deadline=None,
    )
    @given(documents(loaded.bundle))
    def collect(document: Any) -> None:
        PolicyInput.model_validate(document)
        found.append(orjson.dumps(integral_floats_as_integers(document)))

    collect()
    return found


def documents(bundle: Bundle) -> st.SearchStrategy[Any]:
    """What `PolicyInput` allows."""
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    number = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    value = st.recursive(
        st.none() | st.booleans() | number | text | st.sampled_from(STRANGE),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
        max_leaves=6,
    )
    time = st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2200, 1, 1)).map(lambda at: at.isoformat() + "Z")  # noqa: DTZ001 - written with Z
    count = st.integers(0, 5) | st.integers(0, 10**6)
    status = st.sampled_from(["ok", "no_match", "failed", "blocked", "temporary_error", "outcome_unknown", "in_progress"]) | text
    tools, risks = sorted(bundle.tools), ["read", "write", "irreversible"]
    arguments = sorted({name for tool in bundle.tools.values() for name in tool.declaration.parameters.get("properties", {})})
    attributes = sorted({name for subject in bundle.subjects.values() for name in subject.attributes}) or ["x"]
    counted = st.fixed_dictionaries({"count": count, "last_at": st.none() | time, "last_status": st.none() | status})
    past = st.fixed_dictionaries({"tool": st.sampled_from(tools), "status": status, "reason_code": st.none() | text, "at": time})
    approval = st.fixed_dictionaries({"id": text, "state": status, "rule": text, "valid": st.booleans(), "expires_at": time})
    known = [dict(subject.attributes) for subject in bundle.subjects.values()]
    return st.fixed_dictionaries(
        {
            "agent": st.fixed_dictionaries(
                {"name": st.sampled_from(sorted(bundle.agents)) | text, "permissions": st.lists(text, max_size=3)}
            ),
            "subject": st.fixed_dictionaries(
                {
                    "name": st.sampled_from(sorted(bundle.subjects)) | text,
                    "permissions": st.lists(text, max_size=3),
                    "attributes": st.sampled_from(known) | st.dictionaries(st.sampled_from(attributes) | text, value, max_size=4),
                }
            ),
            "tool": st.fixed_dictionaries(
                {
                    "name": st.sampled_from(tools),
                    "risk": st.sampled_from(risks),
                    "replay": st.sampled_from(["safe", "keyed", "probe", "never"]),
                    "permissions": st.lists(text, max_size=2),
                }
            ),
            "args": st.dictionaries(st.sampled_from(arguments) | text, value, max_size=4),
            "cost": st.dictionaries(st.sampled_from(["usd", "eur"]), st.integers(0, 2**53 - 1) | st.integers(0, 10**10), max_size=2),
            "workflow": st.fixed_dictionaries(
                {"name": st.sampled_from(sorted(bundle.workflows)) | text, "max_risk": st.sampled_from(risks)}
            ),
            "run": st.fixed_dictionaries({"id": text, "calls": count, "failures": count, "history": st.lists(past, max_size=4)}),
            "recent": st.fixed_dictionaries({"same_call": counted, "same_tool": counted}),
            "approval": st.none() | approval,
            "context": st.dictionaries(text, value, max_size=2),
            "now": time,
        }
    )


async def differences(pair: Pair, policies: PolicySet, documents: list[bytes]) -> list[tuple[bytes, bytes, bytes]]:
    await pair.load(policies)
    answers = await pair.compare(policies.revision, documents)
    return [(document, *both) for document, both in zip(documents, answers, strict=True) if both[0] != both[1]]


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda folder: folder.name)
async def test_a_bundles_cases_come_out_as_expected_on_opa(folder: Path) -> None:
    loaded = load(folder)
    async with pulled_opa() as make:
        opa: PulledOpa = make(deadline_s=30)
        async with rehearse(loaded.bundle, engine=opa, report=report_fault) as evaluate:
            findings = await run_cases(loaded.bundle, loaded.cases, evaluate)
    assert [finding for finding in findings if finding.severity == "error" and finding.code != "case-slow"] == []
    assert loaded.cases


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda folder: folder.name)
async def test_a_bundles_inputs_come_out_equal_however_they_are_changed(folder: Path) -> None:
    loaded = load(folder)
    chance = random.Random(3)  # noqa: S311 - the same questions in every run
    known = await inputs_of_cases(loaded)
    asked = known + [mutate(document, chance) for document in known for _ in range(MUTATIONS)] + generated(loaded, GENERATED)
    async with open_pair() as pair:
        assert await differences(pair, loaded.bundle.policy, asked) == []
    assert len(asked) > GENERATED


def test_the_authors_tests_pass_in_both_engines(tmp_path: Path) -> None:
    loaded = load(BUNDLES[0])
    assert run_tests(loaded.bundle.policy, loaded.modules) == []
    for file, source in {**loaded.bundle.policy.modules, **loaded.modules}.items():
        place = tmp_path / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(source)
    (tmp_path / "data.json").write_bytes(orjson.dumps(loaded.bundle.policy.data))
    ran = subprocess.run([find_opa(), "test", "-f", "json", str(tmp_path)], check=False, capture_output=True, text=True)
    results = orjson.loads(ran.stdout)
    assert [result["name"] for result in results if result.get("fail") or result.get("error")] == []
    assert ran.returncode == 0
    assert len(results) == sum(source.count("\ntest_") for source in loaded.modules.values())


async def test_a_bundle_that_the_check_takes_is_taken_by_opas_compiler(tmp_path: Path) -> None:
    small = SmallBundle(tmp_path).load()
    async with pulled_opa() as make:
        opa: PulledOpa = make(deadline_s=10)
        async with asyncio.timeout(30):
            await opa.activate(small.bundle.policy)
        await opa.close()
