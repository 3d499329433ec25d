"""What a delivery means: the state that is booked and the code that is told.

One rule carries the rest: a read changes nothing, so whatever goes wrong may be repeated or has failed; a write whose answer
is missing may have happened, and stays in doubt until somebody finds out.

Two codes say that it did not work. ``EXECUTION_REJECTED``: the tool answered no to this input (4xx, the declared ``failed``
class, a python tool's Rejected). ``EXECUTION_FAILED``: a read broke while running (a python tool raised).
"""

from gateway.domain.catalogue import AnswerClass, Risk, ToolDeclaration, Validator
from gateway.domain.outcome import CallState, Delivery, Outcome, Phase
from gateway.domain.reasons import ReasonCode
from gateway.domain.references import read_pointer


def classify(tool: ToolDeclaration, output: Validator | None, delivery: Delivery) -> Outcome:
    """The outcome of one delivery under the tool's `result` rules, else the default classes of HTTP.

    `output` is the tool's compiled output schema. Where a bundle puts one answer into several classes, the one that
    promises least wins: failed, then no_match, then no_effect.
    """
    if delivery.phase is Phase.NOT_SENT:
        return _open(ReasonCode.NO_EFFECT_PROVEN, delivery)
    if delivery.phase is Phase.ANSWERED:
        declared = (
            (tool.result.failed, CallState.FAILED, ReasonCode.EXECUTION_REJECTED),
            (tool.result.no_match, CallState.SUCCEEDED, ReasonCode.EXECUTION_NO_MATCH),
        )
        for answers, state, code in declared:
            if _belongs_to(answers, delivery):
                return Outcome(state=state, reason_code=code, delivery=delivery)
        if _belongs_to(tool.result.no_effect, delivery):
            return _open(ReasonCode.NO_EFFECT_PROVEN, delivery)
        if _is_success(delivery):
            return _success(tool, output, delivery)
        if _is_rejection(delivery):
            return Outcome(state=CallState.FAILED, reason_code=ReasonCode.EXECUTION_REJECTED, delivery=delivery)
    return _without_answer(tool, delivery)


def _is_success(delivery: Delivery) -> bool:
    """A python tool that returned, or 2xx."""
    return not delivery.is_rejected if delivery.status is None else 200 <= delivery.status < 300


def _is_rejection(delivery: Delivery) -> bool:
    """A python tool's Rejected, or 4xx; 408 says that the service gave up waiting, not what it did."""
    return delivery.is_rejected or (delivery.status is not None and 400 <= delivery.status < 500 and delivery.status != 408)


def _belongs_to(answers: AnswerClass | None, delivery: Delivery) -> bool:
    if answers is None:
        return False
    if delivery.status in answers.status:
        return True
    if answers.empty is None or delivery.unusable is not None or not _is_success(delivery):
        return False
    return read_pointer(delivery.value, answers.empty) == []


def _success(tool: ToolDeclaration, output: Validator | None, delivery: Delivery) -> Outcome:
    unusable = delivery.unusable
    if unusable is None and output is not None and output.errors(delivery.value):
        unusable = "invalid"
    if unusable == "invalid" and tool.risk is Risk.READ:
        return Outcome(state=CallState.FAILED, reason_code=ReasonCode.RESULT_INVALID, delivery=delivery)
    # The effect stands even where its answer cannot be used: anything but "done" would invite a second one.
    return Outcome(
        state=CallState.SUCCEEDED,
        reason_code=ReasonCode.EXECUTION_SUCCEEDED,
        data=delivery.value if unusable is None else None,
        data_omitted=unusable,
        delivery=delivery,
    )


def _without_answer(tool: ToolDeclaration, delivery: Delivery) -> Outcome:
    if tool.risk is not Risk.READ:
        return Outcome(state=CallState.IN_DOUBT, reason_code=ReasonCode.OUTCOME_UNKNOWN, delivery=delivery)
    if delivery.problem == "exception":
        return Outcome(state=CallState.FAILED, reason_code=ReasonCode.EXECUTION_FAILED, delivery=delivery)
    is_timeout = delivery.phase is Phase.LOST and delivery.problem == "timeout"
    code = ReasonCode.EXECUTION_TIMEOUT if is_timeout else ReasonCode.EXECUTION_TEMPORARY
    return _open(code, delivery)


def _open(code: ReasonCode, delivery: Delivery) -> Outcome:
    return Outcome(state=CallState.OPEN, reason_code=code, delivery=delivery, retry_after_ms=delivery.retry_after_ms)
