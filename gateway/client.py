"""The Python client of the gateway. Needs aiohttp and pydantic only, not the server's dependencies.

    async with GatewayClient("http://127.0.0.1:8080", key, workflow="trip_planning", run_id="run-42", on_behalf_of="ada") as client:
        answer = await client.call("search_hotels", {"city": "Paris, France"})
        if answer.result.status == "ok": ...

What a model did is an answer, never an exception: blocked, failed, invalid arguments and unknown outcomes come back as
typed results (`gateway.domain.result`). Exceptions are for the caller's own part:

    GatewayClientError
      GatewayProblem         the gateway refused the request itself (RFC 9457): key, envelope, size, overload
      GatewayUnreachable     no answer could be had; the call may have been executed, the same key finds out
      AnswerUnreadable       something answered that does not speak wire version 1
      CalledPastTheGateway   a vendor's client ran functions itself
"""

import asyncio
import json
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, cast
from urllib.parse import quote
from uuid import uuid4

import aiohttp
from pydantic import BaseModel, ConfigDict, ValidationError

from gateway.dialects import gemini
from gateway.dialects.registry import DIALECTS
from gateway.dialects.turn import TurnCall
from gateway.domain.reasons import ReasonCode
from gateway.domain.result import Answer, ConfirmationRequired, InProgress, OutcomeUnknown, PendingClient, RoundAnswer, TemporaryError

_Model = TypeVar("_Model", bound=BaseModel)

ToolFormat = Literal["json", "gemini", "gemini-interactions", "openai", "openai-chat", "anthropic", "mcp"]
TurnDialect = Literal["gemini", "openai", "openai-chat", "anthropic"]

# 502 and 504 are never the gateway's own: a proxy lost the answer on the way, like a connection that broke.
_WORTH_REPEATING = frozenset({429, 502, 503, 504})

_LONGEST_LOOK_S = 20
"""Seconds of one waiting look at a call; less than what proxies cut off."""


class GatewayClientError(Exception):
    """Base of what this client raises."""


class GatewayProblem(GatewayClientError):
    """The gateway refused the request itself, with a problem document (RFC 9457)."""

    def __init__(self, *, code: str | None, status: int, detail: str) -> None:
        super().__init__(f"{status} {code or 'without a code'}: {detail}")
        self.code = code
        """The problem's code; None where something before the gateway answered."""
        self.status = status
        self.detail = detail


class GatewayUnreachable(GatewayClientError):
    """No answer could be had. For a call this means "unknown": repeat it with `idempotency_key` to find out."""

    def __init__(self, reason: str, *, idempotency_key: str | None = None) -> None:
        super().__init__(reason)
        self.idempotency_key = idempotency_key


class AnswerUnreadable(GatewayClientError):
    """What answered does not speak wire version 1."""


class CalledPastTheGateway(GatewayClientError):
    """A response in which the vendor's client has already run functions itself: nobody governed those calls."""


@dataclass(frozen=True, kw_only=True)
class Retries:
    """How patient a client is with one logical call, all its repetitions together."""

    attempts: int = 5
    total_s: float = 60.0
    """Seconds; no wait begins that would end later."""
    first_wait_s: float = 0.2
    """Seconds before the first repetition where nobody said how long; doubles each time."""
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    jitter: Callable[[], float] = random.random
    """A number from 0 to 1; waits grow by up to a quarter of it, so that clients do not return in step."""
    clock: Callable[[], float] = time.monotonic
    new_key: Callable[[], str] = lambda: str(uuid4())
    """Makes idempotency keys: 16 to 255 printable ASCII characters, never the same one twice."""


