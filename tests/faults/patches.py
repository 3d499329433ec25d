"""The patches of planted bugs. Each raises LookupError where what it wants to change is not there any more."""

import asyncio
import hashlib
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakSet

import asyncpg
from aiohttp import web

from gateway import enforcer
from gateway import recovery as resolving
from gateway.api import calls
from gateway.domain import answers, call, classify, identity, outcome, record
from gateway.domain.decision import LedgerUnavailable
from gateway.domain.reasons import ReasonCode
from gateway.executors import slots
from gateway.ledger import batch, claims, coalescer, endings, grants, holdings, postgres
from gateway.ledger import recovery as reaping
from gateway.stages import decide, execute, settle
from tests.faults.dump import COMMIT_TEXT
from tests.faults.patching import replace_everywhere, replace_method, swap_sql

# What is replaced here belongs to the gateway and has its types there; a wrong patch shows when its bug is not caught.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false


def lose_admissions() -> None:
    """COMMIT of a transaction that admits becomes ROLLBACK; the gateway believes that it is committed."""
    admitting: WeakSet[Any] = WeakSet()

    def watch(name: str) -> None:
        original: Any = getattr(asyncpg.Connection, name)

        async def around(self: Any, query: str, *args: Any, **named: Any) -> Any:
            if re.search(r"INSERT INTO calls\b", query):
                admitting.add(self)
            if COMMIT_TEXT.match(query) and self in admitting:
                admitting.discard(self)
                query = "ROLLBACK"
            return await original(self, query, *args, **named)

        setattr(asyncpg.Connection, name, around)

    for name in ("execute", "fetch", "fetchrow", "fetchval", "executemany"):
        watch(name)


def ignore_lost_commits() -> None:
    def make(admit: Any) -> Any:
        async def admit_anyway(self: Any, *args: Any) -> Any:
            try:
                return await admit(self, *args)
            except LedgerUnavailable:
                return None

        return admit_anyway

    replace_method(postgres.PostgresLedger, "admit", make)


def let_claims_go() -> None:
    replace_method(call.KnownCall, "holds", lambda _: lambda self, fingerprint: False)  # noqa: ARG005


def let_expired_keys_run() -> None:
    replace_method(call.KnownCall, "holds", lambda holds: lambda self, fingerprint: not self.is_expired and holds(self, fingerprint))


def drop_scope_of_claims() -> None:
    def without_agent(bindings_of: Any) -> Any:
        def bindings(decided: Any) -> Any:
            found = bindings_of(decided)
            return [replace(each, key=("transport", "", each.key[2])) if each.key[0] == "transport" else each for each in found]

        return bindings

    replace_everywhere(claims, "bindings_of", without_agent)
    replace_method(postgres.PostgresLedger, "recall", lambda recall: lambda self, tenant, agent, key: recall(self, tenant, "", key))  # noqa: ARG005
    swap_sql(("claims.kind = 'transport' AND claims.scope = asked.agent", "claims.kind = 'transport' AND claims.scope = ''"))


def ignore_fingerprints() -> None:
    def make(judge: Any) -> Any:
        return lambda known, *, agent, subject, fingerprint: judge(known, agent=agent, subject=subject, fingerprint=known.fingerprint)  # noqa: ARG005

    replace_everywhere(identity, "judge_known", make)


def take_lost_as_not_sent() -> None:
    def make(judge: Any) -> Any:
        def classify_wrongly(tool: Any, output: Any, delivery: Any) -> Any:
            if delivery.phase is outcome.Phase.LOST:
                delivery = replace(delivery, phase=outcome.Phase.NOT_SENT)
            return judge(tool, output, delivery)

        return classify_wrongly

    replace_everywhere(classify, "classify", make)


def retry_writes() -> None:
    replace_everywhere(execute, "is_worth_retrying", lambda _: lambda tool, delivered: delivered.phase is outcome.Phase.LOST)  # noqa: ARG005
    replace_method(slots.SlotDispatch, "may_repeat", lambda _: lambda self: True)  # noqa: ARG005
    replace_method(slots.SlotDispatch, "send", lambda _: lambda self: self._send(self._timeout))


def answer_without_settling() -> None:
    async def settle_never(_self: Any, normalized: Any) -> Any:
        await asyncio.sleep(0)
        result = answers.outcome_result(normalized.bundle, normalized.outcome)
        return call.Settled.after(normalized, answer=answers.allowed(normalized, result))

    replace_method(settle.Settle, "__call__", lambda _: settle_never)


