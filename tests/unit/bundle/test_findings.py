"""Each check of activation: the small bundle with one thing changed gives exactly the findings that it should."""

import pytest

from gateway.domain.findings import Finding
from tests.fakes.small_bundle import SmallBundle

FIND, TAKE = "tools/find_room.yaml", "tools/take_room.yaml"


def test_a_finding_says_where_it_stands_what_is_wrong_and_how_to_mend_it(small: SmallBundle):
    small.change(FIND, "risk: read", "rsik: read\nrisk: read")

    assert small.findings() == [
        Finding(
            file=FIND,
            line=4,
            column=1,
            code="field-unknown",
            message=(
                "unknown field `rsik`; allowed: actual, cost, description, execute, exposed, facts, idempotency, keyed, name, parameters, "
                "permissions, probe, progress, record, replay, result, risk, timeout, title"
            ),
            mend="Did you mean `risk`?",
        )
    ]


def test_a_tool_that_no_workflow_exposes(small: SmallBundle):
    small.write("tools/see_room.yaml", (small.folder / FIND).read_text().replace("find_room", "see_room"))

    assert small.findings() == [
        Finding(
            file="tools/see_room.yaml",
            line=1,
            column=1,
            code="tool-not-exposed",
            message="no workflow exposes `see_room`",
            mend="Add it to a workflow in workflows.yaml, or say `exposed: false`.",
        )
    ]


def test_a_tool_that_is_not_exposed_on_purpose_is_fine(small: SmallBundle):
    small.write("tools/see_room.yaml", (small.folder / FIND).read_text().replace("find_room", "see_room") + "exposed: false\n")

    assert small.findings() == []


def test_an_exposed_tool_without_executor(small: SmallBundle):
    text = (small.folder / FIND).read_text()
    small.write(FIND, text[: text.index("execute:")])

    assert [(finding.code, finding.file, finding.line) for finding in small.findings()] == [("executor-missing", FIND, 1)]