class GatewayClient:
    """Calls tools through a gateway, for one agent. Use as an async context manager; safe for concurrent calls.

    `url` is the gateway's (``http`` or ``https``, a path prefix is kept), `key` the agent's key or JWT. `workflow`,
    `run_id`, `on_behalf_of` and `context` go with every request; `within` makes a client with others of them.
    `timeout` is seconds for one HTTP exchange. ValueError for an unusable url.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        workflow: str | None = None,
        run_id: str | None = None,
        on_behalf_of: str | None = None,
        context: Mapping[str, Any] | None = None,
        timeout: float = 60.0,
        retries: Retries | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError("the gateway's url must start with http:// or https://")
        self._url = url.rstrip("/")
        self._key = key
        self._envelope: dict[str, Any] = {"workflow": workflow, "run_id": run_id, "on_behalf_of": on_behalf_of, "context": context}
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._retries = retries or Retries()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {self._key}"}, timeout=self._timeout)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def within(self, **envelope: Any) -> Self:
        """A client over the same connections with other `workflow`, `run_id`, `on_behalf_of` or `context`.

        Lives as long as the client that it came from; TypeError for any other name.
        """
        if unknown := envelope.keys() - self._envelope.keys():
            raise TypeError(f"not a part of the envelope: {', '.join(sorted(unknown))}")
        other = copy(self)
        other._envelope = self._envelope | envelope  # noqa: SLF001 - a client of our own making
        return other

    async def tools(self, format: ToolFormat = "gemini") -> list[dict[str, Any]]:  # noqa: A002 - the wire's word
        """The declarations that this principal may use, in exactly the shape that the vendor's SDK takes as `tools`."""
        query = {name: self._envelope[name] for name in ("workflow", "on_behalf_of") if self._envelope[name] is not None}
        content = await self._request("GET", "/v1/tools", params=query | {"format": format})
        return _read(_ToolList, content).tools

    async def gemini_config(self, *, tools: Sequence[Any] = (), **fields: Any) -> dict[str, Any]:
        """The ``config`` for google-genai's ``generate_content``: this principal's declarations, automatic calling off.

        `tools` are further ones that Google itself runs (search, code); `fields` other fields of ``GenerateContentConfig``.
        TypeError for a Python function or an MCP session among `tools`: the client would run it past the gateway.
        """
        return gemini.config(await self.tools("gemini"), tools=tools, **fields)

    async def call(
        self,
        name: str,
        args: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the wire's word
        idempotency_key: str | None = None,
        approval_id: str | None = None,
    ) -> Answer:
        """Propose one call and wait for its answer.

        `id` is the model's own id, only where it gave one. The call is repeated, always under one idempotency key (made
        here where none is given), when its answer was lost, when the gateway is overloaded, and when its result says
        ``temporary_error`` or ``in_progress``, after the time it says; nothing else is repeated. When patience ends,
        the last such answer is returned.

        Raises `GatewayProblem`, `GatewayUnreachable`, `AnswerUnreadable`; ValueError for arguments that are not JSON.
        """
        key = idempotency_key or self._retries.new_key()
        call = _without_absent({"id": id, "name": name, "args": args, "approval_id": approval_id})
        patience = _Patience(self._retries)
        while True:
            content = await self._request("POST", "/v1/calls", self._filled(call=call), key=key, patience=patience)
            answer = _read(Answer, content)
            result = answer.result
            if not isinstance(result, TemporaryError | InProgress) or not await patience.wait(result.retry_after_ms / 1000):
                return answer

    async def round(self, calls: Iterable[Mapping[str, Any]], *, idempotency_key: str | None = None) -> RoundAnswer:
        """Propose all calls of one model turn (1 to 64) and wait for their answers, one each, in the same order.

        A call is ``{id?, name, args?, idempotency_key?, approval_id?}``. The round as a whole is repeated under the same
        key when its answer was lost or the gateway is overloaded, so that no call runs twice; single results are the
        caller's to repeat. Raises as `call` does.
        """
        key = idempotency_key or self._retries.new_key()
        content = await self._request("POST", "/v1/rounds", self._filled(calls=[dict(call) for call in calls]), key=key)
        return _read(RoundAnswer, content)

    async def answer_turn(self, turn: Any, dialect: TurnDialect, *, idempotency_key: str | None = None, patience_s: float = 0) -> Any:
        """Govern all calls of a model's turn and return the one turn that answers it, as JSON; None where it holds no calls.

        `turn` is what the vendor's SDK returned (a response, a message, a list of items), or the same as JSON; it is not
        changed, and only its calls leave the process: no texts, no signatures. Give an `idempotency_key` of your own where
        a restarted program may ask again. With `patience_s` (seconds) calls that wait for a person, for the client or for
        a resolution are waited for, and the round is repeated with the approvals that people gave.

        Raises as `call` does; ValueError (`gateway.dialects.turn.TurnUnreadable`) for a turn that is not one of `dialect`.
        """
        read = DIALECTS[dialect](_as_json(turn))
        if not read.calls:
            return None
        key = idempotency_key or self._retries.new_key()
        answers = await self._govern_turn(read.calls, key)
        if patience_s > 0:
            answers = await asyncio.gather(*(self.wait(answer, patience_s=patience_s) for answer in answers))
            approval_ids = [_granted(answer) for answer in answers]
            if any(approval_ids):
                # Under the same key: what ran already is answered from the ledger.
                answers = await self._govern_turn(read.calls, key, approval_ids=approval_ids)
        return read.answer(answers)

    async def _govern_turn(self, calls: Sequence[TurnCall], key: str, **more: Any) -> list[Answer]:
        # Gemini's form of a call is the gateway's own, so every dialect's calls travel in it.
        turn = {"parts": [{"functionCall": call.as_wire()} for call in calls]}
        content = await self._request("POST", "/v1/rounds", self._filled(turn=turn, **more), params={"dialect": "gemini"}, key=key)
        answers = _read(RoundAnswer, content).results
        if len(answers) != len(calls):
            raise AnswerUnreadable(f"{len(answers)} answers on {len(calls)} calls")
        return answers

    async def answer_gemini(self, response: Any, *, idempotency_key: str | None = None, patience_s: float = 0) -> Any:
        """`answer_turn` for google-genai: the ``types.Content`` that answers a ``generate_content`` response or a ``Content``.

        JSON is answered with JSON, and an ``Interaction`` with the list of steps that is the next one's ``input``. Raises
        `CalledPastTheGateway` where Google's client ran functions itself; `gemini_config` switches that off.
        """
        if getattr(response, "automatic_function_calling_history", None):
            raise CalledPastTheGateway("google-genai ran functions itself; make its config with gemini_config()")
        turn = await self.answer_turn(response, "gemini", idempotency_key=idempotency_key, patience_s=patience_s)
        if not isinstance(response, BaseModel) or not isinstance(turn, dict):
            return turn
        from google.genai import types  # noqa: PLC0415 - whoever has such a response has the library; others need not

        return types.Content.model_validate(turn)

    async def wait(self, answer: Answer, *, patience_s: float = 600) -> Answer:
        """`answer` as it stands once nothing is on the way any more, or after `patience_s` seconds.

        On the way are: a running call, a client's result, the resolution of an unknown outcome, and a person's answer. When
        a person agreed, the result is still ``confirmation_required``, with the reason code ``APPROVAL_GRANTED``: repeat
        the call with its ``approval_id``.
        """
        ends_at = self._retries.clock() + patience_s
        while answer.decision_id is not None and _is_on_the_way(answer) and (left := ends_at - self._retries.clock()) > 0:
            asked_at = self._retries.clock()
            answer = await self.look_up(answer.decision_id, wait=int(min(left, _LONGEST_LOOK_S)))
            # A gateway that does not wait is not asked without a pause.
            if _is_on_the_way(answer) and self._retries.clock() - asked_at < 1:
                await self._retries.sleep(min(1, left))
        return answer

    async def look_up(self, decision_id: str, *, wait: float | None = None) -> Answer:
        """The answer on an earlier call as it stands now; waits up to `wait` seconds for it to end."""
        query = {} if wait is None else {"wait": f"{wait:g}"}
        return _read(Answer, await self._request("GET", f"/v1/calls/{quote(decision_id, safe='')}", params=query))

    async def report(self, execution_id: str, status: str, data: Any = None) -> Answer:
        """Post what came of a ``pending_client`` call that the client performed. Accepted once, so never repeated here."""
        body = {"status": status, "data": data}
        once = _Patience(Retries(attempts=1))
        return _read(Answer, await self._request("POST", f"/v1/executions/{quote(execution_id, safe='')}/result", body, patience=once))

    def _filled(self, **calls: Any) -> dict[str, Any]:
        if missing := [name for name in ("workflow", "run_id") if self._envelope[name] is None]:
            raise ValueError(f"a call needs {' and '.join(missing)}: give them to GatewayClient or within()")
        return _without_absent(self._envelope) | calls

    async def _request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        key: str | None = None,
        patience: "_Patience | None" = None,
    ) -> bytes:
        """The body of a 200 answer, after as many repetitions as `patience` has."""
        patience = patience or _Patience(self._retries)
        # Written once: a repetition is the same bytes.
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        while True:
            retry_after: float | None = None
            try:
                status, answer_headers, content = await self._exchange(method, path, data, params, headers)
            except (aiohttp.ClientError, TimeoutError) as error:
                failure: GatewayClientError = GatewayUnreachable(
                    f"no answer from {self._url}: {explain_failure(error)}", idempotency_key=key
                )
            else:
                if status == 200:
                    return content
                failure = _problem(status, content)
                if status not in _WORTH_REPEATING:
                    raise failure
                retry_after = _seconds(answer_headers.get("Retry-After"))
            if not await patience.wait(retry_after):
                raise failure

    async def _exchange(
        self, method: str, path: str, data: bytes | None, params: Mapping[str, str] | None, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], bytes]:
        if self._session is None:
            raise RuntimeError("use GatewayClient in an `async with` block")
        # A redirect would carry the key elsewhere.
        request = self._session.request(method, self._url + path, data=data, params=params, headers=headers, allow_redirects=False)
        async with request as response:
            return response.status, response.headers, await response.read()


