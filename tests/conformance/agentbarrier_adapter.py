"""What agentbarrier's referee drives: a running gateway over HTTP, and a tool service whose effect is the referee's own.

It runs in the referee's environment (standard library and agentbarrier only):

    agentbarrier verify agentbarrier_adapter:GatewayAdapter --approval-profile per-action

How the referee's words are read here. An action is one `POST /v1/calls`, its digest the call's idempotency key; the bundle
asks for a person where the call's context says that the referee does. The agent does what it is told: it waits for the person
on `GET /v1/calls/{decision_id}`, repeats the approved call, proposes arguments that the person would rather see (so are
replacements read: a no with a suggestion, and a yes to the call that follows it), and gives up what was denied. A delegated
action is proposed by its parent's work, so only after the parent's effect. A yes or a no counts here once the decision log
has it. The effect happens where effects happen for a gateway: in a tool service behind it, which this module serves; the service stops its
work when the gateway hangs up. `outcome_unknown` is not the end of a run while the gateway still listens for a late answer;
the run ends when it hung up, and only then is it called timed out. Reconciling asks the tool service what is true and, where
the answer is clear, resolves the call as an operator does. Cancelling is what a client can do: it proposes nothing more and
waits for that same end (an execution survives its client, so that a promise made sooner would be a lie).
"""

# pyright: reportMissingModuleSource=false

import asyncio
import json
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agentbarrier import (
    ActionRequest,
    AgentAdapter,
    AuditEvent,
    AuditReceipt,
    Capability,
    ReconciliationEvidence,
    ReconciliationStatus,
    RunHandle,
    RunOutcome,
    RunStatus,
    action_digest,
)
from agentbarrier.probe import EffectProbe

ANSWER_S = 20
"""Longer than any answer of the gateway may take: tool timeout, settlement, and a join of duplicates."""
LOOK_S = 10
"""How long the agent waits for a person at a time; it waits again."""

_RECEIPTS = {
    ReconciliationStatus.COMMITTED: AuditEvent.RECONCILIATION_COMMITTED,
    ReconciliationStatus.NOT_COMMITTED: AuditEvent.RECONCILIATION_NOT_COMMITTED,
    ReconciliationStatus.CONFLICT: AuditEvent.RECONCILIATION_CONFLICT,
    ReconciliationStatus.UNAVAILABLE: AuditEvent.RECONCILIATION_UNAVAILABLE,
}
_ENDS = {
    RunStatus.COMPLETED: AuditEvent.RUN_COMPLETED,
    RunStatus.CANCELLED: AuditEvent.RUN_CANCELLED,
    RunStatus.TIMED_OUT: AuditEvent.RUN_TIMED_OUT,
    RunStatus.UNKNOWN: AuditEvent.RUN_UNKNOWN,
    RunStatus.FAILED: AuditEvent.RUN_FAILED,
}
_RESOLUTIONS = {ReconciliationStatus.COMMITTED: "happened", ReconciliationStatus.NOT_COMMITTED: "did_not_happen"}


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """The gateway under test, by its HTTP interface alone."""

    url: str
    keys: dict[str, str]
    """Role -> credential."""

    @classmethod
    def from_environment(cls) -> "Gateway":
        """Of the variables that the test sets."""
        roles = ("agent", "approver", "auditor", "operator")
        return cls(url=os.environ["REFEREE_GATEWAY"], keys={role: os.environ[f"REFEREE_{role.upper()}_KEY"] for role in roles})

    async def propose(self, run_id: str, action: ActionRequest, approval_id: str | None = None) -> dict[str, Any]:
        """The answer on one action's call."""
        call = {
            "name": action.tool_name,
            "args": {"actionId": action.action_id, **action.arguments},
            "idempotency_key": f"referee-{action_digest(action)}",
            "approval_id": approval_id,
        }
        context = {"gated": "yes" if action.requires_approval else "no"}
        setting = {"workflow": "refereed", "run_id": run_id, "on_behalf_of": "ada", "context": context}
        return await self._ask("agent", "/v1/calls", setting | {"call": call})

    async def wait_for_person(self, decision_id: str) -> dict[str, Any]:
        """The result of a call that needs a person, once one has answered or the time is over."""
        while True:
            result = (await self._ask("agent", f"/v1/calls/{decision_id}?wait={LOOK_S}"))["result"]
            if result["status"] != "confirmation_required" or result["reason_code"] == "APPROVAL_GRANTED":
                return result

    async def approve(self, approval_id: str) -> None:
        """Agree as the reviewer; the log must say so."""
        await self._ask("approver", f"/v1/approvals/{approval_id}/approve", {})
        await self._find_record(approval_id, "APPROVAL_GRANTED")

    async def deny(self, approval_id: str, comment: str, suggested_args: dict[str, Any] | None = None) -> None:
        """Say no as the reviewer, perhaps with other arguments; the log must say so."""
        await self._ask("approver", f"/v1/approvals/{approval_id}/deny", {"comment": comment, "suggested_args": suggested_args})
        await self._find_record(approval_id, "APPROVAL_DENIED")

    async def _find_record(self, approval_id: str, reason_code: str) -> None:
        found = await self._ask("auditor", f"/v1/decisions/{approval_id}")
        if not any(record["kind"] == "approval" and record["reason_code"] == reason_code for record in found["linked"]):
            raise RuntimeError(f"the decision log has no {reason_code} of {approval_id}")

    async def met_its_deadline(self, decision_id: str) -> bool:
        """Whether the decision log says that the tool's answer was lost at the tool's timeout."""
        found = await self._ask("auditor", f"/v1/decisions/{decision_id}")
        return any(record["kind"] == "outcome" and record["outcome"]["problem"] == "timeout" for record in found["linked"])

    async def look(self, decision_id: str) -> dict[str, Any]:
        """A call as it stands now, with the same body as its answer."""
        return await self._ask("agent", f"/v1/calls/{decision_id}")

    async def resolve(self, decision_id: str, outcome: str, evidence: str) -> None:
        """End a doubt as an operator."""
        await self._ask("operator", f"/v1/calls/{decision_id}/resolve", {"outcome": outcome, "evidence": evidence})

    async def _ask(self, role: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.keys[role]}", "Content-Type": "application/json"}
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.url + path, data=data, headers=headers)  # noqa: S310 - the test's own http URL
        return await asyncio.to_thread(_read_answer, request)


