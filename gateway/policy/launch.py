"""How a worker process is started: fixed command, bare environment, two pipes."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from gateway.policy import worker

MEMORY_BYTES = 512 * 1024 * 1024
"""Address space of one worker, its own 90 MiB included."""

ENVIRONMENT = {
    "RUST_BACKTRACE": "0",  # A backtrace costs time and shows host paths.
    "MIMALLOC_ARENA_RESERVE": "64MiB",  # Regorus' allocator would reserve 1 GiB at once, past every limit that is of use.
    "LC_ALL": "C.UTF-8",
}
"""All that a worker sees of the environment: none of the gateway's secrets."""


def start_worker(memory_bytes: int) -> tuple["subprocess.Popen[bytes]", int, int]:
    """Start a worker: the process, and the descriptors of its requests (to write) and answers (to read). May raise OSError.

    The worker runs isolated and without site packages (it starts in half the time); it gets only regorus' own folder.
    """
    spec = find_spec("regorus")
    if spec is None or spec.origin is None:
        msg = "the embedded policy engine is not installed: agent-tool-gateway[server] brings it"
        raise RuntimeError(msg)
    folder = Path(spec.origin).parent.parent
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-B", worker.__file__, str(folder), str(memory_bytes)],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # A panic's text may quote the input.
        env=ENVIRONMENT,
        start_new_session=True,  # A terminal's Ctrl-C ends the gateway, which then ends its workers.
    )
    if process.stdin is None or process.stdout is None:  # for the type checker: both were asked for
        raise TypeError
    return process, process.stdin.fileno(), process.stdout.fileno()


def close_pipes(process: "subprocess.Popen[bytes]") -> None:
    """Close both pipes; the worker ends when it next looks at them."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def frame(kind: bytes, body: bytes) -> bytes:
    """One frame as the worker reads it."""
    return (len(body) + 1).to_bytes(4, "big") + kind + body
