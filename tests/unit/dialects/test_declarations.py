import time
from typing import Any, cast

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects import gemini
from gateway.dialects.json_format import describe_tools
from gateway.dialects.portable_schema import GEMINI, JSON_SCHEMA, MAX_NODES, Vocabulary, portable_parameters
from gateway.dialects.registry import FORMATS
from gateway.domain.catalogue import Risk, ToolDeclaration


def tool(name: str = "search_hotels", parameters: dict[str, Any] | None = None) -> ToolDeclaration:
    return ToolDeclaration.model_validate(
        {
            "name": name,
            "title": "Search hotels",
            "description": "Search hotels in a city.",
            "risk": "read",
            "permissions": ["hotel:read"],
            "parameters": parameters or {"type": "object", "additionalProperties": False, "properties": {}},
            "execute": {"http": {"connection": "travel", "method": "GET", "path": "/hotels"}},
        }
    )


def object_with(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": list(properties), "properties": properties}


def convert_property(schema: Any, **definitions: Any) -> Any:
    return portable_parameters(object_with(x=schema) | {"$defs": definitions}, GEMINI)["properties"]["x"]


def nodes_of(schema: Any) -> list[dict[str, Any]]:
    if isinstance(schema, dict):
        node = cast("dict[str, Any]", schema)
        return [node, *(inner for value in node.values() for inner in nodes_of(value))]
    return [inner for item in cast("list[Any]", schema) for inner in nodes_of(item)] if isinstance(schema, list) else []


def test_declares_name_description_and_parameters():
    parameters = object_with(city={"type": "string", "description": "City and country"})
    assert gemini.declarations([tool(parameters=parameters)]) == [
        {
            "function_declarations": [
                {"name": "search_hotels", "description": "Search hotels in a city.", "parameters_json_schema": parameters},
            ]
        }
    ]


def test_a_tool_without_parameters_declares_none():
    assert gemini.declarations([tool()]) == [
        {"function_declarations": [{"name": "search_hotels", "description": "Search hotels in a city."}]}
    ]


def test_no_tools_are_no_declarations():
    assert gemini.declarations([]) == []


def test_a_thousand_tools_are_declared_in_order_in_lists_that_gemini_takes():
    tools = [tool(f"tool_{number}", object_with(x={"type": "integer", "enum": [1, 2]})) for number in range(1000)]
    start = time.perf_counter()
    lists = gemini.declarations(tools)
    assert time.perf_counter() - start < 1
    assert [len(each["function_declarations"]) for each in lists] == [512, 488]
    assert [each["name"] for one in lists for each in one["function_declarations"]] == [each.name for each in tools]


def test_an_integer_enum_moves_into_the_description_and_the_tool_keeps_it():
    parameters = object_with(minutes={"type": "integer", "enum": [60, 1440], "description": "How long."})
    declared = tool(parameters=parameters)
    converted = gemini.declarations([declared])[0]["function_declarations"][0]["parameters_json_schema"]
    assert converted["properties"]["minutes"] == {"type": "integer", "description": "How long. One of: 60, 1440."}
    assert declared.parameters["properties"]["minutes"]["enum"] == [60, 1440]


def test_text_enums_stay_and_mixed_or_empty_ones_do_not():
    assert convert_property({"enum": ["a", "b"]}) == {"enum": ["a", "b"]}
    assert convert_property({"const": "a"}) == {"enum": ["a"]}
    assert convert_property({"enum": ["a", None, True]}) == {"description": 'One of: "a", null, true.'}
    assert convert_property({"enum": ["a", ""]}) == {"description": 'One of: "a", "".'}


def test_unknown_constraints_become_sentences_and_the_rest_is_dropped():
    schema = {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": 10,
        "multipleOf": 0.5,
        "$comment": "x",
        "default": 1,
        "examples": [1],
        "not": {"const": 3},
    }
    assert convert_property(schema) == {"type": "number", "maximum": 10, "description": "Greater than 0. A multiple of 0.5."}
    assert convert_property({"type": "string", "pattern": r"\S", "format": "uuid", "maxLength": 9}) == {
        "type": "string",
        "description": r"At most 9 characters. Matches the regular expression \S. Format: uuid.",
    }
    assert convert_property({"type": "string", "format": "date"}) == {"type": "string", "format": "date"}


def test_references_are_written_out():
    money = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    assert convert_property({"$ref": "#/$defs/money", "description": "The price."}, money=money) == money | {"description": "The price."}


def test_recursion_and_foreign_references_end_as_anything():
    tree = {"type": "object", "properties": {"child": {"$ref": "#/$defs/tree"}}}
    assert convert_property({"$ref": "#/$defs/tree"}, tree=tree) == {"type": "object", "properties": {"child": {"type": "object"}}}
    assert convert_property({"$ref": "#/$defs/a"}, a={"$ref": "#/$defs/b"}, b={"$ref": "#/$defs/a"}) == {}
    assert convert_property({"$ref": "https://example.com/schema.json"}) == {}
    assert convert_property({"$ref": "#/nowhere/at/all"}) == {}


def test_references_that_multiply_are_bounded():
    doubling = {f"d{level}": {"type": "array", "prefixItems": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(30)}
    converted = portable_parameters(object_with(x={"$ref": "#/$defs/d0"}) | {"$defs": doubling}, GEMINI)
    assert len(nodes_of(converted)) < 3 * MAX_NODES


def test_a_long_chain_of_references_is_no_problem():
    chain = {f"c{level}": {"properties": {"next": {"$ref": f"#/$defs/c{level + 1}"}}} for level in range(5000)}
    assert convert_property({"$ref": "#/$defs/c0"}, **chain) != {}


def test_all_of_is_merged_and_one_of_becomes_any_of():
    merged = convert_property({"allOf": [object_with(a={"type": "string"}), {"$ref": "#/$defs/b"}]}, b=object_with(b={"type": "null"}))
    assert merged["properties"] == {"a": {"type": "string"}, "b": {"type": "null"}}
    assert merged["required"] == ["a", "b"]
    assert convert_property({"oneOf": [{"type": "string"}, {"type": "null"}, False]}) == {"anyOf": [{"type": "string"}, {"type": "null"}]}


def test_the_root_is_always_a_plain_object():
    choices = {"anyOf": [{"required": ["a"]}], "properties": {"a": True, "b": False}, "required": ["a", "b"]}
    assert portable_parameters(choices, GEMINI) == {
        "type": "object",
        "properties": {"a": {}},
        "required": ["a"],
    }


def test_arrays_always_say_what_they_hold():
    assert convert_property({"type": "array"}) == {"type": "array", "items": {}}
    assert convert_property({"type": "array", "items": {"type": "integer", "enum": [1]}, "minItems": 1}) == {
        "type": "array",
        "items": {"type": "integer", "description": "One of: 1."},
        "minItems": 1,
    }


def test_names_that_a_dropped_pattern_admits_are_not_forbidden():
    assert convert_property({"type": "object", "patternProperties": {"^x": True}, "additionalProperties": False}) == {"type": "object"}


NODES = st.recursive(
    st.sampled_from(
        [
            True,
            False,
            {},
            {"$ref": "#/$defs/d"},
            {"$ref": "#"},
            {"type": "integer", "enum": [1, 2]},
            {"const": 1.5},
            {"type": ["string", "null"]},
        ]
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from(["a", "b"]), inner),
            "items": inner,
            "anyOf": st.lists(inner, min_size=1),
            "allOf": st.lists(inner, min_size=1),
            "oneOf": st.lists(inner, min_size=1),
            "additionalProperties": inner,
            "not": inner,
        },
    ),
    max_leaves=12,
)


