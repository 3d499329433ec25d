"""Migrations are numbered without gaps or twins, so that every database is at one version."""

from gateway.ledger.migrate import read_migrations


def test_numbers_follow_each_other():
    versions = [migration.version for migration in read_migrations()]
    assert versions == list(range(1, len(versions) + 1))
