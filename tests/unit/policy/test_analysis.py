"""Each fault that the checks must catch, at its place, and that sound policies have none."""

import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.findings import Finding
from gateway.domain.reasons import Effect
from gateway.policy import worker
from gateway.policy.analysis import analyse
from gateway.policy.checks.builtins import ALLOWED
from gateway.policy.checks.names import DeclaredNames
from gateway.policy.sandbox import Sandbox

DATA = {"travel": {"limits": {"gold": 2_000, "basic": 300}, "cities": ["Paris"]}}
OWN_CODES = {"X_LIMIT": Effect.DENY, "X_SILENT": Effect.SUPPRESS}
DECLARED = DeclaredNames(
    tools=frozenset({"search_hotels", "book_hotel"}),
    workflows=frozenset({"trip_planning"}),
    agents=frozenset({"travel-assistant"}),
    subjects=frozenset({"ada"}),
    attributes=frozenset({"tier", "quiet_hours"}),
)
FILE = "rego/travel/search.rego"
HEAD = "package policies.travel.search\n\nimport future.keywords.not\n\n"


@pytest.fixture(scope="module")
def engine() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


def check(modules: Mapping[str, str] | str, data: Mapping[str, Any] = DATA) -> list[Finding]:
    sources = {FILE: modules} if isinstance(modules, str) else modules
    return analyse(sources, data, argument_names=frozenset({"city", "totalUsd"}), own_codes=OWN_CODES, declared=DECLARED)


def found(source: str) -> list[tuple[str, int, int]]:
    """(code, line, column) of each finding in a module that begins with `HEAD`; line 1 is the first after it."""
    findings = check(HEAD + textwrap.dedent(source).lstrip("\n"))
    assert all(finding.file == FILE and finding.message and finding.mend for finding in findings)
    return [(finding.code, finding.line - HEAD.count("\n"), finding.column) for finding in findings]


SOUND = """
import input.tool as t
import data.travel.limits
import data.policies.travel.shared

allow contains "USER_REQUEST_MATCHED_TOOL_SCOPE" if {
	t.name == "search_hotels"
	input.tool.risk in {"read"}
	every past in input.run.history { past.status != "failed" }
	count([past.tool | some past in input.run.history; past.at != null]) < 3
}

deny contains "X_LIMIT" if not is_within_limit

is_within_limit if input.cost.usd <= limits[input.subject.attributes.tier]

deny contains {"reason_code": "X_LIMIT", "policy": "travel.limits"} if {
	some index, past in input.run.history
	past.status == "failed"
	index > 3
	not past.reason_code
}

suppress contains {"reason_code": "X_SILENT", "until": until, "obligations": []} if {
	until := input.now
	[hour, _, _] := time.clock([time.parse_rfc3339_ns(input.now), "UTC"])
	hour < 3
	input.context.anything.below == 1
	input.subject.attributes.quiet_hours[0] == 22
	input.approval.valid == false
	object.get(input, ["tool", "risk"], "") != ""
	object.get(input.args, "city", "") != ""
	regex.match("^[0-9A-Za-z_]{2,4}$", input.args.city)
	sprintf("%d %s", [1, "x"]) != ""
	shared.is_known(input.args.city)
	kind := input.recent.same_call
	kind.count > 0
	input.args[name]
	name != "x"
	walk(input.context, [path, value])
	count(path) > 0
	value != null
}

limits_by_tier := {tier: limit | some tier, limit in limits}

default fallback := 3
"""
SHARED = """
package policies.travel.shared

is_known(city) if city in data.travel.cities
"""
TEST = """
package policies.travel.search_test

import data.policies.travel.search

test_allows if {
	"USER_REQUEST_MATCHED_TOOL_SCOPE" in search.allow with input.tool.name as "search_hotels" with input as {"a": 1} with data.travel.limits as {}
}
"""


def test_sound_policies_have_no_findings() -> None:
    assert check({FILE: HEAD + SOUND, "rego/travel/shared.rego": SHARED, "rego/travel/search_test.rego": TEST}) == []


