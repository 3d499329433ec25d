"""The only reader of the environment and of ``gateway.yaml``: the operator's side, never the bundle's.

Precedence: command line, then ``GATEWAY_…`` variables, then ``gateway.yaml``, then the defaults here.
"""

import os
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import parse_qs, urlsplit

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from gateway.domain.json_values import is_object
from gateway.domain.principal import Role


class SettingsError(Exception):
    """The settings cannot be used; the text says which and how to mend it."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SecretSource(_Section):
    """Where a secret comes from: an environment variable or a file, never the settings themselves."""

    env: str | None = None
    file: Path | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError("name either env or file")
        return self

    def reader(self) -> Callable[[], str]:
        """Gives the secret: a variable's value as of now, a file's content whenever it is asked."""
        if self.env is not None:
            value = os.environ.get(self.env)
            if not value:
                raise SettingsError(f"the environment variable {self.env} is not set")
            return lambda: value
        path = self.file or Path()
        if not path.is_file():
            raise SettingsError(f"there is no file {path}")
        if not path.read_text().strip():
            raise SettingsError(f"the file {path} is empty")
        return lambda: path.read_text().strip()


class ConnectionSettings(_Section):
    """An origin with its credential, by the name that bundles use."""

    origin: str
    credential: SecretSource | None = None
    internal: bool = False
    tenants: list[str] | None = None


class KeySettings(_Section):
    """A credential that opens the gateway. An agent's key names the agent, an approver's the person."""

    secret: SecretSource
    roles: Annotated[list[Role], Field(min_length=1)]
    agent: str | None = None
    person: str | None = None
    name: str | None = None
    tenant: str = "default"

    @model_validator(mode="after")
    def _named(self) -> Self:
        if Role.AGENT in self.roles and not self.agent:
            raise ValueError("a key with role agent names its agent")
        if Role.APPROVER in self.roles and not self.person:
            raise ValueError("a key with role approver names its person")
        if not (self.agent or self.person or self.name):
            raise ValueError("a key has an agent, a person or a name")
        return self


class RunSettings(_Section):
    """The model that runs are driven with, and what one run may use."""

    key: SecretSource | None = None
    """Of the Gemini API; GEMINI_API_KEY otherwise. Without either this gateway starts no runs."""
    model: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,63}$")] = "gemini-flash-latest"
    """Used where a request names none."""
    models: list[str] | None = None
    """The models that requests may name; any where this is not set."""
    timeout_s: Annotated[float, Field(gt=0, le=600)] = 120.0
    """For one turn of the model."""
    rounds: Annotated[int, Field(ge=1, le=100)] = 16
    model_calls: Annotated[int, Field(ge=1, le=500)] = 32
    """Requests to the model, repeated ones included."""
    tokens: Annotated[int, Field(ge=1)] = 500_000
    """After as many no further turn is asked for."""
    duration_s: Annotated[float, Field(gt=0, le=43_200)] = 1_800.0
    """Wall clock, with all that people take. Far below the life of idempotency keys, on which nothing runs twice."""
    lease_s: Annotated[float, Field(ge=1, le=300)] = 15.0
    """How long a run waits after its gateway died."""
    max_runs: Annotated[int, Field(ge=1, le=10_000)] = 200
    """Runs under way in one gateway."""
    max_streams: Annotated[int, Field(ge=1, le=10_000)] = 500
    """Open event streams of one gateway."""

    def read_key(self) -> str | None:
        """The key of the Gemini API, None where none is configured. Raises SettingsError."""
        if self.key is not None:
            return self.key.reader()()
        return os.environ.get("GEMINI_API_KEY") or None


class WebhookSettings(_Section):
    """A service that keeps checkpoints."""

    url: str
    credential: SecretSource | None = None


class CheckpointSettings(_Section):
    """Where checkpoints of the decision log are published: outside of the database."""

    folder: Path | None = None
    """A folder with a file a log; a fleet shares one. `checkpoints` below the data directory by default."""
    webhook: WebhookSettings | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.folder is not None and self.webhook is not None:
            raise ValueError("name either folder or webhook")
        return self


def _check_database_url(url: str) -> str:
    if not url.startswith(("postgresql://", "postgres://")):
        raise PydanticCustomError("database_url", "must begin with postgresql://")
    return url


def _check_opa_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        parts, has_port = urlsplit(""), False
    host = parts.hostname or ""
    if (
        not (host and has_port and parts.scheme in ("http", "https") and parts.path in ("", "/"))
        or parts.query
        or parts.fragment
        or "@" in url
    ):
        raise PydanticCustomError("opa_url", "must be an origin such as http://127.0.0.1:8181, without path or credentials")
    if parts.scheme == "http" and not _is_loopback(host):
        raise PydanticCustomError("opa_url", "must be https, except on loopback: whoever sits in between could decide")
    return url.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class BundleSigningSettings(_Section):
    """How the bundles that OPA pulls are signed. With an HS… algorithm the key is a secret that OPA holds too, else a private key (PEM)."""

    key: SecretSource
    key_id: Annotated[str, Field(min_length=1, max_length=100)] = "gateway"
    algorithm: Literal["ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "HS256", "HS384", "HS512"] = "ES256"


class Settings(_Section):
    """Everything that the operator decides. Durations in seconds, sizes in bytes."""

    data_dir: Path = Path(".gateway")
    """Where the embedded PostgreSQL keeps its files."""
    database_url: Annotated[str, AfterValidator(_check_database_url)] | None = None
    """Your own PostgreSQL, as the application role; the embedded one otherwise."""
    connections: dict[str, ConnectionSettings] = {}
    python_modules: list[str] = []
    """Modules that tools may name; anything else is refused."""
    keys: list[KeySettings] = []
    signing_key: SecretSource | None = None
    """Signs checkpoints: base64 of 32 random bytes, the same on every host. `signing.key` below the data directory by default."""
    master_key: SecretSource | None = None
    """Wraps the data keys of subjects: base64 of 32 random bytes, the same on every host. `master.key` below the data directory by default."""
    checkpoints: CheckpointSettings = CheckpointSettings()
    policy_workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Worker processes of the embedded policy engine; one more stands by."""
    opa_url: Annotated[str, AfterValidator(_check_opa_url)] | None = None
    """OPA decides instead of the embedded engine: an origin, https or on loopback. It pulls /v1/bundles/active.tar.gz."""
    opa_token: SecretSource | None = None
    """Sent to OPA as a bearer token, where it asks for one (--authentication=token)."""
    opa_deadline_s: Annotated[float, Field(gt=0, le=30)] = 1.0
    """What one decision of OPA's may take in all, its wait for a new revision included."""
    bundle_signing: BundleSigningSettings | None = None
    """Signs what OPA pulls; OPA is configured to take nothing else."""
    database_connections: Annotated[int, Field(ge=2, le=100)] = 10
    max_in_flight: Annotated[int, Field(ge=1, le=10_000)] = 256
    """Executions at once; beyond it calls are told to come back."""
    drain_s: Annotated[float, Field(ge=0, le=600)] = 30.0
    """How long a stopping gateway waits for executions."""
    gemini_base_url: str | None = None
    """Origin that speaks the Gemini API; Google's otherwise."""
    runs: RunSettings = RunSettings()
    travel_api: str | None = None
    """Origin of a running sample travel service; with --dev one is started where this is not set."""


