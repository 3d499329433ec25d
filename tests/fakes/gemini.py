"""A server that speaks ``generateContent`` as Gemini does, says what it is told to, and refuses what Gemini refuses.

What it says depends on how many turns of its own the conversation holds, so that whoever asks again gets the same turn.
"""

import asyncio
import base64
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from gateway.domain.json_values import is_object

KEY = "a-gemini-key"


def calls(*wanted: tuple[str, Any] | tuple[str, Any, str], signature: bytes | None = b"sig-\xfb\xff", **more: Any) -> dict[str, Any]:
    """A turn of function calls ``(name, args[, id])``; the first carries the signature, as Gemini's do."""
    parts: list[dict[str, Any]] = [{"text": "**Thinking**", "thought": True}]
    for place, (name, args, *call_id) in enumerate(wanted):
        call = {"name": name} | ({"args": args} if args is not None else {}) | ({"id": call_id[0]} if call_id else {})
        part: dict[str, Any] = {"functionCall": call}
        if place == 0 and signature is not None:
            part["thoughtSignature"] = base64.b64encode(signature).decode()
        parts.append(part)
    return turn(parts, **more)


def text(words: str, **more: Any) -> dict[str, Any]:
    """A turn of words."""
    return turn([{"text": "They want…", "thought": True}, {"text": words, "thoughtSignature": "c2lnLXRleHQ="}], **more)


def turn(parts: list[Any] | None, *, finish: str | None = "STOP", tokens: int = 100, **more: Any) -> dict[str, Any]:
    """A whole answer."""
    candidate: dict[str, Any] = {"index": 0} | ({"finishReason": finish} if finish else {})
    if parts is not None:
        candidate["content"] = {"role": "model", "parts": parts}
    return {"candidates": [candidate], "usageMetadata": {"totalTokenCount": tokens}, "modelVersion": "fake"} | more


@dataclass(frozen=True, kw_only=True)
class Broken:
    """The service fails so often before it says what stands at the same place."""

    status: int
    times: int
    then: Any = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    details: list[Any] = field(default_factory=list[Any])


@dataclass
class GeminiServer:
    """Set `script`: one entry for each turn (an answer, raw bytes, or Broken). Read `requests` and `asked`."""

    script: Sequence[Any] = ()
    url: str = ""
    is_strict: bool = True
    """Whether conversations are checked."""
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    asked: Counter[int] = field(default_factory=Counter[int])
    """How often each turn was asked for."""
    hold: dict[int, asyncio.Event] = field(default_factory=dict[int, asyncio.Event])
    """Turns that are said only once their event is set."""

    async def answer(self, request: web.Request) -> web.Response:
        """One ``generateContent``."""
        if request.headers.get("x-goog-api-key") != KEY:
            return _error(401, "UNAUTHENTICATED", "API key not valid.")
        body = await request.json()
        self.requests.append(body)
        place = sum(1 for content in body["contents"] if content.get("role") == "model") + self._skipped(body["contents"])
        self.asked[place] += 1
        if self.is_strict and (problem := self.find_problem(body["contents"])) is not None:
            return _error(400, "INVALID_ARGUMENT", problem)
        if place in self.hold:
            await self.hold[place].wait()
        said = self.script[place]
        if isinstance(said, Broken):
            if self.asked[place] <= said.times:
                return _error(said.status, "RESOURCE_EXHAUSTED", "away", headers=said.headers, details=said.details)
            said = said.then
        if isinstance(said, bytes):
            return web.Response(body=said, content_type="application/json")
        return web.json_response(said)

    def find_problem(self, contents: list[dict[str, Any]]) -> str | None:
        """What Gemini would refuse: the count over merged contents, names, ids, and signatures by their bytes."""
        merged = merge(contents)
        if not merged or merged[0]["role"] != "user" or merged[-1]["role"] != "user":
            return "Please ensure that the conversation begins and ends with a user turn."
        for index, content in enumerate(merged):
            wanted = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
            given = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
            if content["role"] == "user" and given and (index == 0 or not _calls_of(merged[index - 1])):
                return "Function responses without function calls."
            if content["role"] != "model":
                continue
            answers = [part["functionResponse"] for part in merged[index + 1]["parts"] if "functionResponse" in part]
            if len(wanted) != len(answers):
                return "Please ensure that the number of function response parts is equal to the number of function call parts."
            for call, response in zip(wanted, answers, strict=True):
                if (call["name"], call.get("id")) != (response["name"], response.get("id")):
                    return f"Function response for {response['name']} does not match its call."
                if not isinstance(response["response"], dict):
                    return "Function responses are objects."
        return self._find_signature_problem(contents)

    def _find_signature_problem(self, contents: list[dict[str, Any]]) -> str | None:
        said = [signature for entry in self.script if (signature := signatures(_content_of(entry)))]
        returned = [signatures(content) for content in contents if content["role"] == "model"]
        for content in returned:
            if content not in said:
                return "Function call is missing a thought_signature, or it is not the one that was given."
        return None

    def _skipped(self, contents: list[dict[str, Any]]) -> int:
        """Turns that are not sent back because they could not be used: each left a user text behind."""
        return sum(1 for content in contents[1:] if content.get("role") == "user" and "functionResponse" not in content["parts"][0])


def merge(contents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Consecutive contents of one role as one."""
    merged: list[dict[str, Any]] = []
    for content in contents:
        if merged and merged[-1]["role"] == content["role"]:
            merged[-1] = merged[-1] | {"parts": merged[-1]["parts"] + content["parts"]}
        else:
            merged.append(content)
    return merged


def signatures(content: dict[str, Any]) -> list[tuple[int, bytes]]:
    """The decoded signatures of a content with their places; both alphabets of base64 are read, as Gemini does."""
    found: list[tuple[int, bytes]] = []
    for place, part in enumerate(content.get("parts", [])):
        if written := part.get("thoughtSignature", part.get("thought_signature")):
            found.append((place, base64.b64decode(written.replace("-", "+").replace("_", "/") + "==")))
    return found


def _content_of(said: Any) -> dict[str, Any]:
    if isinstance(said, Broken):
        return _content_of(said.then)
    return said["candidates"][0].get("content", {}) if is_object(said) and "candidates" in said else {}


def _calls_of(content: dict[str, Any]) -> list[Any]:
    return [part for part in content["parts"] if "functionCall" in part]


def _error(
    status: int, word: str, message: str, *, headers: dict[str, str] | None = None, details: list[Any] | None = None
) -> web.Response:
    error = {"code": status, "status": word, "message": message, "details": details or []}
    return web.json_response({"error": error}, status=status, headers=headers)


@asynccontextmanager
async def run_gemini(script: Sequence[Any] = ()) -> AsyncGenerator[GeminiServer]:
    """The server on a free port of the loopback address."""
    server = GeminiServer(script=script)
    app = web.Application(client_max_size=16 * 1024 * 1024)
    app.router.add_post("/v1beta/models/{model}:generateContent", server.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        for event in server.hold.values():
            event.set()
        await runner.cleanup()
