"""Constructs of Rego, one a row, and inputs on which engines were seen to part.

A row is the body of a rule that allows, with what it needs beside it. `refused` is the finding by which ``gateway check``
keeps a construct away that the engines do not agree about; rows without it must come out equal on every input.
"""

from dataclasses import dataclass
from typing import Any

ARGUMENTS = frozenset("abcdlnosw")
DATA: dict[str, Any] = {
    "parity": {"words": {"x": ["a", "b"], "y": []}, "limits": {"gold": 10, "basic": 0}, "list": [3, 1, 2], "flag": False}
}


@dataclass(frozen=True)
class Row:
    """One construct."""

    body: str
    beside: str = ""
    """Further rules of the package; `{ROW}` stands for the row's own name in them."""
    refused: str | None = None


def negations() -> list[Row]:
    """`not` over everything that may be missing."""
    operands = [
        "input.args.a", "input.args.a == 1", "input.args.a != 1", "input.args.n > 3", "input.args.n <= input.args.a", 'input.args.s in {"a", "b"}',
        'input.args.s in ["a"]', '"a" in input.args.l', 'startswith(input.args.s, "a")', "contains(input.args.s, input.args.w)",
        "input.args.s == input.args.w", "data.parity.words[input.args.s]", '"a" in data.parity.words[input.args.s]',
        "input.args.s in data.parity.words[input.args.w]", "input.args.n > data.parity.limits[input.args.s]", "data.parity.flag", "input.args.l[0] == 1",
        "input.args.o.a.b", "input.args.o.a == input.args.o.b", "[input.args.a] == [1]", "count(input.run.history) == 0",
        "is_string(input.args.s)", 'object.get(input.args, "a", null) == null', "helper", "value == 1", "member[input.args.s]", "f(input.args.s)",
        'g(input.args.s) == "a"', "input.approval.valid", "input.approval.valid == true", "input.recent.same_call.last_at == input.now",
        'input.subject.attributes.tier == "gold"', "input.cost.usd <= data.parity.limits[input.subject.attributes.tier]",
    ]  # fmt: skip
    beside = """
helper if input.args.s == "a"

value := 1 if input.args.a == 1

value := 2 if input.args.a == 2

member contains input.args.s if input.args.n == 1

f(x) if x == "a"

g(x) := "a" if startswith(x, "a")
"""
    return [Row(f"not {operand}", beside) for operand in operands] + [
        Row("some x in input.args.l\n\tnot x == 1"),
        Row("not every_is_small", "every_is_small if { every x in input.args.l { x < 3 } }"),
        Row("not input.args.l[_] == 3", refused="rego-unsafe-negation"),
        Row("some y\n\tnot input.args.l[y] == 3", refused="rego-unsafe-negation"),
    ]


def conflicts_and_errors() -> list[Row]:
    """What fails an evaluation, bare and where it might be swallowed."""
    two = 'two := 1 if input.args.n > 0\n\ntwo := 2 if input.args.s == "a"'
    both = "h(x) := 1 if x > 0\n\nh(x) := 2 if x < 5"
    key = "o[k] := v if { k := input.args.s; v := 1 }\n\no[k] := v if { k := input.args.w; v := 2 }"
    broken = "broken := abs(input.args.s)"
    return [
        Row("two == 1", two), Row("not two == 1", two), Row("two == 1", f"default two := 0\n\n{two}"), Row("h(input.args.n) == 1", both),
        Row("not h(input.args.n) == 1", both), Row("o.a == 1", key, refused="rego-partial-object"), Row("not o.a == 3", key, refused="rego-partial-object"), Row("broken > 0", broken), Row("not broken > 0", broken),
        Row("count([1 | broken > 0]) == 0", broken), Row("every x in [1] { x < broken }", broken),
        Row('startswith(input.args.s, "a")'), Row("count({x | some x in input.args.l; x > 1}) > 0"),
        Row("upto(input.args.n) == [0]", "upto(n) := [0] if n > 0\n\nupto(n) := [1] if n <= 0"),
        Row('concat(",", input.args.l) == "a,b"'), Row('split(input.args.s, ",") == ["a"]'), Row("max(input.args.l) == 2"), Row("min(input.args.l) == 1"),
        Row("sort(input.args.l) == [1, 2, 3]"), Row("time.parse_rfc3339_ns(input.now) > 0"), Row("time.parse_rfc3339_ns(input.args.s) > 0"),
        Row("input.args.n % input.args.a == 0", refused="rego-fraction"), Row("input.run.calls % input.run.failures == 0"),
        Row("union({input.args.l, {1}}) == {1}"), Row("array.concat(input.args.l, [1]) == [1]"), Row('object.keys(input.args.o) == {"a"}'),
        Row('object.union(input.args.o, {"b": 1}).b == 1'), Row('net.cidr_contains("10.0.0.0/8", input.args.s)'), Row('semver.compare(input.args.s, "1.0.0") == 0'),
        Row('regex.match("^[a-z]+$", input.args.s)'), Row('sprintf("%s-%d", [input.args.s, input.args.n]) == "a-1"'),
    ]  # fmt: skip