def test_an_empty_bundle_has_no_findings() -> None:
    assert check({}) == []


class TestSyntax:
    def test_a_syntax_error_has_its_place_also_behind_tabs(self) -> None:
        findings = check(HEAD + "allow contains 3 if {\n\t\tinput.x := := 3\n}\n")
        assert [(finding.code, finding.line, finding.column) for finding in findings] == [("rego-syntax", 6, 14)]

    def test_deep_nesting_is_not_even_parsed(self) -> None:
        findings = check(HEAD + 'x := "[[[[[[[[[[[[" # [[[[[[[[[[[[\n' + "y := " + "[" * 40 + "]" * 40 + "\n")
        assert [(finding.code, finding.line, finding.column) for finding in findings] == [("rego-nesting", 6, 16)]

    def test_the_worker_survives_or_the_bundle_is_refused(self) -> None:
        findings = check(HEAD + "x := input" + ".a" * 3000 + "\n")
        assert findings
        assert {finding.severity for finding in findings} == {"error"}

    @pytest.mark.parametrize(
        "head",
        ["package gateway", "package policies", "package other.x", 'package policies["travel"]', "package policies.a import input.tool"],
    )
    def test_a_package_outside_policies(self, head: str) -> None:
        assert "rego-package" in {finding.code for finding in check(head + "\n\nx := 1\n")} | {"rego-package" if "import" in head else ""}

    def test_a_rule_that_fails_on_every_call(self) -> None:
        assert [finding.code for finding in check(HEAD + 'x := abs("a")\n\nallow contains "POLICY_ALLOWED" if x\n')] == ["rego-no-decision"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        # Facts that no input has.
        ("x := input.tool.rsk", ("rego-input-unknown", 1, 6)),
        ("x := input.toool", ("rego-input-unknown", 1, 6)),
        ("import input.tool as t\n\nx := t.rsk", ("rego-input-unknown", 3, 6)),
        ("import input.toool", ("rego-input-unknown", 1, 8)),
        ("x if {\n\tt := input.tool\n\tt.rsk == 1\n}", ("rego-input-unknown", 3, 2)),
        ("x if {\n\tt.rsk == 1\n\tt := input.tool\n}", ("rego-input-unknown", 2, 2)),
        ("x if {\n\tt = input.tool\n\tt.rsk == 1\n}", ("rego-input-unknown", 3, 2)),
        ("x if {\n\tsome h in input.run.history\n\th.state == 1\n}", ("rego-input-unknown", 3, 2)),
        ("x if some h in input.run.histori", ("rego-input-unknown", 1, 16)),
        ("x if every h in input.run.history { h.state == 1 }", ("rego-input-unknown", 1, 37)),
        ("x := [h.state | some h in input.run.history]", ("rego-input-unknown", 1, 7)),
        ("x if input.run.history[_].state == 1", ("rego-input-unknown", 1, 6)),
        ("x if input.run.history.tool == 1", ("rego-input-unknown", 1, 6)),
        ("x if input.approval.granted", ("rego-input-unknown", 1, 6)),
        ("x if input.now.year == 2026", ("rego-input-unknown", 1, 6)),
        ('x if input["tool"]["rsk"] == 1', ("rego-input-unknown", 1, 6)),
        ("x if not input.tool.rsk", ("rego-input-unknown", 1, 10)),
        ('x if object.get(input, ["tool", "rsk"], 1) == 1', ("rego-input-unknown", 1, 6)),
        ('x if object.get(input.tool, "rsk", 1) == 1', ("rego-input-unknown", 1, 6)),
        ("x if y with input.tool.rsk as 1\n\ny := 1", ("rego-input-unknown", 1, 13)),
        ("x if y with data.travel.limits as input.toool\n\ny := 1", ("rego-input-unknown", 1, 35)),
        ("f(a) := a.b + input.tol", ("rego-input-unknown", 1, 15)),
        ("x := 1 if { false } else := input.tol", ("rego-input-unknown", 1, 29)),
        ("x[k] := 1 if some k in input.tol", ("rego-input-unknown", 1, 24)),
        ("x if input.args.citty == 1", ("rego-argument-unknown", 1, 6)),
        ("import input.args\n\nx if args.citty == 1", ("rego-argument-unknown", 3, 6)),
        ("x if {\n\tsome k\n\tinput.tool[k] == 1\n}", ("rego-input-dynamic", 3, 2)),
        ("x if { walk(input, [p, v]); p == v }", ("rego-input-whole", 1, 8)),
        ('x := json.filter(input, ["tool/rsk"])', ("rego-input-whole", 1, 6)),
        ("x := f(input)\n\nf(i) := i.tool.rsk", ("rego-input-whole", 1, 6)),
        # Builtins.
        ('x := http.send({"url": "http://x"})', ("rego-builtin", 1, 6)),
        ("x := opa.runtime()", ("rego-builtin", 1, 6)),
        ("x := time.now_ns()", ("rego-builtin", 1, 6)),
        ('x := rand.intn("a", 3)', ("rego-builtin", 1, 6)),
        ('x := uuid.rfc4122("a")', ("rego-builtin", 1, 6)),
        ('x := glob.match("a", [":"], "a")', ("rego-builtin", 1, 6)),
        ("x := numbers.range(1, 2)", ("rego-builtin", 1, 6)),
        ('x := nonsense("a")', ("rego-builtin", 1, 6)),
        ("x if y with time.now_ns as 1\n\ny := 1", ("rego-builtin", 1, 13)),
        ("x if y with count as http.send\n\ny := 1", ("rego-builtin", 1, 22)),
        ("x := {y | y := time.now_ns()}", ("rego-builtin", 1, 16)),
        ("x := count([1], 2)", ("rego-arity", 1, 6)),
        ("x := f(1)\n\nf(a, b) := a + b", ("rego-arity", 1, 6)),
        ("x := data.policies.travel.search.f(1)", ("rego-function-unknown", 1, 6)),
        ("x if y with f as 3\n\ny := f(1)\n\nf(a) := a", ("rego-function-mock", 1, 13)),
        ("x if y with data.policies.travel.search.f as g\n\ny := f(1)\n\nf(a) := a\n\ng(a) := a + 1", ("rego-function-mock", 1, 13)),
        ('x if regex.match("\\\\d+", input.now)', ("rego-regex", 1, 18)),
        ("x if regex.match(`\\w`, input.now)", ("rego-regex", 1, 18)),
        ("x if regex.match(input.now, input.now)", ("rego-regex", 1, 18)),
        ('x if regex.match("{a}", input.now)', ("rego-regex", 1, 18)),
        ('x if regex.match("[a", input.now)', ("rego-regex", 1, 18)),
        ('x := sprintf("%s %s", [1])', ("rego-sprintf", 1, 14)),
        ('x := sprintf("%6.2f", [1])', ("rego-sprintf", 1, 14)),
        # Names and negation.
        ("x if not input.run.history[_].tool == 3", ("rego-unsafe-negation", 1, 28)),
        ("x if not input.run.history[i].tool == 3", ("rego-unsafe-negation", 1, 28)),
        ("x if not forbiden\n\nforbidden := true", ("rego-unsafe-negation", 1, 10)),
        ("x := forbiden\n\nforbidden := true", ("rego-name-unknown", 1, 6)),
        ("f(a) := b", ("rego-name-unknown", 1, 9)),
        ("import future.keywords.and\n\nx := 1", ("rego-name-unknown", 1, 8)),
        ("x := 0.5", ("rego-fraction", 1, 6)),
        ("x := input.run.calls / 2", ("rego-fraction", 1, 6)),
        # References.
        ("x := data.policies.nope", ("rego-data-unknown", 1, 6)),
        ("x := data.policies.travel.search.nope", ("rego-data-unknown", 1, 6)),
        ("x := data.travel.limits.platinum", ("rego-data-unknown", 1, 6)),
        ("import data.travel.limmits", ("rego-data-unknown", 1, 8)),
        ("x := data.nope", ("rego-data-unknown", 1, 6)),
        ("x := data.policies.travel", ("rego-data-dynamic", 1, 6)),
        ("x if { some p; data.policies[p] }", ("rego-data-dynamic", 1, 16)),
        ("x := data", ("rego-data-dynamic", 1, 6)),
        ("x := data.gateway.decision", ("rego-reserved", 1, 6)),
        ("x := y\n\ny := x", ("rego-recursion", 1, 1)),
        ("f(n) := f(n - 1)", ("rego-recursion", 1, 1)),
        ("x := data.policies.travel.search.x", ("rego-recursion", 1, 1)),
        # Elements.
        ('allow := "POLICY_ALLOWED"', ("rego-rule-form", 1, 1)),
        ("default deny := false", ("rego-rule-form", 1, 1)),
        ('allow contains "POLICY_DENIED"', ("rego-reason-unknown", 1, 16)),
        ('deny contains "X_NOPE"', ("rego-reason-unknown", 1, 15)),
        ('deny contains "X_SILENT"', ("rego-reason-unknown", 1, 15)),
        ('allow contains "APPROVAL_GRANTED"', ("rego-reason-reserved", 1, 16)),
        ('allow contains code if code := "POLICY_ALLOWED"', ("rego-reason-literal", 1, 16)),
        ('allow contains {"reason_code": lower("X")}', ("rego-reason-literal", 1, 32)),
        ('allow contains {"reason": "POLICY_ALLOWED"}', ("rego-element-field", 1, 1)),
        ('allow contains {"reason_code": "POLICY_ALLOWED", "obligations": [{"type": "encrypt"}]}', ("rego-obligation", 1, 75)),
    ],
)
def test_finds_the_fault_at_its_place(source: str, expected: tuple[str, int, int]) -> None:
    assert expected in found(source)


