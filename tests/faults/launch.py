"""Starts gateways for the fault tests: imports everything once, then forks a gateway for each order on stdin.

An order is one JSON line ``{"argv": […], "env": {…}, "stdout": path, "stderr": path}``; the answer is ``{"pid": …}``.
KILL_AT, STOP_AT and POINTS_LOG install points of death (points.py), PLANT switches one planted bug on (planted.py), both
before the gateway's own command line runs; LEASE_GRACE_S makes leases shorter than the five seconds that they have. All gateways die with this process, and it dies with its stdin.
"""

import ctypes
import importlib
import json
import os
import signal
import sys
import traceback
from typing import Any

import gateway.cli
from tests.faults import patches, planted, points

_PR_SET_PDEATHSIG = 1


def run_gateway(argv: list[str], environment: dict[str, str]) -> None:
    """Be a gateway. Does not return."""
    os.environ.update(environment)
    if bug := os.environ.get("PLANT"):
        planted.plant(bug)
    if grace := os.environ.get("LEASE_GRACE_S"):
        patches.set_lease_grace(float(grace))
    if subject := os.environ.get("BAD_SUBJECT"):
        patches.fail_batches_with(subject)
    found = points.Points.from_environment(os.environ)
    if found is not None:
        points.install(found)
    sys.argv = ["gateway", *argv]
    gateway.cli.gateway(argv, prog_name="gateway")


def _fork(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        _become_child(order)
        run_gateway(order["argv"], order["env"])
    except SystemExit as stop:
        sys.stderr.flush()
        os._exit(stop.code if isinstance(stop.code, int) else 1)
    except BaseException:  # noqa: BLE001 - nothing of the parent may run on in the child
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(70)


def _become_child(order: dict[str, Any]) -> None:
    _die_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for number, path in ((1, order["stdout"]), (2, order["stderr"])):
        target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(target, number)
        os.close(target)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(70)


def main() -> None:
    """Fork on order until stdin ends."""
    _die_with_parent()
    for module in ("gateway.app", "gateway.cli.serve"):
        importlib.import_module(module)  # once, before the first fork
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended gateways leave nothing behind
    print(json.dumps({"ready": True}), flush=True)  # noqa: T201 - the protocol
    for line in sys.stdin:
        print(json.dumps({"pid": _fork(json.loads(line))}), flush=True)  # noqa: T201 - the protocol


if __name__ == "__main__":
    main()
