"""Clients: single requests that note what they learned, and a load of mixed calls with repeats."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import aiohttp

from tests.faults.evidence import Operation
from tests.faults.fleet import AGENTS, APPROVER_KEY, Fleet

WORKFLOW = "faults"
PATIENCE_S = 10.0
TERMINAL = frozenset({"ok", "no_match", "failed"})
PASSING = frozenset({"temporary_error", "in_progress"})
SUBJECTS = ("ada", "bob", "cy")
WRITE_MODES = (
    ["ok"] * 12
    + ["slow", "apply-then-hang", "apply-then-reset", "apply-then-500", "reset-before-apply", "garbage", "huge", "refuse", "busy", "late"]
)  # fmt: skip
READ_MODES = ["ok"] * 8 + ["slow", "apply-then-reset", "apply-then-500", "garbage"]


@dataclass(frozen=True, kw_only=True)
class Wish:
    """One logical call; sent again it is the same call."""

    tool: str
    args: Mapping[str, Any]
    agent: str = "first-agent"
    subject: str = "ada"
    run_id: str = field(default_factory=lambda: f"run-{uuid4().hex[:12]}")
    key: str | None = field(default_factory=lambda: f"key-{uuid4().hex}")
    approval_id: str | None = None


def new_wish(tool: str, mode: str = "ok", **more: Any) -> Wish:
    """A call that nobody made before."""
    args = {"action": f"a-{uuid4().hex[:16]}"} | ({} if mode == "ok" else {"mode": mode})
    return Wish(tool=tool, args=args, **more)


def reason_code(operation: Operation) -> str | None:
    """The reason code of the result, where an answer came."""
    return operation.answer["result"]["reason_code"] if operation.answer else operation.why


class Client:
    """Sends calls to the gateways of a fleet and writes the history."""

    def __init__(self, fleet: Fleet, session: aiohttp.ClientSession) -> None:
        self._fleet = fleet
        self._session = session

    async def send(
        self, gateway: str, wish: Wish, *, patience_s: float = PATIENCE_S, headers: Mapping[str, str] | None = None
    ) -> Operation:
        """One request. Whatever becomes of it is in the operation that comes back."""
        call: dict[str, Any] = {"name": wish.tool, "args": dict(wish.args)}
        call |= {name: value for name, value in (("idempotency_key", wish.key), ("approval_id", wish.approval_id)) if value}
        body = {"workflow": WORKFLOW, "run_id": wish.run_id, "on_behalf_of": wish.subject, "call": call}
        return await self._post(gateway, "/v1/calls", body, wish, patience_s, headers)

    async def agree(self, gateway: str, wish: Wish) -> Wish:
        """Ask for a call that needs a person, and let the person agree; the same call with the grant."""
        asked = await self.send(gateway, wish)
        assert asked.answer is not None, asked
        assert asked.status == "confirmation_required", asked.status
        approval_id = asked.answer["result"]["approval_id"]
        url = f"{self._fleet.url(gateway)}/v1/approvals/{approval_id}/approve"
        async with self._session.post(url, json={}, headers={"Authorization": f"Bearer {APPROVER_KEY}"}) as response:
            response.raise_for_status()
        return replace(wish, approval_id=approval_id)

    async def perform(self, wish: Wish, execution_id: str) -> None:
        """Do what a call asked its client to do: the effect stands in the effect ledger."""
        headers = {"X-Gateway-Call-Id": execution_id}
        async with self._session.post(self._fleet.tool_url + "/perform", json=dict(wish.args), headers=headers) as response:
            response.raise_for_status()

    async def report(
        self, gateway: str, wish: Wish, execution_id: str, *, patience_s: float = PATIENCE_S, headers: Mapping[str, str] | None = None
    ) -> Operation:
        """Say that it was done."""
        body = {"status": "ok", "data": {"action": wish.args["action"]}}
        return await self._post(gateway, f"/v1/executions/{execution_id}/result", body, wish, patience_s, headers)

    async def _post(
        self, gateway: str, path: str, body: Mapping[str, Any], wish: Wish, patience_s: float, headers: Mapping[str, str] | None
    ) -> Operation:
        recorder = self._fleet.recorder
        begun = recorder.begin(
            agent=wish.agent, subject=wish.subject, run_id=wish.run_id, tool=wish.tool, args=wish.args, key=wish.key, gateway=gateway
        )
        sent = {"Authorization": f"Bearer {AGENTS[wish.agent]}"} | dict(headers or {})
        try:
            async with asyncio.timeout(patience_s):
                async with self._session.post(self._fleet.url(gateway) + path, json=body, headers=sent) as response:
                    answer = await response.json(content_type=None)
        except asyncio.CancelledError:
            recorder.end(begun, "info", why="client left")
            raise
        except (aiohttp.ClientConnectorError, KeyError):
            return recorder.end(begun, "fail", why="not connected")
        except TimeoutError:
            return recorder.end(begun, "info", why="client left")
        except (aiohttp.ClientError, ValueError) as error:
            return recorder.end(begun, "info", why=type(error).__name__)
        if response.status == 200:
            return recorder.end(begun, "ok", http=200, answer=answer)
        return recorder.end(begun, "info" if response.status == 500 else "fail", http=response.status, why=answer.get("code"))

    async def insist(self, gateways: Sequence[str], wish: Wish, *, patience_s: float = 30.0) -> Operation:
        """Repeat a call, from gateway to gateway, until the answer is more than `later`; the last operation at the end of patience."""
        loop = asyncio.get_running_loop()
        deadline, turn = loop.time() + patience_s, 0
        while True:
            found = await self.send(gateways[turn % len(gateways)], wish)
            is_passing = found.type != "ok" or found.status in PASSING
            if not is_passing or loop.time() > deadline:
                return found
            turn += 1
            await asyncio.sleep(min(0.05 * turn, 0.5))

    async def order(self, tool: str, *modes: str) -> None:
        """Let the next deliveries of a tool go wrong, whatever their arguments say."""
        async with self._session.post(self._fleet.tool_url + "/control", json={"tool": tool, "modes": list(modes)}) as response:
            response.raise_for_status()


@dataclass(kw_only=True)
class Load:
    """Workers that make calls of all classes, repeat some of them at other gateways, and stop when they are told to."""

    client: Client
    fleet: Fleet
    seed: int
    workers: int = 8
    tools: tuple[str, ...] = ("look", "write_keyed", "write_probe", "write_never", "spend")
    wishes: list[Wish] = field(default_factory=list[Wish])
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Until `stop`."""
        async with asyncio.TaskGroup() as group:
            for number in range(self.workers):
                group.create_task(self._work(random.Random(f"{self.seed}-{number}")))  # noqa: S311 - reproducible, not secret

    def stop(self) -> None:
        """Let every worker end its call and no more."""
        self._stopping.set()

    async def repeat_all(self, gateways: Sequence[str]) -> None:
        """Ask once more for every call, after everything came to rest."""
        slots = asyncio.Semaphore(self.workers)

        async def ask(number: int, wish: Wish) -> None:
            async with slots:
                await self.client.send(gateways[number % len(gateways)], wish)

        async with asyncio.TaskGroup() as group:
            for number, wish in enumerate(self.wishes):
                group.create_task(ask(number, wish))

    async def _work(self, random_: random.Random) -> None:
        while not self._stopping.is_set():
            tool = random_.choice(self.tools)
            mode = random_.choice(READ_MODES if tool == "look" else WRITE_MODES)
            wish = new_wish(tool, mode, subject=random_.choice(SUBJECTS), agent=random_.choice(list(AGENTS)))
            self.wishes.append(wish)
            for _ in range(random_.choice((1, 1, 2, 3))):
                names = list(self.fleet.gateways)
                if not names:
                    break
                patience = random_.choice((PATIENCE_S, PATIENCE_S, PATIENCE_S, 0.1))
                await self.client.send(random_.choice(names), wish, patience_s=patience)
            await asyncio.sleep(random_.random() * 0.02)