class TestNames:
    @pytest.mark.parametrize(
        ("condition", "place"),
        [
            ('input.tool.name == "serch_hotels"', (1, 25)),
            ('"serch_hotels" == input.tool.name', (1, 6)),
            ('input.tool.name != "serch_hotels"', (1, 25)),
            ('input["tool"].name in {"search_hotels", "bok_hotel"}', (1, 46)),
            ('input.tool.name in ["bok_hotel"]', (1, 26)),
            ('not input.tool.name == "bok_hotel"', (1, 29)),
            ('some past in input.run.history; past.tool == "bok_hotel"', (1, 53)),
            ('count([1 | input.tool.name == "bok_hotel"]) == 1', (1, 36)),
            ('input.workflow.name == "trip_plannin"', (1, 29)),
        ],
    )
    def test_a_tool_or_workflow_that_is_not_declared_is_an_error(self, condition: str, place: tuple[int, int]) -> None:
        source = f"x if {{ {condition} }}" if ";" in condition else f"x if {condition}"
        assert found(source) == [("rego-unknown-name", *place)]
        assert {finding.severity for finding in check(HEAD + source + "\n")} == {"error"}

    def test_an_alias_is_followed_to_the_name_that_it_stands_for(self) -> None:
        assert found('import input.tool\n\nx if tool.name == "bok_hotel"') == [("rego-unknown-name", 3, 19)]
        assert found('x if {\n\tname := input.tool.name\n\tname == "bok_hotel"\n}') == [("rego-unknown-name", 3, 10)]

    @pytest.mark.parametrize(
        ("source", "code", "mend"),
        [
            ('x if input.subject.name == "adda"', "rego-unknown-name", "Did you mean `ada`?"),
            ('x if input.agent.name in {"travel-asistant"}', "rego-unknown-name", "Did you mean `travel-assistant`?"),
            ("x if input.subject.attributes.teir == 1", "rego-attribute-unknown", "Did you mean `tier`?"),
            ('x if input.subject.attributes["teir"] == 1', "rego-attribute-unknown", "Did you mean `tier`?"),
            ('x if object.get(input.subject.attributes, "teir", 0) == 1', "rego-attribute-unknown", "Did you mean `tier`?"),
        ],
    )
    def test_people_agents_and_attributes_that_are_not_declared_are_warnings(self, source: str, code: str, mend: str) -> None:
        assert [(finding.code, finding.severity, finding.mend) for finding in check(HEAD + source + "\n")] == [(code, "warning", mend)]

    def test_declared_names_and_other_comparisons_have_no_findings(self) -> None:
        source = 'x if { input.tool.name in {"search_hotels"}; input.tool.risk == "read"; input.run.id != "search"; input.subject.attributes.tier == "gold" }'
        assert found(source) == []

    def test_tests_may_invent_names(self) -> None:
        test = 'package policies.travel.search_test\n\ntest_x if input.tool.name == "nope" with input as {"tool": {"name": "nope"}}\n'
        assert check({"rego/search_test.rego": test}) == []

    def test_a_warning_does_not_hide_that_there_is_no_decision(self) -> None:
        source = 'x := abs("a") if not input.subject.name == "adda"\n\nallow contains "POLICY_ALLOWED" if x\n'
        assert [(finding.code, finding.severity) for finding in check(HEAD + source)] == [
            ("rego-no-decision", "error"),
            ("rego-unknown-name", "warning"),
        ]