def values() -> list[Row]:
    """What both engines were measured to agree about."""
    return [
        Row("false != input.args.a"), Row("input.args.a"), Row("input.args.a == false"), Row("input.args.a == null"), Row("d == 1", "default d := 1\n\nd := 2 if input.args.a"),
        Row('e == "c"', 'e := "a" if { input.args.n > 3 } else := "b" if { some c in input.args.l; c == 1 } else := "c"'),
        Row('e == "b"', 'e := "a" if { x := input.args.o.a; x > 0 } else := "b"'),
        Row("some x in input.args.l\n\tx == 1"), Row("some i, x in input.args.l\n\ti == x"), Row("some k, v in input.args.o\n\tk == v"),
        Row("every x in input.args.l { x > 0 }"), Row("every x in input.args.a { x > 0 }"), Row("every k, v in input.args.o { k != v }"), Row("1 in input.args.l"),
        Row('"a", 1 in input.args.o'), Row("[x, y] := input.args.l\n\tx == y"),  Row("[1, x] = input.args.l\n\tx == 2"),
        Row("{x | some x in input.args.l} == {1, 2}"), Row("[x | some x in input.args.l; x != 1] == [2]"), Row('{k: v | some k, v in input.args.o} == {"a": 1}'),
        Row("{1, 2} & {x | some x in input.args.l} == {1}"), Row("{1} | {x | some x in input.args.l} == {1}"), Row("{1, 2} - {x | some x in input.args.l} == {1}"),
        Row('object.get(input.args.o, "a", 0) == 1'), Row('object.get(input.args.o, ["a", "b"], 0) == 1'), Row('object.get(input.args, "a", 1) == 1'),
        Row("input.args.l[0] == 1"), Row("input.args.l[1] == 1"), Row("input.args.o.a == 1"), Row('input.args.o["a"] == 1'),
        Row("input.args.a < input.args.b"), Row("input.args.a <= input.args.b"), Row("input.args.a == input.args.b"), Row("input.args.a != input.args.b"),
        Row("input.args.s < input.args.w"), Row('input.args.s == "é"'), Row('input.args.s == "e\\u0301"'), Row('input.args.s == "😀x"'),
        Row('startswith(input.args.s, "😀")'), Row('endswith(input.args.s, "ß")'), Row('contains(input.args.s, "\\u0000")'), Row('strings.reverse(input.args.s) == "x😀"'),
        Row('indexof(input.args.s, "x") == 1'), Row('substring(input.args.s, 1, -1) == "x"'), Row("count(input.args.l) == 2"), Row("count(input.args.o) == 2"), Row('trim_space(input.args.s) == "a"'), Row('trim(input.args.s, " ") == "a"'), Row('replace(input.args.s, "a", "b") == "b"'),
        Row("input.run.calls + 1 > input.run.failures * 2"), Row("input.cost.usd + 1 <= data.parity.limits.gold * 1000000"), Row("sum(data.parity.list) > input.run.calls"),
        Row("count(input.subject.permissions) == 2"), Row("count(input.run.history) > 0"), Row("some h in input.run.history\n\th.tool == input.tool.name"),
        Row("input.subject.attributes.hours[0] < input.subject.attributes.hours[1]"), Row('time.weekday(time.parse_rfc3339_ns(input.now)) == "Sunday"'),
        Row('time.clock([time.parse_rfc3339_ns(input.now), "Europe/Paris"])[0] > 12'), Row("time.diff(time.parse_rfc3339_ns(input.now), 0)[0] > 50"),
        Row("time.add_date(time.parse_rfc3339_ns(input.now), 0, 1, 0) > 0"), Row("time.clock([time.parse_rfc3339_ns(input.now), input.args.s])[0] > 12"),
        Row('input.args.a == 1 with input.args as {"a": 1}'), Row('graph.reachable({"a": ["b"], "b": []}, {input.args.s}) == {"a", "b"}'),
        Row('walk(input.args.o, [path, value])\n\tvalue == 1\n\tpath == ["a"]'), Row('object.remove(input.args.o, {"a"}) == {}'), Row('object.filter(input.args.o, ["a"]) == {"a": 1}'),
        Row("round(input.args.n) == 1"), Row("abs(input.args.n) == 1"), Row("ceil(input.args.n) == 5"), Row("floor(input.args.n) == 4"), Row("is_number(input.args.a)"), Row('type_name(input.args.a) == "number"'), Row('strings.any_prefix_match(input.args.s, {"a", "b"})'),
        Row('format_int(input.run.calls, 10) == "3"'), Row('base64.encode(input.args.s) == "YQ=="'), Row("uuid.parse(input.args.s).version == 4"),
    ]  # fmt: skip