def explain_failure(error: aiohttp.ClientError | TimeoutError) -> str:
    """Why there was no answer, in the words of the system where it has some."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, OSError) and cause.errno is not None and not isinstance(cause, socket.gaierror):
        return os.strerror(cause.errno)
    return (cause.strerror if isinstance(cause, OSError) else str(cause)) or type(error).__name__


class _Patience:
    """What is left of the repetitions of one logical call."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._attempts_left = retries.attempts - 1
        self._ends_at = retries.clock() + retries.total_s
        self._next_wait = retries.first_wait_s

    async def wait(self, at_least: float | None) -> bool:
        """Wait `at_least` seconds (or a growing time of our own) and a little more; False, at once, when patience is over."""
        seconds = self._next_wait if at_least is None else at_least
        seconds *= 1 + self._retries.jitter() / 4
        if self._attempts_left < 1 or self._retries.clock() + seconds > self._ends_at:
            return False
        self._attempts_left -= 1
        self._next_wait *= 2
        await self._retries.sleep(seconds)
        return True


def _granted(answer: Answer) -> str | None:
    """The approval that a person has given and that was not used yet."""
    result = answer.result
    if isinstance(result, ConfirmationRequired) and result.reason_code == ReasonCode.APPROVAL_GRANTED.value:
        return result.approval_id
    return None


