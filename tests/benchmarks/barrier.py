"""agentbarrier's runtime on SQLite, measured in its own environment: one allowed call after the other, without HTTP.

Arguments: a path for the database, seconds. Writes one JSON result to stdout.
"""

import asyncio
import importlib
import json
import sys
import time
from typing import Any


async def _measure(path: str, seconds: float) -> dict[str, float]:
    runtime: Any = importlib.import_module("agentbarrier.runtime")
    policy = runtime.RuntimePolicy(
        version="1", rules=(runtime.PolicyRule(name="noop may run", effect=runtime.PolicyEffect.ALLOW, tool="noop"),)
    )
    latencies: list[float] = []
    with runtime.SQLiteRuntimeStore(path) as store:
        barrier = runtime.RuntimeBarrier(policy=policy, store=store)

        async def do_nothing() -> dict[str, int]:
            return {"n": 1}

        began = now = time.perf_counter()
        while now - began < seconds:
            number = len(latencies)
            arguments = {"n": number, "city": "Paris"}
            await barrier.execute_async(tool_name="noop", arguments=arguments, idempotency_key=f"key-{number}", operation=do_nothing)
            latencies.append(time.perf_counter() - now)
            now = time.perf_counter()
    latencies.sort()
    count = len(latencies)
    return {
        "answers": count,
        "rate": count / (now - began),
        "p50_ms": latencies[count // 2] * 1000,
        "p99_ms": latencies[int(count * 0.99)] * 1000,
        "cpu_ms": time.process_time() * 1000 / count,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(_measure(sys.argv[1], float(sys.argv[2])))))
