"""The builtins that policies may use: those for which both engines were measured to agree, with their number of arguments."""

ALLOWED: dict[str, int] = {
    # Numbers. Integers only; see `gateway.policy.checks.calls`.
    "abs": 1, "ceil": 1, "floor": 1, "round": 1, "count": 1, "sum": 1, "product": 1, "min": 1, "max": 1, "sort": 1,
    "format_int": 2,
    # Strings.
    "concat": 2, "contains": 2, "startswith": 2, "endswith": 2, "split": 2, "replace": 3, "indexof": 2, "substring": 3,
    "trim": 2, "trim_left": 2, "trim_right": 2, "trim_prefix": 2, "trim_suffix": 2, "trim_space": 1,
    "strings.any_prefix_match": 2, "strings.any_suffix_match": 2, "strings.reverse": 1, "strings.replace_n": 2,
    "sprintf": 2, "regex.match": 2,
    # Collections.
    "array.concat": 2, "array.reverse": 1, "object.get": 3, "object.keys": 1, "object.filter": 2, "object.remove": 2,
    "object.union": 2, "object.union_n": 1, "union": 1, "intersection": 1, "graph.reachable": 2, "walk": 1,
    # Types.
    "is_array": 1, "is_object": 1, "is_set": 1, "is_string": 1, "is_number": 1, "is_boolean": 1, "is_null": 1, "type_name": 1,
    # Encodings and formats.
    "base64.encode": 1, "hex.encode": 1,
    "semver.compare": 2, "net.cidr_contains": 2, "uuid.parse": 1,
    # Times; the current one is `input.now`.
    "time.clock": 1, "time.date": 1, "time.weekday": 1, "time.diff": 2, "time.add_date": 4, "time.parse_duration_ns": 1,
    "time.parse_rfc3339_ns": 1,
}  # fmt: skip

REASONS: dict[str, str] = {
    "http.send": "Policies reach nothing outside; put what they need into the data documents.",
    "net.lookup_ip_addr": "Policies reach nothing outside; put what they need into the data documents.",
    "opa.runtime": "Policies do not see their surroundings; put what they need into the data documents.",
    "time.now_ns": "Use time.parse_rfc3339_ns(input.now): a decision has one time.",
    "rand.intn": "A decision must not depend on chance.",
    "uuid.rfc4122": "A decision must not depend on chance.",
    "glob.match": "Use startswith, endswith or split: the engines disagree about globs.",
    "print": "Take it out; write a test instead.",
    "lower": "The engines disagree about some letters; list the spellings, or let the tool's schema allow one only.",
    "upper": "The engines disagree about some letters; list the spellings, or let the tool's schema allow one only.",
    "to_number": "The engines read texts differently; declare the argument as a number.",
    "json.unmarshal": "The engines read numbers differently; declare the structure in the tool's schema.",
    "object.subset": "The engines disagree about texts and mixed collections; write: every x in a { x in b }.",
    "json.marshal": "The engines write some characters differently; compare the parts instead.",
    "json.filter": "The engines read paths differently; use object.filter.",
    "json.remove": "The engines read paths differently; use object.remove.",
    "regex.is_valid": "Patterns are literals and are checked here.",
}
"""What to do instead of builtins that people look for first."""

OTHERWISE = "Use a builtin of docs/policies-contract.md; on this one the engines disagree, or one lacks it."
