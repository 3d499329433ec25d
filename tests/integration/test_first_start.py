"""Gateways that start together on a new database agree on what is said once about it."""

import asyncio

from gateway.ledger.database import Database


async def test_the_second_gateway_learns_which_master_key_the_first_one_pinned(database_url: str):
    database = await Database.connect(database_url)
    try:
        async with database.connection() as connection:
            await connection.execute(database.sql["mark_installation"], True)

        async def pin(master_id: bytes) -> bytes:
            async with database.connection() as connection:
                return await connection.fetchval(database.sql["pin_master_key"], master_id)

        async with database.transaction() as first:
            assert await first.fetchval(database.sql["pin_master_key"], b"1" * 32) == b"1" * 32
            second = asyncio.create_task(pin(b"2" * 32))
            await asyncio.sleep(0.2)  # it waits for the row
        assert await second == b"1" * 32
    finally:
        await database.close()
