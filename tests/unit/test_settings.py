"""What settings say about a database that cannot be used."""

import pytest

from gateway.settings import SettingsError, place_of, read_settings


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://user:p@ss@db.example:5433/gateway?sslmode=require", "db.example:5433/gateway"),
        ("postgresql://user:secret@/gateway?host=/run/postgresql", "/run/postgresql/gateway"),
        ("postgresql:///gateway", "the local socket/gateway"),
        ("postgresql://db", "db"),
        ("postgresql://user:secret@[::1/x", "an address that cannot be read"),
    ],
)
def test_a_database_is_named_without_who_enters_it(url: str, place: str):
    assert place_of(url) == place


@pytest.mark.parametrize("url", ["secret", "mysql://user:secret@db/x", "db:5432/x"])
def test_a_url_of_another_kind_of_database_is_refused_and_not_quoted(url: str):
    with pytest.raises(SettingsError) as refused:
        read_settings(None, {"database_url": url})
    assert str(refused.value) == "database_url: must begin with postgresql://"
