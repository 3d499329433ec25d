"""Reading a policy's answer: exactly the agreed shape becomes a decision, anything else a refusal."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from gateway.domain.catalogue import Bundle
from gateway.domain.decision import Decision, FiredRule, Obligation, RecordLevel, RedactResult, Refusal
from gateway.domain.reasons import POLICY_CODES, Effect, ReasonCode

RULE_LIMIT = 32
"""Fired rules that a decision keeps; the deciding ones first, in the engine's order."""
POLICY_LIMIT = 200
CODE_LIMIT = 64
"""Characters of a policy's name and of a reason code."""

_RFC3339 = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_OBLIGATIONS: TypeAdapter[RedactResult | RecordLevel] = TypeAdapter(Obligation)
_OBLIGATION_TYPES = ("redact_result", "record_level")


def _check_bounds(rule: FiredRule) -> FiredRule:
    if len(rule.policy) > POLICY_LIMIT or len(rule.reason_code) > CODE_LIMIT:
        msg = "too long"
        raise ValueError(msg)
    return rule


_BoundedRule = Annotated[FiredRule, AfterValidator(_check_bounds)]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    effect: Literal["allow", "deny", "confirm", "suppress"]
    reason_code: Annotated[str, Field(max_length=CODE_LIMIT)]
    policy: Annotated[str, Field(min_length=1, max_length=POLICY_LIMIT)]
    until: Annotated[str, Field(max_length=40)] | None = None
    obligations: Annotated[list[dict[str, Any]], Field(max_length=32)]
    rules: list[_BoundedRule]
    revision: str


def read_answer(raw: Any, bundle: Bundle) -> Decision | Refusal:
    """The decision in an engine's raw answer, or POLICY_OUTPUT_INVALID, POLICY_STALE or OBLIGATION_UNSUPPORTED."""
    try:
        answer = _Answer.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        return _invalid(f"{'.'.join(map(str, first['loc'])) or 'answer'}: {first['msg']}")
    if answer.revision != bundle.revision:
        return Refusal(reason_code=ReasonCode.POLICY_STALE, detail="the engine answered under another revision")
    effect = Effect(answer.effect)
    if not _may_say(answer.reason_code, effect, bundle):
        return _invalid(f"reason_code: {answer.reason_code} is not a code for {effect}")
    until = None
    if answer.until is not None and (until := _read_time(answer.until)) is None:
        return _invalid("until: not an RFC 3339 time")
    obligations = _read_obligations(answer.obligations)
    if isinstance(obligations, Refusal):
        return obligations
    return Decision(
        effect=effect,
        reason_code=answer.reason_code,
        policy=answer.policy,
        rules=tuple(sorted(answer.rules, key=lambda rule: _distance(rule, answer.effect, answer.policy, answer.reason_code))[:RULE_LIMIT]),
        obligations=obligations,
        until=until,
    )


def _distance(rule: FiredRule, effect: str, policy: str, reason_code: str) -> int:
    """0 for the rule that decided, 1 for others to the same effect, 2 for the rest: what is cut off decided nothing."""
    if (rule.effect, rule.policy, rule.reason_code) == (effect, policy, reason_code):
        return 0
    return 1 if rule.effect == effect else 2


def _invalid(detail: str) -> Refusal:
    return Refusal(reason_code=ReasonCode.POLICY_OUTPUT_INVALID, detail=detail[:500])


def _may_say(code: str, effect: Effect, bundle: Bundle) -> bool:
    own = bundle.own_reasons.get(code)
    return own.effect is effect if own is not None else code in POLICY_CODES[effect]


def _read_time(text: str) -> datetime | None:
    if not _RFC3339.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _read_obligations(found: list[dict[str, Any]]) -> tuple[RedactResult | RecordLevel, ...] | Refusal:
    for obligation in found:
        if obligation.get("type") not in _OBLIGATION_TYPES:
            return Refusal(reason_code=ReasonCode.OBLIGATION_UNSUPPORTED, detail=f"obligation {obligation.get('type')!r}"[:200])
    try:
        return tuple(map(_OBLIGATIONS.validate_python, found))
    except ValidationError as error:
        return _invalid(f"obligations: {error.errors(include_input=False, include_url=False)[0]['msg']}")
