"""Policies are timed on the largest input of each tool before they may decide."""

from pathlib import Path

import orjson

from gateway.domain.policy_input import HISTORY_LIMIT, PolicyInput
from gateway.policy.timing import time_worst_inputs, worst_document
from tests.fakes.small_bundle import SmallBundle

LOOPS = """package policies.small.loops

deny contains "POLICY_DENIED" if {
	input.tool.name == "find_room"
	past := input.run.history
	count([1 | some a in past; some b in past; some c in past; some d in past; a.at < b.at; c.at < d.at]) == 1
	count([1 | some a in past; some b in past; some c in past; some d in past; some e in past; a.at == b.at; c.at == d.at; e.at == "x"]) == 1
}

deny contains "POLICY_DENIED" if {
	input.tool.name == "find_room"
	past := input.run.history
	count([1 | some a in past; some b in past; some c in past; some d in past; some e in past; a.at == b.at; c.at == d.at; e.at == "x"]) == 1
}
"""


def test_a_tool_whose_largest_input_takes_long_is_told_and_the_others_are_not(tmp_path: Path) -> None:
    small = SmallBundle(tmp_path)
    assert time_worst_inputs(small.load().bundle) == []
    small.write("rego/small/loops.rego", LOOPS)
    assert [(finding.code, finding.file) for finding in time_worst_inputs(small.load().bundle)] == [("policy-slow", "tools/find_room.yaml")]


def test_the_largest_input_fits_the_published_form(tmp_path: Path) -> None:
    bundle = SmallBundle(tmp_path).load().bundle
    document = PolicyInput.model_validate(orjson.loads(worst_document(bundle, bundle.tools["take_room"])))
    assert len(document.run.history) == HISTORY_LIMIT
    assert (len(document.args["room"]), document.args["price"]) == (4_000, 2**53 - 1)