def refused() -> list[Row]:
    """What the engines do not agree about, and what ``gateway check`` says to it."""
    return [
        Row("0.1 + 0.2 == 0.3", refused="rego-fraction"), Row("sum([0.1, 0.1, 0.1]) <= 0.3", refused="rego-fraction"), Row("round(1.005 * 100) == 100", refused="rego-fraction"),
        Row("input.run.calls / 2 == 1", refused="rego-fraction"), Row("input.args.n * 100 == 435", refused="rego-fraction"), Row("x := input.args.n\n\tx * 100 == 435", refused="rego-fraction"),
        Row("amount * 100 == 435", "amount := input.args.n", refused="rego-fraction"), Row("times(input.args.n) == 435", "times(x) := x * 100", refused="rego-fraction"),
        Row("sum(input.args.l) == 1", refused="rego-fraction"), Row("sum([x | some x in input.args.l]) == 1", refused="rego-fraction"), Row("product([input.args.n, 3]) == 1", refused="rego-fraction"),
        Row("some x in input.args.s\n\tx == 1", refused="rego-iteration"), Row("some x in input.args.a\n\tx == 1", refused="rego-iteration"),
        Row('{"a": x} = input.args.o\n\tx == 1', refused="rego-object-pattern"), Row('startswith(input.args.a, "x")', refused="rego-text"), Row('not strings.any_suffix_match(input.args.o, "x")', refused="rego-text"), Row("input.args.n - 1 == 0.1", refused="rego-fraction"),
        Row('regex.match("^\\\\d$", input.args.s)', refused="rego-regex"), Row('regex.match("\\\\bx", input.args.s)', refused="rego-regex"), Row('regex.match("{a}", input.args.s)', refused="rego-regex"),
        Row("regex.match(input.args.w, input.args.s)", refused="rego-regex"), Row('regex.replace(input.args.s, "(", "") == ""', refused="rego-builtin"),
        Row('glob.match("hotel:*", [":"], input.args.s)', refused="rego-builtin"), Row('lower(input.args.s) == "i"', refused="rego-builtin"), Row('upper(input.args.s) == "ß"', refused="rego-builtin"),
        Row("count(input.args.s) == 2", refused="rego-count"), Row("x := input.args.s\n\tcount(x) == 2", refused="rego-count"), Row("long(input.args.s)", "long(x) if count(x) > 1", refused="rego-count"),
        Row("count(input.context.s) == 2", refused="rego-count"), Row("some x in input.args.l\n\tcount(x) == 2", refused="rego-count"),
        Row("to_number(input.args.s) == 1", refused="rego-builtin"), Row('indexof(input.args.s, "") == 0', refused="rego-indexof"), Row("indexof(input.args.s, input.args.w) == 0", refused="rego-indexof"), Row('substring(input.args.s, 0.5, 1) == ""', refused="rego-substring"),
        Row("json.unmarshal(input.args.s) == 1", refused="rego-builtin"), Row('json.filter(input.args.o, ["/a"]) == {}', refused="rego-builtin"), Row("object.subset(input.args.l, [1])", refused="rego-builtin"),
        Row('sprintf("%d", [input.args.a, 1]) == "1"', refused="rego-sprintf"), Row('sprintf("%T", [input.args.a]) == ""', refused="rego-sprintf"), Row('sprintf("%.1f", [input.args.n]) == ""', refused="rego-sprintf"),
        Row('sprintf(input.args.s, [1]) == "1"', refused="rego-sprintf"), Row('sprintf("%d", input.args.l) == "1"', refused="rego-sprintf"),
        Row('yaml.unmarshal("a: yes").a == true', refused="rego-builtin"), Row("numbers.range(1, input.args.n) == []", refused="rego-builtin"), Row('strings.count(input.args.s, "") == 1', refused="rego-builtin"),
        Row('http.send({"method": "get", "url": "http://127.0.0.1"}).status_code == 200', refused="rego-builtin"), Row("opa.runtime().env != {}", refused="rego-builtin"), Row("time.now_ns() > 0", refused="rego-builtin"),
        Row('rand.intn("x", 2) == 1', refused="rego-builtin"), Row('uuid.rfc4122("x") != ""', refused="rego-builtin"), Row('net.cidr_expand("10.0.0.0/8") != set()', refused="rego-builtin"),
        Row('time.parse_ns("ß", input.args.s) > 0', refused="rego-builtin"), Row("io.jwt.decode(input.args.s)[0] != null", refused="rego-builtin"), Row('crypto.sha256(input.args.s) != ""', refused="rego-builtin"),
        Row("deep(0)", "deep(n) if deep(n + 1)", refused="rego-recursion"), Row("unknown(input.args.s)", refused="rego-builtin"), Row("startswith(input.args.s)", refused="rego-arity"),
        Row('input.tool.nme == "x"', refused="rego-input-unknown"), Row("data.parity.nope == 1", refused="rego-data-unknown"), Row("misspelt == 1", refused="rego-name-unknown"),
        Row("0 == -input.run.calls", refused="rego-minus"), Row("[[[[[[[[[[[1]]]]]]]]]]] == []", refused="rego-nesting"),
        Row("f(1)", "f(x) if x == 1\n\ntest_f if f(2) with data.policies.parity.{ROW}.f as true", refused="rego-function-mock"),
    ]  # fmt: skip


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "number"}, "s": {"type": "string"}, "w": {"type": "string"}, "l": {"type": "array"}, "o": {"type": "object"}, "a": {}, "b": {},
    },
}  # fmt: skip
"""What a tool declares: inputs that do not fit never reach a policy."""

