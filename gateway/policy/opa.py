"""OPA as policy engine: one HTTP question a decision, one deadline, and nothing but a plain answer counts.

OPA pulls the revision in force by itself (`gateway.policy.opa_bundle`), so an answer may come from another one; then the
call waits within its deadline, and is refused as POLICY_STALE after it.

An HTTP client of our own and not opa-python-client: docs/decisions/0006 says why.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import aiohttp
import jiter

from gateway.domain.catalogue import PolicySet
from gateway.domain.decision import PolicyFault
from gateway.domain.json_values import is_array, is_object
from gateway.domain.policy_input import CANARY
from gateway.domain.reasons import ReasonCode

QUESTION = "/v1/data/gateway/decision?strict-builtin-errors=true&provenance=true"
"""Always this path. Strict: without it an error in a builtin makes a deny rule vanish. Provenance names OPA and its revision."""
DEADLINE_S = 1.0
"""Seconds that one decision may take in all: connecting, evaluating, and waiting for its revision."""
QUEUE_LIMIT = 1_000
"""Unanswered decisions, beyond which calls are refused at once."""
CONNECTIONS = 64
ANSWER_LIMIT = 256 * 1024 + 16 * 1024
"""Bytes of an answer: those of one decision, and what OPA puts around it."""
MIN_VERSION = (1, 17)
"""The first OPA that has `import future.keywords.not`."""

_LOOK_S = 0.05
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.|$)")
_HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
_UNDEFINED = object()


@dataclass(frozen=True, kw_only=True)
class _Answer:
    result: Any
    """Parsed JSON, or `_UNDEFINED`."""
    revisions: tuple[str, ...]
    """What OPA says about where it comes from; empty where it says nothing."""
    version: str | None


class OpaEngine:
    """Asks one OPA over loopback or https."""

    def __init__(
        self,
        url: str,
        *,
        token: Callable[[], str] | None = None,
        deadline_s: float = DEADLINE_S,
        queue_limit: int = QUEUE_LIMIT,
    ) -> None:
        self._question = url.rstrip("/") + QUESTION
        self._token = token
        self._deadline_s = deadline_s
        self._queue_limit = queue_limit
        self._unanswered = 0
        self._version: str | None = None
        self._expected: set[str] = set()
        """Revisions that calls may ask for."""
        self._session: aiohttp.ClientSession | None = None
        self._looks: dict[str, asyncio.Task[None]] = {}

    @property
    def name(self) -> str:
        """``opa`` with the version that its last answer named, as records name it."""
        return f"opa {self._version}" if self._version else "opa"

    async def is_ready(self) -> bool:
        """Whether OPA decides now, under a revision that calls may ask for."""
        session = self._session
        if session is None:
            return False
        try:
            async with asyncio.timeout(self._deadline_s):
                answer = await self._ask(session, CANARY)
            self._accept(answer)
        except (PolicyFault, TimeoutError):
            return False
        return not self._expected.isdisjoint(answer.revisions)

    async def activate(self, policies: PolicySet) -> None:
        """Note what calls will ask for. OPA pulls it once it is in force; calls that come earlier wait within their deadline.

        It does not wait for OPA, which may be started after this gateway. What OPA cannot load leaves it with the old
        revision: every call is refused as POLICY_STALE then, and the gateway is not ready.
        """
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS),
                timeout=aiohttp.ClientTimeout(total=None),  # one deadline for everything, in `decide`
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        self._expected.add(policies.revision)

    async def retain(self, revisions: AbstractSet[str]) -> None:
        """Note what calls ask for no more."""
        self._expected &= revisions

    async def decide(self, revision: str, document: bytes) -> Any:
        """The raw answer of ``data.gateway.decision`` on `document`; see the port for the faults."""
        session = self._session
        if session is None:
            raise PolicyFault(ReasonCode.POLICY_ENGINE_UNAVAILABLE, "no revision is active")
        if self._unanswered >= self._queue_limit:
            raise PolicyFault(ReasonCode.POLICY_ENGINE_UNAVAILABLE, "too many evaluations are waiting")
        self._unanswered += 1
        found: tuple[str, ...] = ()
        try:
            async with asyncio.timeout(self._deadline_s):
                while True:
                    answer = await self._ask(session, document)
                    found = answer.revisions
                    if not found or revision in found:
                        return self._accept(answer)
                    await self._wait_for(session, revision)
        except TimeoutError:
            if found:
                raise PolicyFault(ReasonCode.POLICY_STALE, f"OPA answers under {found[0][:100]}") from None
            raise PolicyFault(ReasonCode.POLICY_TIMEOUT, f"OPA did not answer within {self._deadline_s:g} s") from None
        finally:
            self._unanswered -= 1

    async def close(self) -> None:
        """Close all connections; what is unanswered fails."""
        for look in self._looks.values():
            look.cancel()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _accept(self, answer: _Answer) -> Any:
        if answer.version is not None and answer.version != self._version:
            _check_version(answer.version)
            self._version = answer.version
        if answer.result is _UNDEFINED:
            raise PolicyFault(ReasonCode.POLICY_UNDEFINED, "data.gateway.decision is undefined")
        return answer.result

    async def _ask(self, session: aiohttp.ClientSession, document: bytes) -> _Answer:
        headers = dict(_HEADERS) if self._token is None else _HEADERS | {"Authorization": f"Bearer {self._token()}"}
        try:
            body = b'{"input":' + document + b"}"
            async with session.post(self._question, data=body, headers=headers, allow_redirects=False) as response:
                return _read(response.status, response.content_type, await _read_body(response))
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error, TimeoutError):  # the deadline's own, which is an OSError too
                raise
            raise _unavailable(f"OPA cannot be asked: {type(error).__name__}") from None

    async def _wait_for(self, session: aiohttp.ClientSession, revision: str) -> None:
        """Return when it is worth to ask again. All who wait for one revision share the looks at it."""
        look = self._looks.get(revision)
        if look is None:
            look = self._looks[revision] = asyncio.create_task(self._look_for(session, revision))
            look.add_done_callback(lambda _: self._looks.pop(revision))
        await asyncio.shield(look)

    async def _look_for(self, session: aiohttp.ClientSession, revision: str) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._deadline_s
        while (left := end - loop.time()) > 0:
            await asyncio.sleep(min(_LOOK_S, left))
            try:
                async with asyncio.timeout(left):
                    if revision in (await self._ask(session, CANARY)).revisions:
                        return
            except TimeoutError:
                return
            except PolicyFault as fault:
                if fault.reason_code is ReasonCode.POLICY_EVALUATION_ERROR:
                    return  # Policies are there, whichever they are; whoever waits asks for itself.


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > ANSWER_LIMIT:
            raise PolicyFault(ReasonCode.POLICY_EVALUATION_ERROR, "the answer is too large")
    return bytes(body)


def _read(status: int, content_type: str, body: bytes) -> _Answer:
    """An answer that OPA gave; PolicyFault for an error of the evaluation, and for whatever is no answer of OPA's."""
    if 300 <= status < 400:
        raise _unavailable(f"OPA redirects ({status}); redirects are not followed")
    try:
        document: Any = (
            jiter.from_json(body, catch_duplicate_keys=True, allow_inf_nan=False) if content_type == "application/json" else None
        )
    except ValueError:
        document = None
    if not is_object(document):
        raise _unavailable(f"what answers is not OPA: status {status}, {content_type[:60]}, no JSON object")
    if status != 200:
        raise _error(status, document)
    provenance = _object(document.get("provenance"))
    result = document.get("result", _UNDEFINED)
    version = provenance.get("version")
    return _Answer(result=result, revisions=_revisions(result, provenance), version=version if isinstance(version, str) else None)