def _is_on_the_way(answer: Answer) -> bool:
    waits = ConfirmationRequired | InProgress | OutcomeUnknown | PendingClient
    return isinstance(answer.result, waits) and _granted(answer) is None


def _as_json(turn: Any) -> Any:
    """A turn as JSON values, whether it came as such or as an SDK's objects."""
    if isinstance(turn, list | tuple):
        return [_as_json(item) for item in cast("Sequence[Any]", turn)]
    # The SDKs' objects hold whatever the model wrote, fitting or not; that is no reason to warn.
    return turn.model_dump(warnings=False) if isinstance(turn, BaseModel) else turn


class _ToolList(BaseModel):
    model_config = ConfigDict(extra="ignore")

    tools: list[dict[str, Any]]


class _ProblemDocument(BaseModel):
    model_config = ConfigDict(extra="ignore")

    code: str | None = None
    detail: str | None = None
    title: str | None = None


def _problem(status: int, content: bytes) -> GatewayProblem:
    try:
        document = _ProblemDocument.model_validate_json(content)
    except ValidationError:
        document = _ProblemDocument()
    return GatewayProblem(code=document.code, status=status, detail=document.detail or document.title or "no detail given")


def _read(model: type[_Model], content: bytes) -> _Model:
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        raise AnswerUnreadable(f"not an answer of wire version 1: {error.error_count()} fields do not fit") from error


def _seconds(header: str | None) -> float | None:
    """The seconds of a Retry-After header; its other form, a date, counts as nothing said."""
    return float(header) if header is not None and header.isascii() and header.isdigit() else None


def _without_absent(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
