"""Fixtures for the whole suite: a real PostgreSQL with a template database that is cloned for each test."""

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import asyncpg
import pytest
import structlog
from hypothesis import settings

from gateway.ledger.embedded import EmbeddedPostgres
from gateway.ledger.migrate import APP_ROLE, upgrade

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = "template_gateway"

# Machines are shared and noisy: how long one example takes says nothing here.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")

# Tracebacks with all locals, as structlog prints them by default, take longer than the database waits.
structlog.configure(processors=[structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer()])

for _name in [name for name in os.environ if name.startswith("GATEWAY_") or name in {"TRAVEL_API", "GEMINI_API_KEY"}]:
    del os.environ[_name]  # a developer's settings must not decide what the tests test


@pytest.fixture(scope="session")
def postgres() -> Generator[EmbeddedPostgres]:
    """One PostgreSQL server for the session, with a migrated template database."""
    with temporary_data_dir() as folder:
        server = EmbeddedPostgres(folder)
        asyncio.run(_make_template(server.owner_url))
        yield server
        server.stop()


@pytest.fixture
def data_dir() -> Generator[Path]:
    """A data directory of one test's own, for a PostgreSQL of its own."""
    with temporary_data_dir() as folder:
        yield folder


@contextmanager
def temporary_data_dir() -> Generator[Path]:
    """A folder that the server's own user can reach; pytest's are closed to others, anew by every run."""
    with tempfile.TemporaryDirectory(prefix="gateway-test-") as name:
        yield Path(name)


@pytest.fixture
async def database_url(postgres: EmbeddedPostgres) -> AsyncGenerator[str]:
    """The URL of a fresh database, as the application's role."""
    name = f"test_{uuid4().hex}"
    await _execute(postgres.owner_url, f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
    yield url_of(postgres.owner_url, name, APP_ROLE)
    await _execute(postgres.owner_url, f"DROP DATABASE {name} WITH (FORCE)")


def url_of(owner_url: str, database: str, user: str) -> str:
    """The owner's URL with another database and user."""
    host = parse_qs(urlsplit(owner_url).query)["host"][0]
    return f"postgresql://{user}@/{database}?host={host}"


async def _make_template(owner_url: str) -> None:
    await _execute(owner_url, f"CREATE DATABASE {TEMPLATE}")
    await upgrade(url_of(owner_url, TEMPLATE, "postgres"))


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture
def travel_bundle() -> Path:
    """The sample bundle of this repository."""
    return ROOT / "policies" / "travel"