@given(NODES, NODES)
def test_no_schema_leaves_a_reference_or_an_enum_of_anything_but_texts(schema: Any, definition: Any):
    converted = portable_parameters(object_with(x=schema) | {"$defs": {"d": definition}}, GEMINI)
    for node in nodes_of(converted):
        assert "$ref" not in node
        assert "$defs" not in node
        assert all(isinstance(value, str) for value in node.get("enum", []))


INSTANCES = st.recursive(
    st.sampled_from([None, True, 0, 1, 2, 1.5, "", "a", "x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b", "x"]), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("vocabulary", [GEMINI, JSON_SCHEMA])
@given(schema=NODES, definition=NODES, instance=INSTANCES)
def test_what_a_tool_accepts_its_declaration_admits_too(vocabulary: Vocabulary, schema: Any, definition: Any, instance: Any):
    original = object_with(x=schema) | {"$defs": {"d": definition}}
    try:
        accepts = jsonschema_rs.Draft202012Validator(original).is_valid({"x": instance})
    except ValueError:
        return  # a bundle with such a schema is never activated
    if accepts:
        assert jsonschema_rs.Draft202012Validator(portable_parameters(original, vocabulary)).is_valid({"x": instance})


def test_the_format_without_dialect_tells_title_and_risk():
    parameters = object_with(minutes={"type": "integer", "enum": [60, 1440]})
    assert describe_tools([tool(parameters=parameters)]) == [
        {
            "name": "search_hotels",
            "title": "Search hotels",
            "description": "Search hotels in a city.",
            "risk": "read",
            "parameters": parameters,
        }
    ]


LENDING = object_with(
    minutes={"type": "integer", "enum": [60, 1440]},
    price={"type": "number", "exclusiveMinimum": 0},
    code={"type": "string", "pattern": r"\S", "maxLength": 9, "format": "uuid"},
    tags={"type": "array"},
)
LENDING_AS_JSON_SCHEMA = object_with(
    minutes={"type": "integer", "enum": [60, 1440]},
    price={"type": "number", "exclusiveMinimum": 0},
    code={"type": "string", "maxLength": 9, "format": "uuid", "description": r"Matches the regular expression \S."},
    tags={"type": "array", "items": {}},
)


def test_each_vendor_gets_the_shape_that_its_sdk_takes():
    tools = [tool(parameters=LENDING), tool("ping")]
    said = {"description": "Search hotels in a city."}
    nothing: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": {}}
    function = {"name": "search_hotels"} | said | {"parameters": LENDING_AS_JSON_SCHEMA, "strict": False}
    ping: dict[str, Any] = {"name": "ping"} | said | {"parameters": nothing, "strict": False}
    assert FORMATS["openai"](tools) == [{"type": "function"} | function, {"type": "function"} | ping]
    assert FORMATS["openai-chat"](tools) == [{"type": "function", "function": function}, {"type": "function", "function": ping}]
    assert FORMATS["anthropic"](tools) == [
        {"name": "search_hotels"} | said | {"input_schema": LENDING_AS_JSON_SCHEMA},
        {"name": "ping"} | said | {"input_schema": nothing},
    ]
    assert FORMATS["gemini-interactions"](tools)[1] == {"type": "function", "name": "ping"} | said
    assert FORMATS["gemini-interactions"](tools)[0]["parameters"]["properties"]["minutes"] == {
        "type": "integer",
        "description": "One of: 60, 1440.",
    }


def test_mcp_gets_the_tools_own_schema_and_hints_from_its_risk():
    hints: list[Any] = []
    for risk in ("read", "write", "irreversible"):
        declared = tool(parameters=LENDING).model_copy(update={"risk": Risk(risk)})
        (listed,) = FORMATS["mcp"]([declared])
        assert listed["inputSchema"] == LENDING
        hints.append(tuple(listed["annotations"].values()))
    assert hints == [(True, False), (False, False), (False, True)]
