"""The first rows of a tenant: its control row with its own digest key, and the head of its log."""

import secrets

from gateway.ledger.database import Connection, Statements


async def ensure_tenant(connection: Connection, sql: Statements, tenant: str) -> None:
    """Make them where they are missing, inside the caller's transaction."""
    await connection.execute(sql["insert_control"], tenant, secrets.token_bytes(32))
    await connection.execute(sql["insert_log_head"], tenant)
