from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from gateway.domain.catalogue import FieldError, HttpRequest
from gateway.domain.decision import Refusal
from gateway.domain.reasons import ReasonCode
from gateway.domain.references import Sources
from gateway.executors.rendering import RenderedRequest, check_request, render
from tests.fakes.invocations import declare_http_tool


def request_of(path: str, **more: Any) -> HttpRequest:
    request = declare_http_tool(path=path, **more).execute.http
    assert request is not None
    return request


def sources_of(args: dict[str, Any] | None = None, context: dict[str, Any] | None = None) -> Sources:
    return Sources(args=args or {}, context=context or {}, subject="ada", agent="an-agent", run_id="run-1", downstream_key="key-1")


def render_path(value: Any, template: str = "/contacts/{args.id}") -> str | Refusal:
    rendered = render(request_of(template), sources_of({"id": value}))
    return rendered if isinstance(rendered, Refusal) else rendered.path


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("c-1", "/contacts/c-1"),
        ("../x", "/contacts/..%2Fx"),
        ("a/b", "/contacts/a%2Fb"),
        ("%2e%2e", "/contacts/%252e%252e"),
        ("a?b=c#d", "/contacts/a%3Fb%3Dc%23d"),
        ("a\\..\\b", "/contacts/a%5C..%5Cb"),
        ("a b\r\nX: y", "/contacts/a%20b%0D%0AX%3A%20y"),
        ("é", "/contacts/%C3%A9"),
        ("...", "/contacts/..."),
        (7, "/contacts/7"),
        (True, "/contacts/true"),
        (1.5, "/contacts/1.5"),
    ],
)
def test_a_value_in_a_path_is_one_encoded_segment(value: Any, path: str):
    assert render_path(value) == path


@pytest.mark.parametrize("value", [".", "..", "", None, [], {}, ["a"], "\ud800"])
def test_a_value_that_cannot_be_a_segment_is_refused(value: Any):
    refusal = render_path(value)
    assert isinstance(refusal, Refusal)
    assert refusal.reason_code == ReasonCode.ARGUMENTS_INVALID
    assert [error.path for error in refusal.errors] == ["/id"]


def test_a_refusal_tells_where_and_never_what():
    assert render_path(["FAKE-1"]) == Refusal(
        reason_code=ReasonCode.ARGUMENTS_INVALID,
        errors=(FieldError(path="/id", message="must be a string, a number or a boolean"),),
    )


def test_two_values_cannot_add_up_to_a_dot_segment():
    rendered = render(request_of("/files/{args.a}{args.b}/x"), sources_of({"a": "x", "b": ".."}))
    assert isinstance(rendered, Refusal)
    assert isinstance(render(request_of("/files/.{args.b}/x"), sources_of({"b": "."})), Refusal)


def test_an_absent_reference_in_a_path_is_refused():
    refusal = render(request_of("/x/{args.a.b}"), sources_of({"a": {}}))
    assert isinstance(refusal, Refusal)
    assert refusal.errors == (FieldError(path="/a/b", message="must not be absent or empty"),)


def test_an_unfit_value_of_the_context_is_not_blamed_on_the_arguments():
    refusal = render(request_of("/x/{context.version}"), sources_of(context={"version": ".."}))
    assert isinstance(refusal, Refusal)
    assert refusal.reason_code == ReasonCode.CONTEXT_INVALID


@given(st.text())
def test_no_text_leaves_its_segment(value: str):
    rendered = render_path(value, "/a/{args.id}/b")
    if isinstance(rendered, str):
        url = URL("http://host:1" + rendered, encoded=True)
        assert url.raw_path == rendered
        assert url.host == "host"
        assert rendered.split("/")[1::2] == ["a", "b"]
        assert rendered.split("/")[2] not in {".", "..", ""}
        assert rendered.isascii()


def test_query_fields_are_encoded_and_absent_ones_left_out():
    request = request_of(
        "/hotels", query={"city": "args.city", "max_price": "args.max", "who": "subject", "none": "args.none", "flag": "args.flag"}
    )
    rendered = render(request, sources_of({"city": "Paris, France & co+", "none": None, "flag": False}))
    assert rendered == RenderedRequest(
        method="GET", path="/hotels", query="city=Paris%2C%20France%20%26%20co%2B&who=ada&flag=false", body=None
    )


def test_a_list_in_a_query_is_refused():
    refusal = render(request_of("/hotels", query={"city": "args.city"}), sources_of({"city": ["Paris"]}))
    assert isinstance(refusal, Refusal)
    assert refusal.errors == (FieldError(path="/city", message="must be a string, a number or a boolean"),)


def test_the_body_is_all_arguments_or_named_fields():
    args = {"hotelId": "h1", "guest": {"name": "Zoë"}, "note": None}
    whole = render(request_of("/b", method="POST", body={"json": "args"}), sources_of(args))
    assert whole == RenderedRequest(method="POST", path="/b", query="", body='{"hotelId":"h1","guest":{"name":"Zoë"},"note":null}'.encode())
    fields = {"hotel": "args.hotelId", "name": "args.guest.name", "note": "args.note", "gone": "args.gone", "key": "downstream_key"}
    picked = render(request_of("/b", method="POST", body={"json": fields}), sources_of(args))
    assert picked == RenderedRequest(
        method="POST", path="/b", query="", body='{"hotel":"h1","name":"Zoë","note":null,"key":"key-1"}'.encode()
    )


@pytest.mark.parametrize("path", ["/a?b=c", "/a#b", "/a b", "/a\r\nX: y", "/a/../b", "/./a", "/%2e%2E/b", "/a%zz", "/ä"])
def test_a_path_template_that_would_mean_something_else_is_told_at_activation(path: str):
    assert check_request(declare_http_tool(path=path), request_of(path)) is not None


@pytest.mark.parametrize("path", ["/", "/a/b", "/a%20b/{args.x}", "/a:b@c;d,e/{subject}", "//a"])
def test_ordinary_path_templates_pass(path: str):
    assert check_request(declare_http_tool(path=path), request_of(path)) is None


def test_an_unknown_reference_is_told_at_activation():
    tool = declare_http_tool(path="/a/{secrets.x}")
    assert check_request(tool, request_of("/a/{secrets.x}")) == "unknown reference secrets.x"


@pytest.mark.parametrize("header", ["Authorization", "HOST", "Content-Length", "cookie", "X-Gateway-Call-Id"])
def test_the_key_may_not_take_a_header_of_ours(header: str):
    tool = declare_http_tool(risk="write", replay="keyed", keyed={"header": header, "retention": "24h"})
    assert check_request(tool, request_of("/answer")) is not None
