"""An outside referee: PyPI's `agentbarrier`, in its own environment, judges a running gateway through a small adapter."""

import asyncio
import json
import os
import socket
import sys
import venv
from pathlib import Path
from subprocess import run
from typing import Any

import pytest
import yaml

from tests.acceptance.conftest import serving
from tests.conftest import ROOT, temporary_data_dir

HOME = ROOT / ".tools" / "agentbarrier"
LOCK = ROOT / "requirements" / "agentbarrier.lock"
INSTALL_S = 120
TOOL_TIMEOUT_S = 1.0
REFEREE_S = 90

PASSING = (
    "approval_hold", "rejection", "argument_binding", "replay", "outcome_ambiguity", "outcome_reconciliation", "cancellation", "timeout",
    "parallel_barrier", "delegation", "audit_receipts",
)  # fmt: skip

KEYS = {role: f"referee-{role}-key" for role in ("agent", "approver", "auditor", "operator")}

TOOL = {
    "name": "sentinel_write",
    "title": "The referee's effect",
    "description": "Performs the referee's harmless effect once.",
    "risk": "write",
    "permissions": ["sentinel:write"],
    "parameters": {
        "type": "object",
        "additionalProperties": False,
        "required": ["actionId", "recipient", "amount"],
        "properties": {"actionId": {"type": "string"}, "recipient": {"type": "string"}, "amount": {"type": "integer"}},
    },
    "timeout": f"{TOOL_TIMEOUT_S:g}s",
    "replay": "never",
    "idempotency": "caller",
    "execute": {"http": {"connection": "referee", "method": "POST", "path": "/effects", "body": {"json": "args"}}},
}
BUNDLE: dict[str, Any] = {
    "bundle.yaml": {"name": "refereed"},
    "tools/sentinel_write.yaml": TOOL,
    "workflows.yaml": {
        "refereed": {
            "tools": ["sentinel_write"],
            "max_risk": "write",
            "confirmation": {"rule": "other", "permission": "sentinel:approve", "valid_for": "1m"},
        }
    },
    "principals.yaml": {
        "agents": {"referee": {"workflows": ["refereed"], "permissions": ["sentinel:write"], "act_for": ["ada"]}},
        "subjects": {"ada": {"permissions": ["sentinel:write"]}},
        "persons": {"reviewer": {"permissions": ["sentinel:approve"]}},
    },
    "budgets.yaml": [],
}
POLICY = """package policies.refereed

import rego.v1

allow contains "POLICY_ALLOWED" if input.context.gated == "no"

confirm contains "APPROVAL_REQUIRED" if input.context.gated == "yes"
"""


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Any]:
    """Scenario -> the referee's finding, from one run of it against one gateway."""
    _make_environment()
    with temporary_data_dir() as folder:
        asyncio.run(_referee(folder))
        found = json.loads((folder / "verdict.json").read_text())
    return {result["id"]: result for result in found["results"]}


@pytest.mark.parametrize("scenario", PASSING)
def test_the_referee_passes(verdicts: dict[str, Any], scenario: str):
    result = verdicts[scenario]
    assert result["status"] == "passed", result.get("finding") or result.get("detail")


def test_every_scenario_of_the_referee_is_judged(verdicts: dict[str, Any]):
    assert set(verdicts) == set(PASSING)


def _make_environment() -> None:
    """`make referee`, done here where it was not; without it the tests skip, except in CI."""
    if (HOME / "bin" / "agentbarrier").exists():
        return
    try:
        venv.create(HOME, with_pip=True)
        install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", str(LOCK))
        run([str(HOME / "bin" / "python"), *install], check=True, capture_output=True, timeout=INSTALL_S)
    except (OSError, ValueError) as error:
        _do_without(type(error).__name__)
    except Exception as error:  # noqa: BLE001 - whatever pip died of, the reason is told
        _do_without(getattr(error, "stderr", b"").decode(errors="replace").strip()[-500:] or type(error).__name__)


def _do_without(reason: str) -> None:
    told = f"the referee's environment cannot be made (make referee): {reason}"
    if os.environ.get("CI") == "true":
        pytest.fail(told)
    pytest.skip(told)


async def _referee(folder: Path) -> None:
    """One verdict of the real referee on a real gateway, in verdict.json; the tool service listens before the gateway starts."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        bundle, config = _write_files(folder, origin=f"http://127.0.0.1:{listening.getsockname()[1]}")
        arguments = ("--bundle", str(bundle), "--port", "0", "--data-dir", str(folder / "data"), "--config", str(config))
        keys = {f"REFEREE_{role.upper()}_KEY": secret for role, secret in KEYS.items()}
        async with serving(*arguments, **keys) as (_, ready):
            settings = {
                "REFEREE_GATEWAY": ready["url"],
                "REFEREE_TOOL_SOCKET": str(listening.fileno()),
                "REFEREE_TOOL_TIMEOUT": str(TOOL_TIMEOUT_S),
                "PYTHONPATH": str(Path(__file__).parent),
            }
            await _verify(folder / "verdict.json", listening, keys | settings)


async def _verify(verdict: Path, listening: socket.socket, environment: dict[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        str(HOME / "bin" / "agentbarrier"), "verify", "agentbarrier_adapter:GatewayAdapter", "--approval-profile", "per-action",
        "--tool-timeout", str(TOOL_TIMEOUT_S), "--operation-timeout", "15", "--color", "never", "--json", str(verdict),
        pass_fds=(listening.fileno(),), env=dict(os.environ) | environment,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        said, _ = await asyncio.wait_for(process.communicate(), REFEREE_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    sys.stdout.write(said.decode(errors="replace"))


def _write_files(folder: Path, *, origin: str) -> tuple[Path, Path]:
    bundle, config = folder / "bundle", folder / "gateway.yaml"
    for path, content in BUNDLE.items():
        (bundle / path).parent.mkdir(parents=True, exist_ok=True)
        (bundle / path).write_text(yaml.safe_dump(content, sort_keys=False))
    (bundle / "rego").mkdir()
    (bundle / "rego" / "refereed.rego").write_text(POLICY)
    names = {"agent": {"agent": "referee"}, "approver": {"person": "reviewer"}}
    keys = [{"secret": {"env": f"REFEREE_{role.upper()}_KEY"}, "roles": [role]} | names.get(role, {"name": role}) for role in KEYS]
    config.write_text(yaml.safe_dump({"keys": keys, "connections": {"referee": {"origin": origin, "internal": True}}}))
    return bundle, config