ROWS = [*negations(), *conflicts_and_errors(), *values(), *refused()]

INPUTS: list[dict[str, Any]] = [
    {}, {"a": None}, {"a": False}, {"a": True}, {"a": 0}, {"a": 1}, {"a": 1.5, "b": 2}, {"a": 2, "b": 2}, {"a": "1", "b": 1}, {"a": [], "b": {}}, {"a": {}, "n": 1},
    {"a": 2**53 - 1, "b": 2**53 - 2}, {"a": [1], "b": [1, 0]}, {"a": 0.1, "b": 0.30000000000000004}, {"a": 1, "b": 1.0000000000000002}, {"n": 4.35}, {"n": 1, "s": "a"},
    {"n": 5, "s": "a", "a": 1}, {"n": -1, "s": "b"}, {"n": 1005, "a": 3}, {"n": "1"}, {"n": None}, {"s": ""}, {"s": "a"}, {"s": "b"}, {"s": "x", "w": "x"}, {"s": "y", "w": "a"},
    {"s": "é"}, {"s": "e\u0301"}, {"s": "İ"}, {"s": "ß", "w": "SS"}, {"s": "😀x", "w": "x"}, {"s": "a\u0000b"}, {"s": " a "}, {"s": "\u00a0a"}, {"s": "\u0661"}, {"s": "gold"},
    {"s": "2026-03-01T10:00:00Z"}, {"s": "10.1.2.3"}, {"s": "::1"}, {"s": "1.0.0"}, {"s": "Europe/Paris"}, {"s": "Nowhere/City"}, {"s": "123e4567-e89b-42d3-a456-426614174000"},
    {"s": 1}, {"s": ["a"], "w": "a"}, {"s": {"a": 1}}, {"l": []}, {"l": [1]}, {"l": [1, 2]}, {"l": [2, 1, 2]}, {"l": ["a", "b"]}, {"l": [None]}, {"l": [[1], [2]]}, {"l": "a"},
    {"l": {"a": 1}}, {"l": [0.1, 0.2]}, {"l": [1, "a", None, True, [], {}]}, {"l": ["😀", "ß"]}, {"o": {}}, {"o": {"a": 1}}, {"o": {"a": {"b": 1}}}, {"o": {"a": 1, "b": 1}},
    {"o": {"a": "a"}}, {"o": []}, {"o": None}, {"o": {"": 0}}, {"l": [{"a": 1}, {"a": 2}]},
]  # fmt: skip
