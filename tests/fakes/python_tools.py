"""Functions that the python executor's tests name in `execute: {python: tests.fakes.python_tools:…}`."""

import asyncio
import threading
import time
from collections.abc import Iterator
from shutil import copyfile  # an import that a bundle must not reach
from typing import Any

from gateway.tool import CallContext, NotSent, Rejected


def echo(args: dict[str, Any], call: CallContext) -> dict[str, Any]:
    return {"args": args, "subject": call.subject, "key": call.downstream_key, "thread": threading.current_thread().name}


async def echo_async(args: dict[str, Any], call: CallContext) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"args": args, "decision_id": str(call.decision_id)}


def change_arguments(args: dict[str, Any], _call: CallContext) -> None:
    args["list"].append("changed")


def reject(_args: dict[str, Any], _call: CallContext) -> None:
    raise Rejected("FAKE-reason")


async def reject_async(_args: dict[str, Any], _call: CallContext) -> None:
    raise Rejected


def refuse(_args: dict[str, Any], _call: CallContext) -> None:
    raise NotSent("FAKE-reason")


async def refuse_async(_args: dict[str, Any], _call: CallContext) -> None:
    raise NotSent


def fail(_args: dict[str, Any], _call: CallContext) -> None:
    raise RuntimeError("FAKE-text")


async def fail_async(_args: dict[str, Any], _call: CallContext) -> None:
    raise RuntimeError("FAKE-text")


def leave(_args: dict[str, Any], _call: CallContext) -> None:
    raise SystemExit(3)


async def leave_async(_args: dict[str, Any], _call: CallContext) -> None:
    raise SystemExit(3)


async def cancel_itself(_args: dict[str, Any], _call: CallContext) -> None:
    raise asyncio.CancelledError


def block(args: dict[str, Any], _call: CallContext) -> None:
    time.sleep(args["seconds"])


async def wait(args: dict[str, Any], _call: CallContext) -> None:
    await asyncio.sleep(args["seconds"])


def block_and_answer(args: dict[str, Any], _call: CallContext) -> dict[str, Any]:
    time.sleep(args["seconds"])
    return {"done": True}


async def wait_and_answer(args: dict[str, Any], _call: CallContext) -> dict[str, Any]:
    await asyncio.sleep(args["seconds"])
    return {"done": True}


async def refuse_to_be_cancelled(args: dict[str, Any], _call: CallContext) -> None:
    end = asyncio.get_running_loop().time() + args["seconds"]
    while (left := end - asyncio.get_running_loop().time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue


def return_strange(_args: dict[str, Any], _call: CallContext) -> object:
    return {"score": float("nan"), "text": "a\0b\ud800"}


def return_object(_args: dict[str, Any], _call: CallContext) -> object:
    return object()


def return_much(_args: dict[str, Any], _call: CallContext) -> object:
    return "a" * 2000


class _Treacherous(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("FAKE-text")


def return_treacherous(_args: dict[str, Any], _call: CallContext) -> object:
    return _Treacherous(a=1)


def forget_to_await(args: dict[str, Any], call: CallContext) -> object:
    return echo_async(args, call)


def take_one(_args: dict[str, Any]) -> None:
    """Of the wrong shape."""


def take_three(_args: dict[str, Any], _call: CallContext, _more: int) -> None:
    """Of the wrong shape."""


def generate(_args: dict[str, Any], _call: CallContext) -> Iterator[int]:
    yield 1


def _hidden(_args: dict[str, Any], _call: CallContext) -> None:  # pyright: ignore[reportUnusedFunction]
    copyfile("/nowhere", "/nowhere-either")


class Callable2:
    """No function."""

    def __call__(self, args: dict[str, Any], call: CallContext) -> None: ...


instance = Callable2()
