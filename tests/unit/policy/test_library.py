"""How the combining library turns rule elements into one decision."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from gateway.policy import worker
from gateway.policy.modules import BUNDLE_FILE, LIBRARY_FILE, assemble, read_package
from gateway.policy.sandbox import Sandbox

LEVEL = '{"type": "record_level", "level": "full"}'


def decide(
    modules: Mapping[str, str] | str, given: Mapping[str, Any] | None = None, data: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    sources = {"rego/a.rego": f"package policies.a\n\n{modules}\n"} if isinstance(modules, str) else modules
    policies = assemble(sources, data or {}, "sha256:1")
    with Sandbox() as sandbox:
        assert sandbox.load(policies.modules, policies.data) is None
        mark, text = sandbox.decide(json.dumps(given or {}).encode())
    assert mark == worker.RESULT, text
    return json.loads(text)


def brief(answer: dict[str, Any]) -> tuple[str, str, str]:
    return answer["effect"], answer["policy"], answer["reason_code"]


class TestPrecedence:
    def test_denies_where_nothing_fired(self) -> None:
        assert decide("") == {
            "effect": "deny",
            "reason_code": "DEFAULT_DENY",
            "policy": "gateway",
            "obligations": [],
            "rules": [],
            "revision": "sha256:1",
        }

    def test_denies_for_an_empty_bundle(self) -> None:
        assert brief(decide({})) == ("deny", "gateway", "DEFAULT_DENY")

    @pytest.mark.parametrize(
        ("effects", "winner"),
        [
            (["allow", "confirm", "suppress", "deny"], "deny"),
            (["allow", "confirm", "suppress"], "suppress"),
            (["allow", "confirm"], "confirm"),
            (["allow"], "allow"),
        ],
    )
    @pytest.mark.parametrize("is_granted", [False, True])
    def test_deny_before_suppress_before_confirm_before_allow(self, effects: list[str], winner: str, *, is_granted: bool) -> None:
        answer = decide("\n\n".join(f'{effect} contains "CODE"' for effect in effects), {"approval": {"valid": is_granted}})
        expected = ("allow", "a", "APPROVAL_GRANTED") if is_granted and winner == "confirm" else (winner, "a", "CODE")
        assert brief(answer) == expected
        assert answer["rules"] == [{"effect": effect, "policy": "a", "reason_code": "CODE"} for effect in sorted(effects)]

    @pytest.mark.parametrize("approval", [None, {}, {"valid": False}, {"valid": "true"}, {"valid": 1}, {"valid": None}])
    def test_only_a_valid_grant_turns_confirm_into_allow(self, approval: object) -> None:
        assert brief(decide('confirm contains "CODE"', {"approval": approval})) == ("confirm", "a", "CODE")

    def test_an_error_in_one_rule_fails_the_whole_decision(self) -> None:
        policies = assemble({"a.rego": 'package policies.a\n\nallow contains "CODE"\n\ndeny contains "CODE" if to_number("x")\n'}, {}, "r")
        with Sandbox() as sandbox:
            assert sandbox.load(policies.modules, policies.data) is None
            assert sandbox.decide(b"{}")[0] == worker.ERROR


class TestChoice:
    def test_takes_the_first_by_policy_and_then_code(self) -> None:
        modules = {
            "b.rego": 'package policies.b\n\nallow contains "A"\n',
            "a.rego": 'package policies.a.deep\n\nallow contains "Z"\n\nallow contains "B"\n',
        }
        assert brief(decide(modules)) == ("allow", "a.deep", "B")

    def test_an_element_may_name_its_policy(self) -> None:
        assert brief(decide('allow contains {"reason_code": "A", "policy": "x.y"}')) == ("allow", "x.y", "A")

    def test_the_latest_until_of_equal_elements(self) -> None:
        source = "\n\n".join(f'suppress contains {{"reason_code": "A", "until": "2026-01-0{day}T00:00:00Z"}}' for day in (1, 3, 2))
        assert decide(source)["until"] == "2026-01-03T00:00:00Z"

    def test_no_until_where_there_is_none(self) -> None:
        assert "until" not in decide('suppress contains "A"')

    def test_packages_inside_packages_count(self) -> None:
        modules = {
            "a.rego": 'package policies.a\n\nallow contains "A"\n',
            "b.rego": 'package policies.a.b\n\ndeny contains "D"\n',
        }
        assert brief(decide(modules)) == ("deny", "a.b", "D")

    def test_a_package_may_span_files(self) -> None:
        modules = {
            "a.rego": 'package policies.a\n\nallow contains "A"\n',
            "b.rego": 'package policies.a\n\ndeny contains "D"\n',
        }
        assert brief(decide(modules)) == ("deny", "a", "D")


class TestObligations:
    def test_all_allowing_elements_oblige(self) -> None:
        source = (
            f'allow contains {{"reason_code": "A", "obligations": [{LEVEL}]}}\n\n'
            'allow contains {"reason_code": "B", "obligations": {{"type": "redact_result", "paths": ["/a"]}}}\n\n'
            f'allow contains {{"reason_code": "C", "obligations": [{LEVEL}]}}'
        )
        assert decide(source)["obligations"] == [{"level": "full", "type": "record_level"}, {"paths": ["/a"], "type": "redact_result"}]

    def test_a_confirmed_element_obliges_once_it_is_granted(self) -> None:
        source = f'confirm contains {{"reason_code": "A", "obligations": [{LEVEL}]}}'
        assert decide(source)["obligations"] == []
        assert decide(source, {"approval": {"valid": True}})["obligations"] == [{"level": "full", "type": "record_level"}]

    def test_a_refused_call_obliges_to_nothing(self) -> None:
        assert decide(f'allow contains {{"reason_code": "A", "obligations": [{LEVEL}]}}\n\ndeny contains "D"')["obligations"] == []


class TestMalformed:
    @pytest.mark.parametrize(
        "element",
        [
            "3",
            "null",
            "true",
            "[]",
            "{}",
            '{"reason": "A"}',
            '{"reason_code": 3}',
            '{"reason_code": "A", "policy": 3}',
            '{"reason_code": "A", "until": null}',
            '{"reason_code": "A", "obligations": "all"}',
            '{"reason_code": "A", "obligations": ["all"]}',
            '{"reason_code": "A", "extra": 1}',
            '{"reason_code": "A", "effect": "allow"}',
        ],
    )
    @pytest.mark.parametrize("effect", ["allow", "deny"])
    def test_an_element_that_cannot_be_read_spoils_the_decision(self, effect: str, element: str) -> None:
        assert brief(decide(f'{effect} contains {element}\n\nallow contains "A"')) == ("invalid", "a", "POLICY_OUTPUT_INVALID")

    @pytest.mark.parametrize(
        "rule", ['deny := "D"', "deny := true", "deny := []", 'deny[x] := 1 if some x in ["D"]', "default deny := false"]
    )
    def test_a_rule_that_is_no_set_spoils_the_decision(self, rule: str) -> None:
        assert brief(decide(f'{rule}\n\nallow contains "A"')) == ("invalid", "a", "POLICY_OUTPUT_INVALID")


class TestAssembly:
    def test_names_its_parts_and_leaves_tests_out(self) -> None:
        policies = assemble({"a.rego": "package policies.a\n", "a_test.rego": "package policies.a_test\n"}, {"x": 1}, 'sha256:"1"')
        assert policies.modules.keys() == {LIBRARY_FILE, BUNDLE_FILE, "a.rego"}
        assert policies.data == {"x": 1}
        assert policies.revision == 'sha256:"1"'

    def test_the_revision_is_in_every_answer(self) -> None:
        assert decide("")["revision"] == "sha256:1"

    def test_refuses_a_module_elsewhere(self) -> None:
        with pytest.raises(ValueError, match=r"b\.rego"):
            assemble({"b.rego": "package gateway\n"}, {}, "r")

    @pytest.mark.parametrize(
        ("source", "package"),
        [
            ("package policies.a", "policies.a"),
            ("# package policies.x\n\n  package policies.a.b # why\nx := 1", "policies.a.b"),
            ("package policies.a\r\nx := 1", "policies.a"),
            ("package policies", None),
            ("package policiesa.b", None),
            ('package policies["a"]', None),
            ("x := 1\npackage policies.a", None),
            ("package policies.a.é", None),
            ("", None),
        ],
    )
    def test_reads_packages_in_plain_words_only(self, source: str, package: str | None) -> None:
        assert read_package(source) == package