def _revisions(result: Any, provenance: Mapping[str, Any]) -> tuple[str, ...]:
    """The revision that the decision itself names, else those of the bundles that OPA has; none known where OPA tells nothing."""
    own = result.get("revision") if is_object(result) else None
    if isinstance(own, str):
        return (own,)
    if not provenance:
        return ()
    bundles = [_object(bundle).get("revision") for bundle in _object(provenance.get("bundles")).values()]
    return tuple(revision for revision in bundles if isinstance(revision, str)) or ("no bundle",)


def _error(status: int, document: Mapping[str, Any]) -> PolicyFault:
    """OPA's own error document: {code, message, errors?: [{code: "eval_…", message, location?}]}."""
    errors = document.get("errors")
    first = _object(errors[0]) if is_array(errors) and errors else _object(None)
    # What follows the colon may quote the input, which is redacted where it is recorded.
    code, sentence = str(first.get("code", "")), str(first.get("message") or document.get("message", "")).split(":", 1)[0][:200]
    if code == "eval_cancel_error":
        return PolicyFault(ReasonCode.POLICY_TIMEOUT, "OPA stopped the evaluation")
    if code.startswith("eval_"):
        place = _object(first.get("location"))
        where = f" ({place.get('file')}:{place.get('row')}:{place.get('col')})" if place else ""
        return PolicyFault(ReasonCode.POLICY_EVALUATION_ERROR, f"{code[:40]}: {sentence}{where[-100:]}")
    if document.get("code") == "invalid_parameter":
        return PolicyFault(ReasonCode.POLICY_EVALUATION_ERROR, f"OPA refuses the input: {sentence}")
    return _unavailable(f"OPA answers {status} {str(document.get('code'))[:60]}: {sentence}")


def _check_version(version: str) -> None:
    match = _VERSION.match(version)
    if match is None or (int(match[1]), int(match[2])) < MIN_VERSION:
        raise _unavailable(f"OPA {version[:40]} answers; {'.'.join(map(str, MIN_VERSION))} or later is needed")


def _object(value: Any) -> Mapping[str, Any]:
    return value if is_object(value) else {}


def _unavailable(detail: str) -> PolicyFault:
    return PolicyFault(ReasonCode.POLICY_ENGINE_UNAVAILABLE, detail)
