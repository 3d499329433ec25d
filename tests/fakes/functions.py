"""Python tools for the suite; what they did is kept by the list that the test reads."""

import asyncio
import time
from typing import Any

from gateway.tool import CallContext, NotSent, Rejected

ARRIVALS: list[dict[str, Any]] = []


async def note(args: dict[str, Any], call: CallContext) -> dict[str, Any]:
    """Remember the call and answer how many there were."""
    ARRIVALS.append({"args": args, "decision_id": str(call.decision_id), "subject": call.subject})
    return {"count": len(ARRIVALS)}


async def wait_a_moment(args: dict[str, Any], call: CallContext) -> dict[str, Any]:
    """Take 0.3 s, so that calls overlap."""
    ARRIVALS.append({"args": args, "decision_id": str(call.decision_id), "subject": call.subject})
    await asyncio.sleep(0.3)
    return {"done": True}


def strange_answer(args: dict[str, Any], call: CallContext) -> dict[str, Any]:  # noqa: ARG001 - the signature of tools
    """Answer what JSON and PostgreSQL cannot carry."""
    return {"id": "m1", "trace": "x\0y", "score": float("nan"), "s": "\udc97"}


def block_thread(args: dict[str, Any], call: CallContext) -> dict[str, Any]:  # noqa: ARG001 - the signature of tools
    """Hold a thread longer than any timeout of the suite."""
    time.sleep(2)
    return {}


def reject(args: dict[str, Any], call: CallContext) -> dict[str, Any]:  # noqa: ARG001 - the signature of tools
    """Refuse the input."""
    raise Rejected("SECRET-TEXT")


def not_sent(args: dict[str, Any], call: CallContext) -> dict[str, Any]:  # noqa: ARG001 - the signature of tools
    """Say that nothing happened."""
    raise NotSent("SECRET-TEXT")


async def reject_after_a_moment(args: dict[str, Any], call: CallContext) -> dict[str, Any]:
    """Refuse the input after 0.1 s."""
    ARRIVALS.append({"args": args, "decision_id": str(call.decision_id), "subject": call.subject})
    await asyncio.sleep(0.1)
    raise Rejected("SECRET-TEXT")


async def answer_late(args: dict[str, Any], call: CallContext) -> dict[str, Any]:
    """Take 1.5 s, longer than the timeout that its tool declares."""
    ARRIVALS.append({"args": args, "decision_id": str(call.decision_id), "subject": call.subject})
    await asyncio.sleep(1.5)
    return {"done": True}


async def lose_track(args: dict[str, Any], call: CallContext) -> dict[str, Any]:
    """Break in the middle: nobody knows what happened."""
    ARRIVALS.append({"args": args, "decision_id": str(call.decision_id), "subject": call.subject})
    raise RuntimeError("SECRET-TEXT")