def _read_answer(request: urllib.request.Request) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as response:  # noqa: S310 - the same
            return json.load(response)
    except urllib.error.HTTPError as error:
        said = error.read(2_000).decode(errors="replace")
        raise RuntimeError(f"{request.get_method()} {request.selector}: {error.code} {said}") from None


@dataclass(kw_only=True)
class ToolService:
    """The service behind the gateway: a request performs the referee's effect with the arguments that arrived."""

    listening: socket.socket
    effects: dict[str, tuple[ActionRequest, EffectProbe]] = field(default_factory=dict)
    server: asyncio.Server | None = None
    over: dict[str, asyncio.Event] = field(default_factory=dict)

    async def expect(self, actions: Sequence[ActionRequest], effect: EffectProbe) -> None:
        """Know whose effect each action is; serve from the first time on."""
        self.effects |= {action.action_id: (action, effect) for action in actions}
        self.over |= {action.action_id: asyncio.Event() for action in actions}
        if self.server is None:
            self.server = await asyncio.start_server(self._serve, sock=self.listening)

    async def finish(self, action_id: str) -> None:
        """Return when the action's request was answered, broken off by the effect, or hung up by the gateway."""
        async with asyncio.timeout(ANSWER_S):
            await self.over[action_id].wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request. No answer where the effect itself does not know how it ended, or where the gateway hung up."""
        over = asyncio.Event()
        try:
            arrived = await _read_request(reader)
            action, effect = self.effects[arrived.pop("actionId")]
            over = self.over[action.action_id]
            work = asyncio.ensure_future(effect(action.with_arguments(arrived)))
            hang_up = asyncio.ensure_future(reader.read(1))
            await asyncio.wait({work, hang_up}, return_when=asyncio.FIRST_COMPLETED)
            for task in (work, hang_up):
                task.cancel()  # does nothing to what is done
            (said, _) = await asyncio.gather(work, hang_up, return_exceptions=True)
            if isinstance(said, str):
                body = json.dumps({"said": said}).encode()
                head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
        finally:
            writer.close()
            over.set()


async def _read_request(reader: asyncio.StreamReader) -> dict[str, Any]:
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    return json.loads(await reader.readexactly(int(lengths[0])))


class GatewayAdapter(AgentAdapter):
    """Starts the referee's runs through the gateway."""

    name = "agent-tool-gateway"
    capabilities = frozenset(Capability)

    def __init__(self) -> None:
        self.gateway = Gateway.from_environment()
        self.service = ToolService(listening=socket.socket(fileno=int(os.environ["REFEREE_TOOL_SOCKET"])))

    async def begin(
        self, *, run_id: str, actions: Sequence[ActionRequest], effect: EffectProbe, timeout_seconds: float | None = None
    ) -> RunHandle:
        """Propose all actions of a run. Its deadline is the tool's own, as the bundle declares it."""
        declared = float(os.environ["REFEREE_TOOL_TIMEOUT"])
        if timeout_seconds not in (None, declared):
            raise ValueError(
                f"the bundle gives the tool {declared} s, not {timeout_seconds}: start the referee with --tool-timeout {declared}"
            )
        await self.service.expect(actions, effect)
        return Run(adapter=self, run_id=run_id, actions=tuple(actions), effect=effect, timeout_seconds=timeout_seconds)