def test_names_only_the_fault() -> None:
    assert found("x if input.tool.rsk == 1") == [("rego-input-unknown", 1, 6)]


def test_columns_count_characters_and_tabs_as_one() -> None:
    assert found('x if {\n\t"é😀" != input.tol\n}') == [("rego-input-unknown", 2, 10)]


def test_not_needs_its_import() -> None:
    findings = check("package policies.travel.search\n\nx if not input.tool.risk\n")
    assert [(finding.code, finding.line, finding.column) for finding in findings] == [("rego-not-import", 3, 6)]


def test_a_rule_that_exists_in_tests_only_is_unknown_to_policies() -> None:
    test = "package policies.travel.search_test\n\nhelper := 1\n"
    findings = check({FILE: HEAD + "x := data.policies.travel.search_test.helper\n", "rego/search_test.rego": test})
    assert [finding.code for finding in findings] == ["rego-data-unknown"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({"policies": {"travel": {"search": {"allow": ["POLICY_ALLOWED"]}}}}, "rego-data-overlap"),
        ({"policies": {"travel": {"note": 1}}}, "rego-data-overlap"),
        ({"policies": 1}, "rego-data-overlap"),
        ({"gateway": {"decision": {"effect": "allow"}}}, "rego-data-overlap"),
        ({"travel": {"rate": 0.1}}, "rego-data-number"),
        ({"travel": {"rates": [1, 1.0]}}, "rego-data-number"),
        ({"travel": {"big": 2**53}}, "rego-data-number"),
    ],
)
def test_data_documents_that_one_engine_reads_differently(data: dict[str, Any], code: str) -> None:
    assert [finding.code for finding in check({}, data)] == [code]


def test_the_published_list_of_builtins_is_the_one_that_is_checked() -> None:
    page = (Path(__file__).parents[3] / "docs" / "policies-contract.md").read_text("utf-8")
    table = page.split("## Builtins", 1)[1]
    listed = {name for cell in re.findall(r"`([^`]+)`", table) for name in cell.split()}
    assert listed == set(ALLOWED)


def test_the_page_s_example_passes_the_checks() -> None:
    page = (Path(__file__).parents[3] / "docs" / "policies-contract.md").read_text("utf-8")
    example = page.split("```rego\n", 1)[1].split("```", 1)[0]
    own_codes = {"X_BOOKING_LIMIT_BY_TIER": Effect.DENY}
    data = {"travel": {"booking_limits": {"gold": 1}}}
    assert analyse({"rego/booking.rego": example}, data, argument_names=frozenset(), own_codes=own_codes, declared=DECLARED) == []


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_the_embedded_engine_has_every_builtin_that_is_allowed(engine: Sandbox, name: str) -> None:
    mark, text = engine.query(f"{name}({', '.join(['{}'] * ALLOWED[name])})")
    assert mark in (worker.RESULT, worker.ERROR)
    assert "could not find function" not in text