def skip_refusals() -> None:
    async def refuse(_self: Any, _call: Any, refusal: Any, _record: Any, _arguments: bytes) -> Any:
        await asyncio.sleep(0)
        return refusal.approval

    replace_method(postgres.PostgresLedger, "refuse", lambda _: refuse)


def ignore_limits() -> None:
    replace_method(holdings.Holdings, "_has_room", lambda _: lambda self, charge: True)  # noqa: ARG005


def leak_reservations() -> None:
    def make(book: Any) -> Any:
        def book_half(self: Any, place: Any, unit: str, held: int, spent: int) -> Any:
            entry = book(self, place, unit, 0, spent)
            return entry | {"held": None} if held < 0 else entry

        return book_half

    replace_method(holdings.Holdings, "book", make)


def keep_holds() -> None:
    swap_sql(("UPDATE reservations SET state = ended.state", "UPDATE reservations SET state = 'held'"))


def skip_positions() -> None:
    swap_sql(("SET size = size + $2", "SET size = size + $2 + 1"))


def hash_leaves_plainly() -> None:
    replace_everywhere(record, "leaf_hash", lambda _: lambda body: hashlib.sha256(body).digest())


def randomize_downstream_keys() -> None:
    replace_everywhere(identity, "downstream_key", lambda _: lambda tenant, decision_id: f"gw1_{uuid.uuid4().hex}")  # noqa: ARG005


def drop_fences() -> None:
    replace_method(endings.Endings, "judge", lambda _: lambda self, ending: ending.decision_id in self._rows)


def ignore_deadlines() -> None:
    replace_method(execute.Execute, "__init__", lambda init: lambda self, report, boot_time: init(self, report, lambda: 0.0))  # noqa: ARG005


def forget_what_expired() -> None:
    """The reaper takes an expired lease as "did not happen"."""
    _change_reaping(
        lambda named: named | {"state": outcome.CallState.OPEN, "outcome": named["outcome"] | {"state": "open"}, "spend": "nothing"}
    )


def release_on_expiry() -> None:
    _change_reaping(lambda named: named | {"spend": "nothing"})


