"""Where the gateway may look for OPA: on loopback, or behind TLS."""

import pytest
from pydantic import ValidationError

from gateway.settings import Settings


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8181", "http://localhost:8181", "http://[::1]:8181", "https://opa.example", "https://10.0.0.7:8443/"]
)
def test_takes_loopback_and_https(url: str) -> None:
    assert Settings(opa_url=url).opa_url == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    [
        "http://opa.example:8181",
        "http://10.0.0.7:8181",
        "http://127.0.0.1.example",
        "https://me:secret@opa.example",
        "https://opa.example/v1",
        "https://opa.example?x=1",
        "unix:///run/opa.sock",
        "opa.example",
        "http://127.0.0.1:99999",
        "http://[::1",
        "",
    ],
)
def test_refuses_everything_else(url: str) -> None:
    with pytest.raises(ValidationError, match="opa_url"):
        Settings(opa_url=url)
