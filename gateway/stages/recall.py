"""Was the same transport key seen before? Then the ledger answers, and nothing is decided or done again."""

from gateway.domain.authority import may_see
from gateway.domain.call import Proposed, Recalled, Replay
from gateway.domain.decision import Refusal
from gateway.domain.identity import fingerprint, judge_known, transport_key, unusable_fingerprint
from gateway.domain.ports import Ledger


class Recall:
    """Answers a repeated call from the ledger; passes on what is new, or what was refused and may be tried again."""

    name = "recall"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def __call__(self, call: Proposed) -> Recalled | Refusal | Replay:
        """Look the call's key up."""
        key = transport_key(call.call.idempotency_key) if call.call.idempotency_key is not None else None
        recalled = Recalled.after(call, fingerprint=_fingerprint_of(call), transport_key=key)
        if key is None:
            return recalled
        known = await self._ledger.recall(call.caller.tenant, call.caller.name, key)
        if known is None or not known.holds(recalled.fingerprint):
            return recalled
        refusal = judge_known(known, agent=call.caller.name, subject=call.on_behalf_of, fingerprint=recalled.fingerprint)
        is_permitted = may_see(call.bundle, call.caller.name, call.workflow_name, call.on_behalf_of, known.tool, controls=call.controls)
        return refusal or Replay(known=known, is_permitted=is_permitted)


def _fingerprint_of(call: Proposed) -> bytes:
    if call.call.defects:
        return unusable_fingerprint(call.decision_id)
    try:
        return fingerprint(tool=call.call.name, subject=call.on_behalf_of, args=call.call.args)
    except ValueError:
        return unusable_fingerprint(call.decision_id)
