"""What the gateway is compared with: a bare handler that parses and answers the same JSON, and one that also INSERTs a row.

Prints one JSON line when it listens, like ``gateway serve``.
"""

import asyncio
import json
import sys
from typing import Any
from uuid import UUID

import asyncpg
import orjson
import uvloop
from aiohttp import web
from uuid_utils.compat import uuid7

TABLE = "CREATE TABLE IF NOT EXISTS plain_calls (id uuid PRIMARY KEY, request bytea NOT NULL, answer bytea NOT NULL)"
INSERT = "INSERT INTO plain_calls (id, request, answer) VALUES ($1, $2, $3)"
CONNECTIONS = 10
"""As many as a gateway has by default."""


def _answer(asked: dict[str, Any], decision_id: UUID) -> bytes:
    call = asked["call"]
    return orjson.dumps(
        {
            "decision_id": str(decision_id),
            "call": {"name": call["name"]},
            "decision": {
                "effect": "allow",
                "reason_code": "READ_ONLY_ALLOWED",
                "stage": "decide",
                "policy": "policies.bench",
                "revision": "sha256:0000000000000000000000000000000000000000000000000000000000000000",
            },
            "result": {
                "status": "ok",
                "reason_code": "EXECUTION_SUCCEEDED",
                "message": "Done.",
                "retry_same_input": False,
                "data": {"n": call["args"]["n"]},
            },
            "replayed": False,
        }
    )


async def _answer_barely(request: web.Request) -> web.Response:
    return web.Response(body=_answer(orjson.loads(await request.read()), uuid7()), content_type="application/json")


async def _serve(database_url: str | None) -> None:
    app = web.Application()
    pool: Any = None
    if database_url is None:
        app.router.add_post("/v1/calls", _answer_barely)
    else:
        pool = await asyncpg.create_pool(database_url, min_size=CONNECTIONS, max_size=CONNECTIONS)
        async with pool.acquire() as connection:
            await connection.execute(TABLE)

        async def insert_and_answer(request: web.Request) -> web.Response:
            body, decision_id = await request.read(), uuid7()
            answer = _answer(orjson.loads(body), decision_id)
            async with pool.acquire() as connection:
                await connection.execute(INSERT, decision_id, body, answer)
            return web.Response(body=answer, content_type="application/json")

        app.router.add_post("/v1/calls", insert_and_answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    sys.stdout.write(json.dumps({"event": "listening", "url": f"http://{host}:{port}"}) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()  # until it is killed


def main() -> None:
    """Argument: a database URL, for the one that INSERTs."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(sys.argv[1] if len(sys.argv) > 1 else None))


if __name__ == "__main__":
    main()