_FROM_ENVIRONMENT = {
    "GATEWAY_DATA_DIR": "data_dir",
    "GATEWAY_DATABASE_URL": "database_url",
    "GATEWAY_POLICY_WORKERS": "policy_workers",
    "GATEWAY_OPA_URL": "opa_url",
    "GATEWAY_OPA_DEADLINE_S": "opa_deadline_s",
    "GATEWAY_DATABASE_CONNECTIONS": "database_connections",
    "GATEWAY_MAX_IN_FLIGHT": "max_in_flight",
    "GATEWAY_DRAIN_S": "drain_s",
    "GATEWAY_GEMINI_BASE_URL": "gemini_base_url",
    "TRAVEL_API": "travel_api",
}


def read_settings(config: Path | None, overrides: Mapping[str, Any]) -> Settings:
    """The settings in force; `overrides` are the command line's, absent ones None. Raises SettingsError."""
    found: dict[str, Any] = _read_file(config) if config is not None else {}
    found |= {field: os.environ[name] for name, field in _FROM_ENVIRONMENT.items() if os.environ.get(name)}
    found |= {field: value for field, value in overrides.items() if value is not None}
    try:
        return Settings.model_validate(found)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, each['loc'])) or 'settings'}: {each['msg']}" for each in error.errors(include_input=False)]
        raise SettingsError("; ".join(lines)) from None


def place_of(database_url: str) -> str:
    """Where a database is, ``host:port/name``, without who enters it and with what."""
    try:
        parts = urlsplit(database_url)
    except ValueError:
        return "an address that cannot be read"
    host = parts.netloc.rpartition("@")[2] or ",".join(parse_qs(parts.query).get("host", [])) or "the local socket"
    return f"{host}{parts.path.rstrip('/')}"


def _read_file(config: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(config.read_text())
    except OSError as error:
        raise SettingsError(f"cannot read {config}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{config} is not YAML: {str(error)[:200]}") from None
    if not is_object(found):
        raise SettingsError(f"{config} must be a mapping of settings")
    return found
