"""What tests and inputs reach of Rego, and why a test is not true."""

from gateway.policy.coverage import Coverage, Place, Value, explain_tests, measure
from gateway.policy.modules import assemble

HEAD = "package policies.a\n\n"
TESTS = "package policies.a_test\n\nimport data.policies.a\n\n"


def coverage(policy: str, tests: str = "", *, documents: tuple[bytes, ...] = (), own_codes: tuple[str, ...] = ()) -> Coverage:
    modules = {"rego/a.rego": HEAD + policy, "rego/a_test.rego": TESTS + tests}
    names = [f"data.policies.a_test.{line.split()[0]}" for line in tests.splitlines() if line.startswith("test_")]
    return measure(assemble(modules, {}, "r"), modules, tests=names, documents=documents, own_codes=own_codes)


def test_a_rule_is_reached_once_all_of_its_statements_held() -> None:
    policy = 'allow contains "POLICY_ALLOWED" if {\n\tinput.a == 1 # one\n\tnot input.b == 2; input.c == "x"\n}\n\ndeny contains "POLICY_DENIED" if "x" in input.d\n'
    found = coverage(policy, documents=(b'{"a": 1, "b": 2}', b'{"d": ["y"]}'))
    assert (found.rules.reached, found.rules.total) == (0, 2)
    assert found.reason_codes.missing == (
        Place(file="rego/a.rego", line=3, what="no test or case reaches POLICY_ALLOWED"),
        Place(file="rego/a.rego", line=8, what="no test or case reaches POLICY_DENIED"),
    )
    assert found.lines.missing == ()  # all were tried
    found = coverage(policy, documents=(b'{"a": 1, "c": "x"}', b'{"d": ["x"]}'))
    assert (found.percent, found.rules.missing) == (100.0, ())


def test_lines_that_nothing_tried_are_named() -> None:
    found = coverage('allow contains "POLICY_ALLOWED" if {\n\tinput.a == 1\n\tinput.b == 2\n}\n', documents=(b'{"a": 0}',))
    assert found.lines.missing == (Place(file="rego/a.rego", line=5, what="input.b == 2"),)
    assert found.lines.percent == 50.0


def test_else_and_functions_and_several_bodies_count_for_themselves() -> None:
    policy = "f(x) := 1 if x > 1\n\nf(x) := 2 if x <= 1\n\nr := f(input.n) if {\n\tinput.a\n} else := 3 if {\n\tinput.b\n}\n"
    found = coverage(policy, 'test_one if a.r == 1 with input as {"n": 2, "a": true}\n')
    assert [place.line for place in found.rules.missing] == [5, 9]
    found = coverage(policy, 'test_b if a.r == 3 with input as {"b": true}\ntest_a if a.r == 2 with input as {"n": 1, "a": true}\n')
    assert [place.line for place in found.rules.missing] == [3]


def test_a_declared_code_that_no_rule_gives_is_missing() -> None:
    found = coverage('allow contains "POLICY_ALLOWED" if input.a\n', documents=(b'{"a": true}',), own_codes=("X_NEVER",))
    assert found.reason_codes.missing == (Place(file="bundle.yaml", line=0, what="no rule gives X_NEVER"),)


def test_a_failed_test_tells_its_statement_and_the_values_in_it() -> None:
    modules = {
        "rego/a.rego": HEAD + 'allow contains "POLICY_ALLOWED" if input.a\n',
        "rego/a_test.rego": TESTS + 'doc := {"a": true}\n\ntest_bad if {\n\tx := "POLICY_DENIED"\n\ta.allow == {x} with input as doc\n}\n',
    }
    path = "data.policies.a_test.test_bad"
    failing = explain_tests(assemble(modules, {}, "r"), modules, [path])[path]
    assert (failing.line, failing.statement) == (9, "a.allow == {x} with input as doc")
    assert failing.values == (
        Value(expression="a.allow", value='["POLICY_ALLOWED"]'),
        Value(expression="{x}", value='["POLICY_DENIED"]'),
    )
