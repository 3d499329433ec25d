"""How authors' tests are run and what their failures say."""

from gateway.policy.modules import assemble
from gateway.policy.rego_tests import run_tests

POLICY = 'package policies.a\n\nallow contains "POLICY_ALLOWED" if input.tool.name == "x"\n'
HEAD = "package policies.a_test\n\nimport data.policies.a\n\n"


def failures(tests: str, policy: str = POLICY) -> list[tuple[str, int, str]]:
    modules = {"rego/a.rego": policy, "rego/a_test.rego": HEAD + tests}
    findings = run_tests(assemble(modules, {"limit": 3}, "r"), modules)
    return [(finding.code, finding.line, finding.message) for finding in findings]


def test_true_passes() -> None:
    assert (
        failures('test_a if "POLICY_ALLOWED" in a.allow with input.tool.name as "x"\n\ntest_b := true\n\ntest_c if data.limit == 3\n') == []
    )


def test_undefined_false_and_errors_fail_at_their_place() -> None:
    tests = 'test_undefined if "POLICY_ALLOWED" in a.allow\n\ntest_false := false\n\ntest_error if to_number("x")\n\ntest_number := 3\n'
    assert failures(tests) == [
        ("rego-test-failed", 5, "test_undefined is not true: one of its statements fails."),
        ("rego-test-failed", 7, "test_false is false, not true."),
        ("rego-test-failed", 9, "test_error ends in an error: could not parse string as number (rego/a_test.rego:9:26)."),
        ("rego-test-failed", 11, "test_number is 3, not true."),
    ]


def test_a_test_that_does_not_end_fails_alone() -> None:
    endless = "many := numbers.range(1, 2000)\n\ntest_slow if count({n | some x in many; some y in many; some z in many; n := (x * y) * z}) > 0\n\n"
    found = failures(endless + "test_after if false\n\ntest_good if true\n")
    assert [(code, line) for code, line, _ in found] == [("rego-test-failed", 7), ("rego-test-failed", 9)]
    assert found[0][2] == "test_slow did not end: the worker ended (time limit)."


def test_other_rules_and_todo_are_no_tests() -> None:
    assert [code for code, _, _ in failures("helper if false\n\ntodo_test_a if false\n")] == ["rego-no-tests"]


def test_tests_outside_test_files_do_not_count() -> None:
    modules = {"rego/a.rego": POLICY + "\ntest_a if false\n"}
    findings = run_tests(assemble(modules, {}, "r"), modules)
    assert [(finding.code, finding.severity) for finding in findings] == [("rego-no-tests", "warning")]


def test_a_syntax_error_has_its_place() -> None:
    assert [(code, line) for code, line, _ in failures("test_a if {\n")] == [("rego-syntax", 6)]