# One change: file, old text, new text -> code, file and line of the one finding.
MUTATIONS: list[tuple[str, str, str, str, tuple[str, str, int] | None]] = [
    ("tool: an unknown template field in a query", FIND, "args.beds", "args.bed", ("template-field", FIND, 22)),
    ("tool: an unknown template field in a path", FIND, "{args.city}", "{args.town}", ("template-field", FIND, 21)),
    ("tool: no template field at all in a path", FIND, "{args.city}", "{city}", ("template-field", FIND, 21)),
    ("tool: a path field that may be missing", FIND, "{args.city}", "{args.beds}", ("template-field-optional", FIND, 21)),
    ("tool: a path that climbs up", FIND, "/rooms/{args.city}", "/rooms/../{args.city}", ("path-invalid", FIND, 21)),
    ("tool: a path that names another host", FIND, "/rooms/{args.city}", "//evil/{args.city}", ("path-invalid", FIND, 21)),
    ("tool: a path with a query of its own", FIND, "/rooms/{args.city}", "/rooms/{args.city}?x=1", ("path-invalid", FIND, 21)),
    ("tool: a path with an escape", FIND, "/rooms/{args.city}", "/rooms/%2e%2e/{args.city}", ("path-invalid", FIND, 21)),
    ("tool: a brace that is not closed", FIND, "/rooms/{args.city}", "/rooms/{args.city", ("path-invalid", FIND, 21)),
    ("tool: part of a segment is a field", FIND, "/rooms/{args.city}", "/rooms/in-{args.city}.json", None),
    ("tool: context that the workflow does not declare", TAKE, "context.version", "context.verson", ("template-field", TAKE, 16)),
    ("tool: a business key made of itself", TAKE, "context.version", "downstream_key", ("template-field", TAKE, 16)),
    ("tool: a business key that may be missing", TAKE, "args.room, context.version", "args.card", ("template-field-optional", TAKE, 16)),
    ("tool: a write without idempotency", TAKE, "idempotency: {key: [subject, args.room, context.version], window: 30m}\n", "", ("idempotency-missing", TAKE, 4)),
    ("tool: keyed without its section", TAKE, "keyed: {header: Idempotency-Key, retention: 24h}\n", "", ("replay-incomplete", TAKE, 14)),
    ("tool: a section without its class", TAKE, "replay: keyed", "replay: never", ("replay-incomplete", TAKE, 15)),
    ("tool: probe without its section", FIND, "risk: read", "risk: read\nreplay: probe", ("replay-incomplete", FIND, 5)),
    ("tool: a header of the gateway's own", TAKE, "header: Idempotency-Key", "header: authorization", ("header-reserved", TAKE, 15)),
    ("tool: no time at all", FIND, "risk: read", "risk: read\ntimeout: 0s", ("duration-range", FIND, 5)),
    ("tool: a number as duration", FIND, "risk: read", "risk: read\ntimeout: 8", ("field-invalid", FIND, 5)),
    ("tool: an unknown risk", FIND, "risk: read", "risk: raed", ("field-invalid", FIND, 4)),
    ("tool: the file's name is another", FIND, "name: find_room", "name: find_rooms", ("tool-file-name", FIND, 1)),
    ("tool: an MCP executor", FIND, "  http:\n    connection: rooms\n    method: GET\n    path: /rooms/{args.city}\n    query: {beds: args.beds}\n", "  mcp: {}\n", ("executor-not-built", FIND, 18)),
    ("tool: a client executor", FIND, "  http:\n    connection: rooms\n    method: GET\n    path: /rooms/{args.city}\n    query: {beds: args.beds}\n", "  client: {kind: screen}\n", None),
    ("tool: a client whose answers are read", FIND, "  http:\n    connection: rooms\n    method: GET\n    path: /rooms/{args.city}\n    query: {beds: args.beds}\n", "  client: {kind: screen}\nresult: {no_match: {empty: /rooms}}\n", ("client-answers", FIND, 19)),
    ("tool: a client that the gateway would repeat", TAKE, "  http: {connection: rooms, method: POST, path: /takes, body: {json: args}}\nresult: {no_match: {status: [404]}, failed: {status: [409]}}", "  client: {kind: form}", ("client-repeats", TAKE, 14)),
    ("workflow: nobody who could agree for themselves", "workflows.yaml", "rule: other", "rule: self", ("approver-missing", "workflows.yaml", 8)),
    ("tool: two executors", FIND, "execute:\n", "execute:\n  python: a:b\n", ("executor-invalid", FIND, 17)),
    ("tool: a status in two classes", TAKE, "failed: {status: [409]}", "failed: {status: [409, 404]}", ("answer-class-conflict", TAKE, 20)),
    ("tool: a class without answers", TAKE, "failed: {status: [409]}", "failed: {}", ("answer-class-empty", TAKE, 20)),
    ("tool: redaction that points at nothing", TAKE, "/args/card", "/args/cardToken", ("redact-field", TAKE, 21)),
    ("tool: redaction of any result", TAKE, "/args/card", "/result/token", None),
    ("tool: a cost that is no argument", TAKE, "{arg: /price}", "{arg: /prize}", ("template-field", TAKE, 17)),
    ("tool: a cost that is no number", TAKE, "    price: {type: number, minimum: 0}", "    price: {type: boolean}", ("cost-not-number", TAKE, 17)),
    ("tool: a cost that may be negative", TAKE, "    price: {type: number, minimum: 0}", "    price: {type: number}", ("cost-unbounded", TAKE, 17)),
    ("tool: a fixed cost", TAKE, "{usd: {arg: /price}}", '{usd: "0.05"}', None),
    ("tool: a cost in places", TAKE, "{usd: {arg: /price}}", "{usd: {arg: /price}, concurrency: 1}", ("unit-invalid", TAKE, 17)),
    ("tool: a cost in calls", TAKE, "{usd: {arg: /price}}", "{usd: {arg: /price}, calls: 1}", ("unit-invalid", TAKE, 17)),
    ("tool: a body in a GET", FIND, "    query: {beds: args.beds}", "    body: {json: args}", ("request-body", FIND, 22)),
    ("schema: an open object", FIND, "  type: object\n  additionalProperties: false\n  required", "  type: object\n  required", ("schema-open", FIND, 6)),
    ("schema: a nested open object", FIND, "      additionalProperties: false\n", "", ("schema-open", FIND, 13)),
    ("schema: a value without type", FIND, "{type: integer, enum: [1, 2]}", "{description: beds}", ("schema-open", FIND, 12)),
    ("schema: an array of anything", FIND, "{type: integer, enum: [1, 2]}", "{type: array}", ("schema-open", FIND, 12)),
    ("schema: not an object", FIND, "parameters:\n  type: object", "parameters:\n  type: array", ("schema-not-object", FIND, 7)),
    ("schema: a misspelt keyword", FIND, "pattern: '\\S'", "patern: '\\S'", ("schema-keyword", FIND, 11)),
    ("schema: a keyword with a wrong value", FIND, "pattern: '\\S'", "minLength: x", ("schema-invalid", FIND, 11)),
    ("schema: an unknown type", FIND, "city: {type: string, pattern: '\\S'}", "city: {type: text}", ("schema-invalid", FIND, 11)),
    ("schema: an unknown format", FIND, "pattern: '\\S'", "format: phone", ("schema-invalid", FIND, 11)),
    ("schema: a look-ahead", FIND, "pattern: '\\S'", "pattern: '(?=a)b'", ("schema-pattern", FIND, 11)),
    ("schema: a back-reference", FIND, "pattern: '\\S'", "pattern: '(a)\\1'", ("schema-pattern", FIND, 11)),
    ("schema: a pattern too large to compile", FIND, "pattern: '\\S'", "pattern: '((a{1,999}){1,999}){1,999}'", ("schema-pattern", FIND, 11)),
    ("schema: a foreign reference", FIND, "{type: integer, enum: [1, 2]}", "{$ref: 'http://example.com/x'}", ("schema-reference", FIND, 12)),
    ("schema: a reference to a file", FIND, "{type: integer, enum: [1, 2]}", "{$ref: 'file:///etc/passwd'}", ("schema-reference", FIND, 12)),
    ("schema: a reference to nothing", FIND, "{type: integer, enum: [1, 2]}", "{$ref: '#/$defs/beds'}", ("schema-reference", FIND, 12)),
    ("schema: required without property", FIND, "required: [city]", "required: [city, town]", ("schema-required", FIND, 9)),
    ("workflow: an unknown tool", "workflows.yaml", "[find_room, take_room]", "[find_room, take_room, find_rom]", ("tool-unknown", "workflows.yaml", 2)),
    ("workflow: a tool twice", "workflows.yaml", "[find_room, take_room]", "[find_room, take_room, find_room]", ("entry-repeated", "workflows.yaml", 2)),
    ("workflow: a tool above its risk", "workflows.yaml", "max_risk: write", "max_risk: read", ("risk-above-workflow", "workflows.yaml", 2)),
    ("workflow: a tool that says it is not exposed", FIND, "risk: read", "risk: read\nexposed: false", ("tool-exposed", FIND, 5)),
    ("workflow: too few approvers", "workflows.yaml", "rule: other", "rule: two", ("approver-missing", "workflows.yaml", 8)),
    ("workflow: a yes that is never good", "workflows.yaml", "10m", "0m", ("duration-range", "workflows.yaml", 8)),
    ("workflow: an unknown rule", "workflows.yaml", "rule: other", "rule: nobody", ("field-invalid", "workflows.yaml", 8)),
    ("principals: an unknown workflow", "principals.yaml", "workflows: [taking]", "workflows: [taking, takin]", ("workflow-unknown", "principals.yaml", 3)),
    ("principals: an unknown subject", "principals.yaml", "act_for: [ada]", "act_for: [ada, eve]", ("subject-unknown", "principals.yaml", 5)),
    ("principals: a misspelt permission", "principals.yaml", "permissions: [room:approve]", "permissions: [room:approve, room:aprove]", ("permission-unknown", "principals.yaml", 12)),
    ("principals: no form of act_for", "principals.yaml", "act_for: [ada]", "act_for: everybody", ("field-invalid", "principals.yaml", 5)),
    ("principals: a time zone that does not exist", "principals.yaml", "Europe/Paris", "Europe/Pairs", ("timezone-unknown", "principals.yaml", 9)),
    ("principals: a fraction as attribute", "principals.yaml", "timezone: Europe/Paris", "score: 0.5", ("number-not-integral", "principals.yaml", 9)),
    ("budgets: a name twice", "budgets.yaml", "name: spend_per_day", "name: calls_per_run", ("budget-repeated", "budgets.yaml", 2)),
    ("budgets: an unknown unit", "budgets.yaml", "  unit: usd\n", "  unit: eur\n", ("unit-unknown", "budgets.yaml", 4)),
    ("budgets: half a call", "budgets.yaml", "limit: 40", 'limit: "40.5"', ("limit-not-whole", "budgets.yaml", 1)),
    ("budgets: a float", "budgets.yaml", '"500.00"', "500.00", ("field-invalid", "budgets.yaml", 5)),
    ("budgets: more than there is", "budgets.yaml", '"500.00"', '"1e999999"', ("field-invalid", "budgets.yaml", 5)),
    ("budgets: an unknown tool", "budgets.yaml", "tools: [take_room]", "tools: [take_rom]", ("tool-unknown", "budgets.yaml", 7)),
    ("budgets: a tool without cost", "budgets.yaml", "tools: [take_room]", "tools: [take_room, find_room]", ("cost-missing", "budgets.yaml", 7)),
    ("budgets: an unknown time zone", "budgets.yaml", "timezone: UTC", "timezone: Mars/North", ("timezone-unknown", "budgets.yaml", 6)),
    ("budgets: no room for anything", "budgets.yaml", "limit: 40", "limit: 0", ("limit-zero", "budgets.yaml", 1)),
    ("budgets: a rate", "budgets.yaml", "unit: calls, limit: 40", "rate: {limit: 20, per: 1s}", None),
    ("budgets: a rate with a burst", "budgets.yaml", "unit: calls, limit: 40", "rate: {limit: 3, per: 1ms, burst: 1}, tools: [find_room]", None),
    ("budgets: places", "budgets.yaml", "unit: calls, limit: 40", "concurrency: 4, tools: [find_room], workflows: [taking]", None),
    ("budgets: two kinds", "budgets.yaml", "limit: 40", "limit: 40, concurrency: 4", ("field-invalid", "budgets.yaml", 1)),
    ("budgets: no kind", "budgets.yaml", ", unit: calls, limit: 40", "", ("field-invalid", "budgets.yaml", 1)),
    ("budgets: a limit without unit", "budgets.yaml", "unit: calls, ", "", ("field-invalid", "budgets.yaml", 1)),
    ("budgets: a rate with a unit", "budgets.yaml", "limit: 40", "rate: {limit: 20, per: 1s}", ("field-invalid", "budgets.yaml", 1)),
    ("budgets: places with a window", "budgets.yaml", "unit: calls, limit: 40", "concurrency: 4, window: {every: day}", ("field-invalid", "budgets.yaml", 1)),
    ("budgets: no places", "budgets.yaml", "unit: calls, limit: 40", "concurrency: 0", ("field-invalid", "budgets.yaml", 1)),
    ("budgets: half a place", "budgets.yaml", "unit: calls, limit: 40", "concurrency: 0.5", ("field-invalid", "budgets.yaml", 1)),
    ("budgets: a rate of nothing", "budgets.yaml", "unit: calls, limit: 40", "rate: {limit: 0, per: 1s}", ("field-invalid", "budgets.yaml", 1)),
    ("budgets: a rate in no time", "budgets.yaml", "unit: calls, limit: 40", "rate: {limit: 1, per: 0ms}", ("duration-range", "budgets.yaml", 1)),
    ("budgets: a rate per week", "budgets.yaml", "unit: calls, limit: 40", "rate: {limit: 1, per: 7d}", ("duration-range", "budgets.yaml", 1)),
    ("budgets: a rate beyond measure", "budgets.yaml", "unit: calls, limit: 40", "rate: {limit: 101, per: 1ms}", ("rate-too-fast", "budgets.yaml", 1)),
    ("budgets: a rate with another field", "budgets.yaml", "unit: calls, limit: 40", "rate: {limit: 1, per: 1s, brust: 2}", ("field-unknown", "budgets.yaml", 1)),
    ("budgets: a rate for an unknown tool", "budgets.yaml", "unit: calls, limit: 40", "rate: {limit: 1, per: 1s}, tools: [find_rom]", ("tool-unknown", "budgets.yaml", 1)),
    ("codes: one twice", "bundle.yaml", "name: small\n", "name: small\nreason_codes:\n- {code: X_A, effect: deny, message: No.}\n- {code: X_A, effect: deny, message: No.}\n", ("reason-code-repeated", "bundle.yaml", 4)),
    ("codes: without the prefix", "bundle.yaml", "name: small\n", "name: small\nreason_codes:\n- {code: MINE, effect: deny, message: No.}\n", ("field-invalid", "bundle.yaml", 3)),
    ("cases: an unknown reason code", "cases/rooms.yaml", "POLICY_ALLOWED", "POLICY_ALLOWD", ("reason-code-unknown", "cases/rooms.yaml", 9)),
    ("cases: an unknown tool and no code expected", "cases/rooms.yaml", "tool: take_room", "tool: take_rom", ("case-name-unknown", "cases/rooms.yaml", 14)),
    ("cases: a time without zone", "cases/rooms.yaml", "2026-03-01T10:00:00+01:00", "2026-03-01T10:00:00", ("field-invalid", "cases/rooms.yaml", 17)),
    ("cases: a name twice", "cases/rooms.yaml", "taking one is not allowed by anything", "rooms may be looked at", ("case-repeated", "cases/rooms.yaml", 10)),
    ("rego: a misspelt fact", "rego/small/rooms.rego", "input.tool.name", "input.tool.nmae", ("rego-input-unknown", "rego/small/rooms.rego", 3)),
    ("rego: an argument that no tool has", "rego/small/rooms.rego", 'input.tool.name == "find_room"', 'input.args.town == "x"', ("rego-argument-unknown", "rego/small/rooms.rego", 3)),
    ("rego: an argument that a tool has", "rego/small/rooms.rego", 'input.tool.name == "find_room"', 'input.args.city == "x"', None),
    ("rego: a code that is not declared", "rego/small/rooms.rego", "POLICY_ALLOWED", "X_FINE", ("rego-reason-unknown", "rego/small/rooms.rego", 3)),
    ("yaml: a key twice", "principals.yaml", "persons:", "agents: {}\npersons:", ("yaml-duplicate-key", "principals.yaml", 10)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"), [mutation[1:] for mutation in MUTATIONS], ids=[mutation[0] for mutation in MUTATIONS]
)
def test_one_change_gives_exactly_its_finding(small: SmallBundle, file: str, old: str, new: str, expected: tuple[str, str, int] | None):
    small.change(file, old, new)

    found = [(finding.code, finding.file, finding.line) for finding in small.findings()]

    assert found == ([] if expected is None else [expected])


def test_an_unknown_field_deep_in_a_file_names_the_fields_of_its_own_place(small: SmallBundle):
    small.change(FIND, "    query: {beds: args.beds}", "    query: {beds: args.beds}\n    qurey: {}")

    finding = small.findings()[0]
    assert (finding.message, finding.mend) == (
        "unknown field `qurey`; allowed: body, connection, method, path, query",
        "Did you mean `query`?",
    )


def test_an_unknown_field_in_a_list_entry_names_the_fields_of_a_budget(small: SmallBundle):
    small.change("budgets.yaml", "limit: 40", "limit: 40, burst: 3")

    assert small.findings()[0].message == (
        "`calls_per_run`: unknown field `burst`; allowed: concurrency, limit, name, per, rate, tools, unit, window, workflows"
    )


@pytest.mark.parametrize(
    ("says", "sentence"),
    [
        ("unit: calls, limit: 40, rate: {limit: 1, per: 1s}", "must say exactly one of `limit`, `rate` and `concurrency`"),
        ("unit: calls", "must say exactly one of `limit`, `rate` and `concurrency`"),
        ("limit: 40", "must say the `unit` of its `limit`, such as `calls` or `usd`"),
        ("unit: calls, concurrency: 4", "must not say `unit`: only a `limit` has one"),
    ],
)
def test_a_budget_of_two_minds_is_told_which_one_to_choose(small: SmallBundle, says: str, sentence: str):
    small.change("budgets.yaml", "unit: calls, limit: 40", says)

    assert [finding.message for finding in small.findings()] == [f"`calls_per_run` {sentence}"]


def test_findings_in_a_list_name_the_entry_and_not_its_number(small: SmallBundle):
    small.change("budgets.yaml", "  unit: usd\n", "  unit: eur\n")
    small.change("cases/rooms.yaml", "now: 2026-03-01T10:00:00+01:00", "now: yesterday")
    small.change("cases/rooms.yaml", "reason_code: POLICY_ALLOWED", "reason_code: POLICY_ALOWED")

    assert [finding.message for finding in small.findings()] == [
        "`taking one is not allowed by anything`: `now` must be a time with its zone, such as 2026-03-01T10:00:00Z"
    ]
    small.change("cases/rooms.yaml", "now: yesterday", "now: 2026-03-01T10:00:00+01:00")
    assert [finding.message for finding in small.findings()] == [
        "`spend_per_day`: no tool has a cost in `eur`; units: calls, usd",
        "`rooms may be looked at`: there is no reason code `POLICY_ALOWED`",
    ]


def test_an_entry_without_a_name_keeps_its_number(small: SmallBundle):
    small.change("budgets.yaml", "name: calls_per_run, ", "")

    assert [finding.message for finding in small.findings()] == ["`0.name` is missing"]


def test_a_misspelt_name_in_rego_is_found_in_the_bundle(small: SmallBundle):
    small.change("rego/small/rooms.rego", "find_room", "find_rooms")

    assert small.only() == ("rego-unknown-name", "rego/small/rooms.rego", 3)
    assert small.findings()[0].mend == "Did you mean `find_room`?"


def test_a_misspelt_attribute_in_rego_is_a_warning(small: SmallBundle):
    small.change("rego/small/rooms.rego", 'if input.tool.name == "find_room"', 'if input.subject.attributes.timezon == "UTC"')

    assert [(finding.code, finding.severity) for finding in small.findings()] == [("rego-attribute-unknown", "warning")]


def test_a_value_that_may_have_two_forms_is_explained_in_the_form_that_fits(small: SmallBundle):
    small.change(TAKE, "window: 30m}", "windw: 30m}")

    assert [(finding.code, finding.message) for finding in small.findings()] == [
        ("field-missing", "`idempotency.window` is missing"),
        ("field-unknown", "unknown field `windw`; allowed: key, window"),
    ]


def test_a_value_of_neither_form_gives_one_finding(small: SmallBundle):
    small.change(TAKE, "idempotency: {key: [subject, args.room, context.version], window: 30m}", "idempotency: agent")

    assert [(finding.code, finding.message) for finding in small.findings()] == [
        ("field-invalid", "`idempotency` must be 'caller' or must be a mapping")
    ]


def test_a_write_that_says_nothing_about_repeating_gives_both_findings(small: SmallBundle):
    text = (small.folder / TAKE).read_text()
    start, end = text.index("replay: keyed"), text.index("cost:")
    small.write(TAKE, text[:start] + text[end:])

    assert [(finding.code, finding.line) for finding in small.findings()] == [("idempotency-missing", 4), ("replay-missing", 4)]


def test_a_reason_code_of_the_bundles_own_may_be_used_with_its_effect_only(small: SmallBundle):
    small.write("bundle.yaml", "name: small\nreason_codes:\n- {code: X_FINE, effect: allow, message: Fine.}\n")
    small.change("rego/small/rooms.rego", "POLICY_ALLOWED", "X_FINE")
    assert small.findings() == []

    small.change("bundle.yaml", "effect: allow", "effect: deny")
    assert [finding.code for finding in small.findings()] == ["rego-reason-unknown"]


def test_a_property_called_like_a_keyword_does_not_open_a_schema(small: SmallBundle):
    small.change(FIND, "    beds: {type: integer, enum: [1, 2]}", "    beds: {type: integer}\n    not: {type: object}")

    assert small.only() == ("schema-open", FIND, 13)


def test_a_combination_does_not_open_a_schema(small: SmallBundle):
    small.change(FIND, "{type: integer, enum: [1, 2]}", "{allOf: [{type: object}]}")

    assert small.only() == ("schema-open", FIND, 12)


def test_alternatives_that_only_narrow_a_closed_object_are_fine(small: SmallBundle):
    small.change(FIND, "  required: [city]", "  required: [city]\n  anyOf: [{required: [beds]}, {required: [wishes]}]")

    assert small.findings() == []


def test_a_reference_that_leads_back_to_itself_is_found_where_it_does(small: SmallBundle):
    small.change(FIND, "{type: integer, enum: [1, 2]}", "{$ref: '#/$defs/b'}")
    small.change(FIND, "execute:", "  $defs:\n    b: {anyOf: [{type: string}, {$ref: '#/$defs/b'}]}\nexecute:")

    assert small.only() == ("schema-reference", FIND, 18)


def test_a_list_cannot_stand_in_a_path(small: SmallBundle):
    small.change(FIND, "required: [city]", "required: [city, wishes]")
    small.change(FIND, "{args.city}", "{args.wishes}")

    assert small.only() == ("template-field", FIND, 21)


def test_references_that_multiply_are_bounded(small: SmallBundle):
    levels = "".join(
        f"    l{n}: {{anyOf: [{', '.join(['{$ref: ' + chr(39) + f'#/$defs/l{n + 1}' + chr(39) + '}'] * 10)}]}}\n" for n in range(8)
    )
    small.change(FIND, "    beds: {type: integer, enum: [1, 2]}", "    beds: {$ref: '#/$defs/l0'}")
    small.change(FIND, "execute:", f"  $defs:\n{levels}    l8: {{type: string}}\nexecute:")

    assert [finding.code for finding in small.findings()] == ["schema-reference"]


def test_every_file_is_read_even_if_the_first_is_broken(small: SmallBundle):
    small.write("bundle.yaml", "name: [")
    small.change(FIND, "risk: read", "risk: raed")
    small.change("budgets.yaml", "limit: 40", "limit: -1")

    assert [(finding.file, finding.code) for finding in small.findings()] == [
        ("budgets.yaml", "field-invalid"),
        ("bundle.yaml", "yaml-syntax"),
        (FIND, "field-invalid"),
    ]
