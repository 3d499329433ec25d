"""The worker process that runs Rego: a program of its own, started by path, that knows only the standard library and regorus.

Regorus holds the GIL, cannot be interrupted, and some inputs crash or exhaust it; so nothing of it runs in the gateway's
own process. The worker limits its own memory and lets the kernel end an evaluation that runs too long.

Requests come on stdin, answers leave on stdout, both as frames: 4 bytes length (big endian) of what follows, 1 byte kind, body. Answers come in order.
Pipes and not a socket: a socket whose peer dies with unread requests reports an error, upon which libuv goes deaf.
"""

import contextlib
import json
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable
from typing import Any, Protocol

# Requests.
LOAD = b"L"
"""JSON {modules: {file: source}, data: {…}, evaluation_s, coverage?}. Answer: RESULT with an empty body."""
DECIDE = b"D"
"""The input document (JSON). Answer: RESULT with ``data.gateway.decision``."""
PROVE = b"V"
"""As DECIDE, with `PROVE_S`: whoever loads a revision measures it."""
EVALUATE = b"E"
"""A rule's path, without input. Answer: RESULT with its value."""
ASK = b"A"
"""A rule's path, a line end, and an input document. Answer: RESULT with the rule's value."""
QUERY = b"Q"
"""A Rego expression, without input. Answer: RESULT with the query's results."""
COVER = b"C"
"""No body. Answer: RESULT with {file: [lines]} that were evaluated since the last such request; only after a LOAD with `coverage`."""
PARSE = b"P"
"""JSON {file: source}. Answer: RESULT with [{file, module} | {file, error}], module as regorus' syntax tree."""

# Answers.
RESULT = b"="
UNDEFINED = b"?"
ERROR = b"!"

ENTRY_POINT = "data.gateway.decision"
ANSWER_LIMIT = 256 * 1024
"""Bytes of one decision; more is an error."""
LOAD_S = 10.0
"""Seconds for loading or parsing."""
PROVE_S = 2.0
"""Seconds for a proof; more than a call gets, since a machine may be busy just then."""
POISONED = 70
"""Exit status after a panic: that engine's later answers cannot be trusted."""

_LIMITS_S = {LOAD: LOAD_S, PARSE: LOAD_S, PROVE: PROVE_S}
_REQUESTS, _ANSWERS = 0, 1
_HEAD = struct.Struct(">IB")


def _read_exactly(size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = os.read(_REQUESTS, min(size - len(parts), 1 << 20))
        if not part:
            os._exit(0)  # The gateway is gone.
        parts += part
    return bytes(parts)


def _write(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(_ANSWERS, rest) :]


def _limit_resources(memory_bytes: int) -> None:
    for limit, value in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CORE, 0),  # A dump would hold policy inputs.
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 64),
    ):
        resource.setrlimit(limit, (value, value))


class _Engine(Protocol):
    """What is used of regorus' engine, which brings no types. Errors are RuntimeErrors, panics BaseExceptions."""

    def add_policy(self, path: str, rego: str) -> str: ...
    def add_data_json(self, data: str) -> None: ...
    def set_gather_prints(self, enable: bool) -> None: ...  # noqa: FBT001
    def set_input_json(self, document: str) -> None: ...
    def eval_rule_as_json(self, rule: str) -> str: ...
    def eval_query_as_json(self, query: str) -> str: ...
    def get_ast_as_json(self) -> str: ...
    def set_enable_coverage(self, enable: bool) -> None: ...  # noqa: FBT001
    def get_coverage_report_as_json(self) -> str: ...
    def clone(self) -> "_Engine": ...


