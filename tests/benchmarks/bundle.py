"""Bundles for the benchmarks, written by code: as many tools and budgets as a measure wants."""

from pathlib import Path
from typing import Any, Literal

import yaml

AGENT_KEY = "bench-agent-key"
AUDITOR_KEY = "bench-auditor-key"
SUBJECTS = 64
"""More than there are callers, so that each has its own."""
MODULE = "tests.benchmarks.tools"

_POLICY = """\
package policies.bench

import rego.v1

allow contains "READ_ONLY_ALLOWED" if {
\tinput.tool.risk == "read"
\tinput.tool.name != "refused"
}
"""


def write_bundle(
    folder: Path, *, tools: int = 10, budgets: int = 0, per: Literal["tenant", "subject"] = "subject", facts: Literal["all", "none"] = "all"
) -> Path:
    """A bundle with `tools` read tools (the first two are `noop` and `refused`) and `budgets` that each call draws on."""
    names = ["noop", "refused", *(f"other_{number:04}" for number in range(2, tools))]
    files: dict[str, Any] = {
        "bundle.yaml": {"name": "bench"},
        "workflows.yaml": {"bench": {"tools": names, "max_risk": "read"}},
        "principals.yaml": {
            "agents": {"bench": {"workflows": ["bench"], "permissions": ["bench:read"], "act_for": "*"}},
            "subjects": {f"subject-{number}": {"permissions": ["bench:read"]} for number in range(SUBJECTS)},
        },
        "budgets.yaml": [
            {"name": f"budget_{number:02}", "per": [per], "unit": "calls", "limit": 1_000_000_000} for number in range(budgets)
        ],
    }
    files |= {f"tools/{name}.yaml": _tool(name, facts) for name in names}
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(yaml.safe_dump(content, sort_keys=False))
    (folder / "rego").mkdir()
    (folder / "rego" / "bench.rego").write_text(_POLICY)
    return folder


def write_config(path: Path) -> Path:
    """The operator's side: two keys, and the module of the tools."""
    keys = [
        {"secret": {"env": "BENCH_AGENT_KEY"}, "roles": ["agent"], "agent": "bench"},
        {"secret": {"env": "BENCH_AUDITOR_KEY"}, "roles": ["auditor"], "name": "bench-auditor"},
    ]
    path.write_text(yaml.safe_dump({"keys": keys, "python_modules": [MODULE]}))
    return path


def _tool(name: str, facts: str) -> dict[str, Any]:
    return {
        "name": name,
        "title": "Do nothing",
        "description": "Does nothing and says so.",
        "risk": "read",
        "permissions": ["bench:read"],
        "parameters": {
            "type": "object",
            "additionalProperties": False,
            "required": ["n", "city"],
            "properties": {"n": {"type": "integer"}, "city": {"type": "string"}},
        },
        "facts": facts,
        "execute": {"python": f"{MODULE}:do_nothing"},
    }