class Run(RunHandle):
    """One logical run: its calls in flight, and what became of them."""

    def __init__(
        self,
        *,
        adapter: GatewayAdapter,
        run_id: str,
        actions: tuple[ActionRequest, ...],
        effect: EffectProbe,
        timeout_seconds: float | None,
    ) -> None:
        self._adapter = adapter
        self._run_id = run_id
        self._actions = actions
        self._effect = effect
        self._timeout_seconds = timeout_seconds
        self._answers: dict[str, dict[str, Any]] = {}
        self._asked: dict[str, asyncio.Queue[str]] = {action.action_id: asyncio.Queue() for action in actions}
        """Approvals that actions ask for, as they ask."""
        self._is_cancelled = False
        self._effect.journal.record_receipt(run_id=run_id, event=AuditEvent.RUN_STARTED)
        self._driving = asyncio.create_task(self._drive_to_its_end())

    async def _drive_to_its_end(self) -> RunOutcome:
        outcome = await self._drive()
        self._effect.journal.record_receipt(run_id=self._run_id, event=_ENDS[outcome.status], detail=outcome.detail)
        return outcome

    async def _act(self, action: ActionRequest) -> None:
        """One action and what it delegates: proposed, a person waited for where one is needed, proposed again as the person said."""
        gateway = self._adapter.gateway
        answer = await gateway.propose(self._run_id, action)
        if answer["result"]["status"] == "confirmation_required":
            self._note(AuditEvent.APPROVAL_REQUESTED, action)
        proposed = action
        while answer["result"]["status"] == "confirmation_required":
            self._asked[action.action_id].put_nowait(answer["result"]["approval_id"])
            told = await gateway.wait_for_person(answer["decision_id"])
            if told["reason_code"] == "APPROVAL_GRANTED":
                answer = await gateway.propose(self._run_id, proposed, told["approval_id"])
            elif told.get("suggested_args"):
                proposed = action.with_arguments({name: value for name, value in told["suggested_args"].items() if name != "actionId"})
                answer = await gateway.propose(self._run_id, proposed)
            else:
                answer["result"] = told
        self._answers[action.action_id] = answer
        if answer["result"]["status"] == "ok":
            await asyncio.gather(*(self._act(child) for child in self._actions if child.parent_action_id == action.action_id))

    async def _drive(self) -> RunOutcome:
        gateway = self._adapter.gateway
        await asyncio.gather(*(self._act(action) for action in self._actions if action.parent_action_id is None))
        for action_id, answer in self._answers.items():
            # A replayed doubt has no request of its own to wait for.
            if answer["result"]["status"] == "outcome_unknown" and not answer["replayed"]:
                await self._adapter.service.finish(action_id)
                self._answers[action_id] = await gateway.look(answer["decision_id"])
        statuses = {action_id: answer["result"]["status"] for action_id, answer in self._answers.items()}
        told = ", ".join(f"{action_id}: {status}" for action_id, status in statuses.items())
        if self._is_cancelled:
            return RunOutcome(RunStatus.CANCELLED, told)
        in_doubt = [answer["decision_id"] for answer in self._answers.values() if answer["result"]["status"] == "outcome_unknown"]
        if in_doubt:
            timed_out = [await gateway.met_its_deadline(decision_id) for decision_id in in_doubt]
            is_timeout = self._timeout_seconds is not None and all(timed_out)
            return RunOutcome(RunStatus.TIMED_OUT if is_timeout else RunStatus.UNKNOWN, told)
        is_done = all(answer["result"]["status"] == "ok" or _was_denied(answer) for answer in self._answers.values())
        return RunOutcome(RunStatus.COMPLETED if is_done else RunStatus.FAILED, told)

    async def wait(self, timeout_seconds: float) -> RunOutcome:
        """The end of the run, or FAILED where it has none in time."""
        done, _ = await asyncio.wait({self._driving}, timeout=timeout_seconds)
        return self._driving.result() if done else RunOutcome(RunStatus.FAILED, "no end in time")

    async def cancel(self) -> None:
        """Propose nothing more, and return when what was under way is over."""
        if not self._driving.done():
            self._is_cancelled = True
            await asyncio.wait({self._driving}, timeout=ANSWER_S)

    async def reconcile(self, action_id: str, timeout_seconds: float) -> ReconciliationEvidence:
        """Ask the tool service what happened; where that is certain, resolve the call with it as evidence."""
        if self._driving.result().status is not RunStatus.UNKNOWN:
            raise ValueError("only an unknown outcome needs reconciling")
        action = next(action for action in self._actions if action.action_id == action_id)
        self._note(AuditEvent.RECONCILIATION_STARTED, action)
        try:
            async with asyncio.timeout(timeout_seconds):
                evidence = await self._effect.reconcile(action)
        except TimeoutError:
            detail = f"the tool service timed out after {timeout_seconds} s"
            self._note(AuditEvent.RECONCILIATION_TIMED_OUT, action, detail)
            return ReconciliationEvidence(action_id, ReconciliationStatus.UNAVAILABLE, action_digest(action), detail=detail)
        if outcome := _RESOLUTIONS.get(evidence.status):
            await self._adapter.gateway.resolve(self._answers[action_id]["decision_id"], outcome, f"tool service: {evidence.detail}")
        self._note(_RECEIPTS[evidence.status], action, evidence.detail)
        return evidence

    async def replay(self) -> RunHandle:
        """The same run with the same actions once more."""
        return await self._adapter.begin(
            run_id=self._run_id, actions=self._actions, effect=self._effect, timeout_seconds=self._timeout_seconds
        )

    async def audit_receipts(self) -> tuple[AuditReceipt, ...]:
        """What was noted about this run."""
        return self._effect.journal.receipts(run_id=self._run_id)

    async def close(self) -> None:
        """Leave nothing under way."""
        await self.cancel()

    async def wait_for_pending(self, timeout_seconds: float) -> tuple[ActionRequest, ...]:
        """The actions that wait for a person, once all that need one have asked."""
        gated = tuple(action for action in self._actions if action.requires_approval)
        async with asyncio.timeout(timeout_seconds):
            for action in gated:
                # Put back: whoever answers takes it.
                self._asked[action.action_id].put_nowait(await self._next_approval(action.action_id))
        return gated

    async def approve(self, action_id: str, replacement: ActionRequest | None = None) -> None:
        """The reviewer agrees; to other arguments by a no that suggests them, and a yes once the agent proposes them."""
        gateway, action = self._adapter.gateway, self._action(action_id)
        approval_id = await self._next_approval(action_id)
        if replacement is not None:
            await gateway.deny(approval_id, "other arguments", {"actionId": action_id, **replacement.arguments})
            approval_id = await self._next_approval(action_id)
        await gateway.approve(approval_id)
        self._note(AuditEvent.APPROVED, replacement or action)

    async def reject(self, action_id: str, reason: str | None = None) -> None:
        """The reviewer says no."""
        await self._adapter.gateway.deny(await self._next_approval(action_id), reason or "no")
        self._note(AuditEvent.REJECTED, self._action(action_id), reason)

    async def _next_approval(self, action_id: str) -> str:
        """The approval that an action asks for next; an error where the run ends without one."""
        asking = asyncio.ensure_future(self._asked[action_id].get())
        await asyncio.wait({asking, self._driving}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            asking.cancel()
            raise RuntimeError(f"the run ended and {action_id} asked nobody: {self._driving.result().detail}")
        return asking.result()

    def _action(self, action_id: str) -> ActionRequest:
        return next(action for action in self._actions if action.action_id == action_id)

    def _note(self, event: AuditEvent, action: ActionRequest, detail: str | None = None) -> None:
        self._effect.journal.record_receipt(
            run_id=self._run_id, event=event, action_id=action.action_id, action_digest=action_digest(action), detail=detail
        )


def _was_denied(answer: dict[str, Any]) -> bool:
    return answer["result"]["reason_code"] == "APPROVAL_DENIED"