class _Rego:
    """One loaded revision; every evaluation works on a fresh clone, so that nothing of one call reaches the next."""

    def __init__(self, new_engine: Callable[[], _Engine]) -> None:
        self._new_engine = new_engine
        self._base = new_engine()
        self._evaluation_s: float = 0.25
        self._covered: dict[str, set[int]] | None = None

    def answer(self, kind: bytes, body: bytes) -> tuple[bytes, bytes]:
        seconds = _LIMITS_S.get(kind, self._evaluation_s)
        # CPU time: a busy machine is no fault of the policies. SIGPROF's default action ends the process; nothing else can.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            return self._perform(kind, body)
        except (RuntimeError, ValueError) as error:
            return ERROR, str(error).split("Stack backtrace", 1)[0].strip()[-2000:].encode()
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def _perform(self, kind: bytes, body: bytes) -> tuple[bytes, bytes]:  # noqa: PLR0911 - one return a request
        if kind in (DECIDE, PROVE):
            engine = self._base.clone()
            engine.set_input_json(body.decode())
            try:
                return self._evaluate(engine, ENTRY_POINT)
            except RuntimeError as error:
                if str(error).startswith("not a valid rule path"):  # OPA's undefined
                    return UNDEFINED, b""
                raise
        if kind == EVALUATE:
            return self._evaluate(self._base.clone(), body.decode())
        if kind in (ASK, COVER):
            return self._study(kind, body)
        if kind == QUERY:
            return self._bounded(self._base.clone().eval_query_as_json(body.decode()))
        if kind == LOAD:
            self._load(json.loads(body))
            return RESULT, b""
        if kind == PARSE:
            return RESULT, ("[" + ",".join(self._parse(file, source) for file, source in json.loads(body).items()) + "]").encode()
        os._exit(POISONED)

    def _study(self, kind: bytes, body: bytes) -> tuple[bytes, bytes]:
        if kind == ASK:
            rule, _, document = body.partition(b"\n")
            engine = self._base.clone()
            engine.set_input_json(document.decode())
            return self._evaluate(engine, rule.decode())
        covered, self._covered = self._covered or {}, {}
        return RESULT, json.dumps({file: sorted(lines) for file, lines in covered.items()}).encode()

    def _evaluate(self, engine: _Engine, rule: str) -> tuple[bytes, bytes]:
        try:
            return self._bounded(engine.eval_rule_as_json(rule))
        finally:
            if self._covered is not None:
                for file in json.loads(engine.get_coverage_report_as_json())["files"]:
                    self._covered.setdefault(file["path"], set()).update(file["covered"])

    def _bounded(self, answer: str) -> tuple[bytes, bytes]:
        if answer == '"<undefined>"':
            return UNDEFINED, b""
        encoded = answer.encode()
        if len(encoded) > ANSWER_LIMIT:
            return ERROR, b"the answer is too large"
        return RESULT, encoded

    def _load(self, policies: dict[str, Any]) -> None:
        engine = self._new_engine()
        for file, source in policies["modules"].items():
            engine.add_policy(file, source)
        engine.add_data_json(json.dumps(policies["data"]))
        engine.set_gather_prints(True)  # `print` would write to the gateway's stderr.
        self._evaluation_s = policies["evaluation_s"]
        self._covered = {} if policies.get("coverage") else None
        # The first evaluation prepares the rules; without it every clone would do so anew, at twice the cost of a decision.
        with contextlib.suppress(RuntimeError):
            engine.set_input_json("{}")
            engine.eval_rule_as_json(ENTRY_POINT)
        if self._covered is not None:
            engine.set_enable_coverage(True)
        self._base = engine

    def _parse(self, file: str, source: str) -> str:
        engine = self._new_engine()
        try:
            engine.add_policy(file, source)
            trees = engine.get_ast_as_json()
        except RuntimeError as error:
            return json.dumps({"file": file, "error": str(error).split("Stack backtrace", 1)[0].strip()[-2000:]})
        return f'{{"file": {json.dumps(file)}, "module": {trees.strip()[1:-1]}}}'


def serve(new_engine: Callable[[], _Engine]) -> None:
    """Answer one frame after the other until the gateway closes the pipe."""
    rego = _Rego(new_engine)
    while True:
        length, kind = _HEAD.unpack(_read_exactly(_HEAD.size))
        mark, answer = rego.answer(bytes((kind,)), _read_exactly(length - 1))
        # Sent before the next frame is touched: what is unanswered when a worker dies names the call that killed it.
        _write(_HEAD.pack(len(answer) + 1, mark[0]) + answer)


def main() -> None:
    """Arguments: the folder that holds regorus, the memory limit in bytes."""
    folder, memory_bytes = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path.append(folder)
    try:
        import regorus  # pyright: ignore[reportMissingTypeStubs]  # noqa: PLC0415 -- only ever in this process

        _limit_resources(int(memory_bytes))
        serve(regorus.Engine)  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType, reportAttributeAccessIssue]
    except BaseException:  # noqa: BLE001 -- a panic is a BaseException; whatever it is, this process must not go on
        os._exit(POISONED)


if __name__ == "__main__":
    main()
