"""Asking Gemini for one turn (``generateContent``, not streamed), through google-genai. The only file that imports it.

What the model wrote goes back byte for byte: the conversation is put into the request as it was received, and the body of
the answer is handed on as it came. google-genai's own types would drop the fields that they do not know.
"""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
from google import genai
from google.genai import errors, types

from gateway.domain.json_values import is_array, is_object
from gateway.runs.model import ModelFault

TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
"""HTTP statuses after which the same request may be sent again."""
LONGEST_RETRY_AFTER_S = 60.0
API_VERSION = "v1beta"
"""Pinned, since google-genai's own default differs between its releases."""

_DURATION = re.compile(r"([0-9]{1,6})(?:\.[0-9]{1,9})?s?")
_WORD = re.compile(r"[A-Z_]{1,40}")


class _Redirected(Exception):
    """The service sent the request elsewhere. Not followed: the key would go along."""


async def _refuse_redirect(*_: object) -> None:
    raise _Redirected


class Gemini:
    """The Gemini API, or whatever speaks it at `base_url`. To be made where an event loop runs."""

    def __init__(self, *, key: str, base_url: str | None = None, timeout_s: float = 120.0) -> None:
        trace = aiohttp.TraceConfig()
        trace.on_request_redirect.append(_refuse_redirect)
        self._session = aiohttp.ClientSession(trust_env=True, cookie_jar=aiohttp.DummyCookieJar(), trace_configs=[trace])
        options = types.HttpOptions(
            base_url=base_url,
            api_version=API_VERSION,
            timeout=round(timeout_s * 1_000),
            aiohttp_client=self._session,
            retry_options=types.HttpRetryOptions(attempts=1),  # the loop counts and bounds repetitions itself
        )
        self._client = genai.Client(vertexai=False, api_key=key, http_options=options)
        self._timeout_s = timeout_s
        # It says at INFO which calls it would make itself; it never makes any here.
        logging.getLogger("google_genai").setLevel(logging.ERROR)

    async def ask(self, model: str, contents: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> bytes:
        """The body of a ``generateContent`` answer, exactly as it came. Raises ModelFault."""
        config = types.GenerateContentConfig(
            tools=[types.Tool.model_validate(dict(tool)) for tool in tools] or None,
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
            should_return_http_response=True,
            http_options=types.HttpOptions(extra_body={"contents": [dict(content) for content in contents]}),
        )
        models: Any = self._client.aio.models  # its own types are not complete
        try:
            async with asyncio.timeout(self._timeout_s):
                # `contents` here is only a place that `extra_body` fills.
                response = await models.generate_content(model=model, contents="-", config=config)
        except errors.APIError as error:
            raise _fault_of(error) from None
        except TimeoutError:
            raise ModelFault("timeout", is_transient=True) from None
        except Exception as error:  # noqa: BLE001 - see below
            # Transports of several libraries are possible below; none of their errors is more than "no answer".
            raise ModelFault(type(error).__name__, is_transient=True) from None
        body = response.sdk_http_response.body if response.sdk_http_response else None
        if not body:
            raise ModelFault("empty answer", is_transient=True)
        return body.encode("utf-8", "surrogatepass")

    async def close(self) -> None:
        """Close connections."""
        await self._client.aio.aclose()
        await self._session.close()


def _fault_of(error: errors.APIError) -> ModelFault:
    code: Any = error.code
    word = error.status if isinstance(error.status, str) and _WORD.fullmatch(error.status) else ""
    is_transient = not isinstance(code, int) or code in TRANSIENT or code >= 500
    return ModelFault(f"{code} {word}".strip()[:60], is_transient=is_transient, retry_after_s=_retry_after(error))


def _retry_after(error: errors.APIError) -> float | None:
    """Seconds from the header Retry-After, or from a ``RetryInfo`` in the error's details."""
    fields = vars(error)
    headers = getattr(fields.get("response"), "headers", None)
    found: Any = headers.get("Retry-After") if headers is not None else None
    document: Any = fields.get("details")
    inner: Any = document.get("error", document) if is_object(document) else None
    listed: Any = inner.get("details") if is_object(inner) else None
    for detail in listed if is_array(listed) else ():
        if is_object(detail) and str(detail.get("@type", "")).endswith("RetryInfo"):
            found = detail.get("retryDelay")
    match = _DURATION.fullmatch(found) if isinstance(found, str) else None
    return min(float(match[1]), LONGEST_RETRY_AFTER_S) if match else None
