"""A worker for untrusted Rego outside the hot path: checks and tests ask it one thing after the other and wait."""

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Mapping
from typing import Any, Self

import orjson
import psutil

from gateway.policy import worker
from gateway.policy.launch import MEMORY_BYTES, close_pipes, frame, start_worker

_ANSWER_MS = (worker.LOAD_S + 1.0) * 1000


class SandboxError(Exception):
    """The worker did not survive, or was too slow; with it went everything that was loaded."""


class Sandbox:
    """One worker process; a context manager that ends it. Blocking: inside an event loop call it in a thread."""

    def __init__(self, *, evaluation_s: float = 1.0, memory_bytes: int = MEMORY_BYTES) -> None:
        self._evaluation_s = evaluation_s
        self._memory_bytes = memory_bytes

    def __enter__(self) -> Self:
        self._process, self._requests, self._answers = start_worker(self._memory_bytes)
        return self

    def __exit__(self, *_: object) -> None:
        close_pipes(self._process)
        self._process.kill()
        self._process.wait()

    @property
    def cpu_s(self) -> float:
        """CPU seconds that the worker has used."""
        times = psutil.Process(self._process.pid).cpu_times()
        return times.user + times.system

    def parse(self, modules: Mapping[str, str]) -> list[dict[str, Any]]:
        """One entry per module: {file, module} with regorus' syntax tree, or {file, error}."""
        mark, body = self._ask(worker.PARSE, orjson.dumps(dict(modules)))
        if mark != worker.RESULT:
            raise SandboxError(body.decode(errors="replace"))
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise SandboxError("the syntax tree is nested too deeply") from error

    def load(self, modules: Mapping[str, str], data: Mapping[str, Any], *, coverage: bool = False) -> str | None:
        """Load modules and data for `evaluate`; the engine's error, or None. With `coverage`, `reached` tells what was evaluated."""
        policies = {"modules": dict(modules), "data": dict(data), "evaluation_s": self._evaluation_s, "coverage": coverage}
        mark, body = self._ask(worker.LOAD, orjson.dumps(policies))
        return None if mark == worker.RESULT else body.decode(errors="replace")

    def decide(self, document: bytes) -> tuple[bytes, str]:
        """The raw decision on an input document: (RESULT, JSON), (UNDEFINED, "") or (ERROR, text)."""
        mark, body = self._ask(worker.DECIDE, document)
        return mark, body.decode(errors="replace")

    def evaluate(self, rule: str) -> tuple[bytes, str]:
        """The value of a rule such as ``data.policies.x.test_y``: (RESULT, JSON), (UNDEFINED, "") or (ERROR, text)."""
        mark, body = self._ask(worker.EVALUATE, rule.encode())
        return mark, body.decode(errors="replace")

    def evaluate_with(self, rule: str, document: bytes) -> tuple[bytes, str]:
        """As `evaluate`, on an input document."""
        mark, body = self._ask(worker.ASK, rule.encode() + b"\n" + document)
        return mark, body.decode(errors="replace")

    def reached(self) -> dict[str, frozenset[int]]:
        """File -> lines that were evaluated since the last time that this was asked."""
        mark, body = self._ask(worker.COVER, b"")
        if mark != worker.RESULT:
            raise SandboxError(body.decode(errors="replace"))
        return {file: frozenset(lines) for file, lines in orjson.loads(body).items()}

    def query(self, expression: str) -> tuple[bytes, str]:
        """The results of a Rego expression: (RESULT, JSON) or (ERROR, text)."""
        mark, body = self._ask(worker.QUERY, expression.encode())
        return mark, body.decode(errors="replace")

    def _ask(self, kind: bytes, body: bytes) -> tuple[bytes, bytes]:
        try:
            rest = memoryview(frame(kind, body))
            while rest:
                rest = rest[os.write(self._requests, rest) :]
            length = int.from_bytes(self._receive(4), "big")
            answer = self._receive(length)
        except OSError as error:
            raise SandboxError(f"the worker ended ({self._status()})") from error
        return answer[:1], answer[1:]

    def _receive(self, size: int) -> bytes:
        ready = select.poll()
        ready.register(self._answers, select.POLLIN)
        parts = bytearray()
        while len(parts) < size:
            if not ready.poll(_ANSWER_MS):
                raise TimeoutError
            part = os.read(self._answers, min(size - len(parts), 1 << 20))
            if not part:
                raise ConnectionResetError
            parts += part
        return bytes(parts)

    def _status(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._process.wait(0.5)
            return "time limit" if status == -signal.SIGPROF else f"status {status}"
        return "no answer in time"