def _change_reaping(change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    def make(end: Any) -> Any:
        def end_wrongly(self: Any, record_: Any, **named: Any) -> Any:
            is_reaped = named["state"] is outcome.CallState.IN_DOUBT
            return end(self, record_, **(change(named) if is_reaped else named))

        return end_wrongly

    replace_method(reaping.PostgresRecovery, "_ending", make)


def set_clock_back() -> None:
    swap_sql(("lease_until < clock_timestamp()", "lease_until < clock_timestamp() - interval '10 minutes'"))


def believe_early_probes() -> None:
    def make(ask: Any) -> Any:
        return lambda self, doubt, tool, probe: ask(self, doubt, tool, probe.model_copy(update={"settle": -1000.0}))

    replace_method(resolving.Recovery, "_ask", make)


def resend_never() -> None:
    def make(_: Any) -> Any:
        return lambda decided: (
            b'{"revision":"%b","args":{"action":"%b"},"context":{}}'
            % (
                decided.bundle.revision.encode(),
                decided.args["action"].encode(),
            )
        )

    replace_everywhere(batch, "_invocation_of", make)
    swap_sql(("ended.state = 'in_doubt' AND calls.replay <> 'never'", "ended.state = 'in_doubt'"))


def resolve_without_record() -> None:
    replace_everywhere(endings, "replace", lambda _: lambda record_, **changes: record_)  # noqa: ARG005


def ignore_versions() -> None:
    def make(admit: Any) -> Any:
        def admit_stale(self: Any, decided: Any, charges: Any) -> Any:
            calls = self._runs[decided.principal.agent, decided.run_id].calls
            version = self._versions.get((decided.principal.subject, decided.tool.name), 0)
            facts = replace(decided.facts, run_version=calls, tool_version=version)
            found = admit(self, replace(decided, facts=facts), charges)
            self._holds = [(decided, charge) for _, charge in self._holds]
            return found

        return admit_stale

    replace_method(holdings.Holdings, "admit", make)


def shuffle_locks() -> None:
    # Versions are locked before budgets and keep those apart that share any: the order of budgets alone would not show.
    swap_sql(
        ("ORDER BY subject, tool\n    ON CONFLICT", "ORDER BY random()\n    ON CONFLICT"),
        ("ORDER BY name, scope, period\nON CONFLICT", "ORDER BY random()\nON CONFLICT"),
    )


def lock_claims_late() -> None:
    """Settlements take the claims whose windows begin when they write them: after runs and budgets."""
    replace_method(claims.Claims, "take", lambda take: lambda self, connection, wanted, kept: take(self, connection, wanted, []))  # noqa: ARG005


def let_clients_cancel() -> None:
    """A handler is cancelled with its client, and the execution with the handler."""

    class Unshielded:
        def __getattr__(self, name: str) -> Any:
            return getattr(asyncio, name)

        @staticmethod
        async def shield(work: Any) -> Any:
            return await work

    def make(init: Any) -> Any:
        return lambda self, app, **named: init(self, app, **named | {"handler_cancellation": True})

    if not hasattr(calls, "asyncio"):
        raise LookupError("gateway.api.calls does not shield any more")
    setattr(calls, "asyncio", Unshielded())  # noqa: B010 - a foreign name
    replace_method(web.AppRunner, "__init__", make)
    replace_method(enforcer.Enforcer, "_finish", lambda _: lambda self, admitted: self._act(admitted))


def take_cut_off_as_not_sent() -> None:
    def make(deliver: Any) -> Any:
        async def deliver_or_forget(self: Any, admitted: Any) -> Any:
            try:
                return await deliver(self, admitted)
            except asyncio.CancelledError:
                return outcome.Delivery(phase=outcome.Phase.NOT_SENT, problem="cut off")

        return deliver_or_forget

    replace_method(execute.Execute, "_deliver", make)


def forget_uses_of_grants() -> None:
    def make(judge: Any) -> Any:
        def judge_anyway(self: Any, decided: Any) -> Any:
            found = judge(self, decided)
            return None if found is not None and found.reason_code is ReasonCode.APPROVAL_CONSUMED else found

        return judge_anyway

    replace_method(grants.Grants, "judge", make)


def ignore_what_was_agreed_to() -> None:
    replace_everywhere(decide, "_check_approval", lambda _: lambda _call: None)
    replace_method(grants.Grants, "judge", lambda _: lambda self, decided: None)  # noqa: ARG005


def keep_grants() -> None:
    swap_sql(("UPDATE approvals SET state = 'granted', consumed_by = NULL", "UPDATE approvals SET state = state"))


def give_grants_of_doubts_back() -> None:
    class Confused:
        OPEN = outcome.CallState.IN_DOUBT

        def __getattr__(self, name: str) -> Any:
            return getattr(outcome.CallState, name)

    if not hasattr(batch, "CallState"):
        raise LookupError("gateway.ledger.batch does not look at states any more")
    setattr(batch, "CallState", Confused())  # noqa: B010 - a foreign name


def forget_silent_clients() -> None:
    def is_silent(named: Mapping[str, Any]) -> bool:
        return outcome.CallState.PENDING_CLIENT in named["from_states"]

    _change_reaping(
        lambda named: (
            named | {"state": outcome.CallState.OPEN, "outcome": named["outcome"] | {"state": "open"}, "spend": "nothing"}
            if is_silent(named)
            else named
        )
    )


def ignore_revisions() -> None:
    replace_method(batch.Batch, "_admissible", lambda _: lambda self, admissions, in_force: admissions)  # noqa: ARG005


def fail_neighbours() -> None:
    async def commit_or_fail(self: Any, tenant: str, writes: Any) -> None:
        try:
            postponed = await self._commit(tenant, writes)
        except Exception as error:  # noqa: BLE001 - the bug is that all share one fate
            for write in writes:
                coalescer._fail(write, error)  # pyright: ignore[reportPrivateUsage]
        else:
            for write in writes:
                if write not in postponed and not write.done.done():
                    write.done.set_result(write.found)
            for write in reversed(postponed):
                (self._endings if write.is_ending else self._others)[tenant].appendleft(write)

    replace_method(coalescer.Coalescer, "_commit_or_split", lambda _: commit_or_fail)


def set_lease_grace(seconds: float) -> None:
    """No bug either: leases end sooner, so that a scenario need not wait for them so long."""
    replace_everywhere(call, "LEASE_GRACE_S", lambda _: seconds)


def fail_batches_with(subject: str) -> None:
    """No bug but a fault: a batch that admits a call for `subject` fails on its data."""

    def make(run: Any) -> Any:
        async def run_or_fail(self: Any, connection: Any) -> None:
            admitted = [write.call.principal.subject for write in self.writes if isinstance(write, batch.Admission)]
            if subject in admitted:
                await connection.execute("SELECT 1 / 0")
            await run(self, connection)

        return run_or_fail

    replace_method(batch.Batch, "run", make)
