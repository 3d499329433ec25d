"""The OpenAPI 3.1 description, generated from the table of routes and the models that handlers use."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from gateway import __version__
from gateway.api.problems import CONTENT_TYPE, ProblemDetails
from gateway.api.routes import ROUTES, Readiness, Route
from gateway.api.sse import EVENT_STREAM
from gateway.domain.result import Answer

Refs = Mapping[Any, Any]
"""The reference to each model's schema, by model."""

_NOT_MODIFIED = "The caller has it already"
_REF = "#/components/schemas/{model}"
_PROBLEMS = {
    400: "The request itself is malformed",
    401: "No known credential",
    403: "This credential may not",
    404: "There is no such thing",
    405: "Not with this method",
    409: "It is in another state",
    413: "The body is too large",
    415: "Only application/json, not compressed",
    422: "It was read, and did not pass its checks",
    429: "Too much is under way here; repeat later",
    503: "Nothing was done; repeat later",
}


def describe() -> dict[str, Any]:
    """The whole description as JSON."""
    bodies = {body: None for route in ROUTES for body in (route.body, route.other_body) if body is not None}
    answers = {ProblemDetails: None} | {route.answer: None for route in ROUTES if route.answer is not None}
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "validation") for model in bodies]
    modes.extend((model, "serialization") for model in answers)
    names, schemas = models_json_schema(modes, ref_template=_REF)
    refs: Refs = {model: schema for (model, _), schema in names.items()}
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, refs)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tool-call gateway", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, refs: Refs) -> dict[str, Any]:
    statuses = {*route.other_statuses}
    if route.roles:
        statuses |= {400, 401, 403}  # 400 at least for parameters that the route does not know
    if route.body:
        statuses |= {413, 415}
    problem = {"description": "", "content": {CONTENT_TYPE: {"schema": refs[ProblemDetails]}}}
    answers: dict[str, Any] = {
        str(status): {"description": _NOT_MODIFIED} if status == 304 else problem | {"description": _PROBLEMS[status]}
        for status in sorted(statuses)
    }
    if route.answer is Readiness:
        answers["503"] = _answer(route, refs, "Not ready")
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "responses": {"200": _answer(route, refs, "As described") | ({"links": _links()} if route.answer is Answer else {})} | answers,
        "parameters": _parameters(route),
    }
    if route.roles:
        operation |= {"security": [{"key": []}], "x-roles": sorted(route.roles)}
    if route.body:
        schema = {"anyOf": [refs[route.body], refs[route.other_body]]} if route.other_body else refs[route.body]
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def _answer(route: Route, refs: Refs, description: str) -> dict[str, Any]:
    schema = {"type": "string", "format": "binary"} if route.answer is None else refs[route.answer]
    return {"description": description, "content": {type_: {"schema": schema} for type_ in (route.answer_type, *route.other_answer_types)}}


def _links() -> dict[str, Any]:
    """What an answer on a call leads to."""
    decision_id = {"decision_id": "$response.body#/decision_id"}
    return {
        "AsItStands": {"operationId": "get_call", "parameters": decision_id},
        "AsAuditorsSeeIt": {"operationId": "get_decision", "parameters": decision_id},
    }


def _parameters(route: Route) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string"} | ({"format": "uuid"} if name.endswith("_id") and name != "run_id" else {}),
        }
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    if route.answer_type == EVENT_STREAM and route.body is None:
        parameters.append({"name": "Last-Event-ID", "in": "header", "required": False, "schema": {"type": "integer", "minimum": 0}})
    parameters += [
        {"name": found.name, "in": "query", "description": found.description, "required": found.is_required, "schema": found.schema}
        for found in route.parameters
    ]
    if route.takes_idempotency_key:
        schema = {"type": "string", "pattern": "^[\\x21-\\x7e]{16,255}$"}
        parameters.append({"name": "Idempotency-Key", "in": "header", "required": False, "schema": schema})
    return parameters
