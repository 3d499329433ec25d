"""Pages of docs/ that are generated from code. ``make docs`` writes them; tests hold them equal."""

import json
from collections.abc import Callable
from pathlib import Path

from gateway.api.openapi import describe
from gateway.bundle.finding_codes import write_findings_page
from gateway.domain.policy_input import write_input_schema
from gateway.domain.reasons import ReasonCode

DOCS = Path(__file__).resolve().parent.parent / "docs"


def reason_codes_page() -> str:
    """``docs/reason-codes.md``."""
    lines = [
        "# Reason codes",
        "",
        "Generated from `gateway/domain/reasons.py` by `make docs`. Codes are never renamed.",
        "A code without a status allows; the result of an allowed call carries an outcome code.",
        "",
        "| code | status | told to the model |",
        "|---|---|---|",
    ]
    lines += [f"| `{code}` | {f'`{code.status}`' if code.status else 'allow'} | {code.message} |" for code in ReasonCode]
    return "\n".join(lines) + "\n"


def openapi_page() -> str:
    """``docs/openapi.json``."""
    return json.dumps(describe(), indent=2, sort_keys=True) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "findings.md": write_findings_page,
    "openapi.json": openapi_page,
    "policy-input.schema.json": write_input_schema,
    "reason-codes.md": reason_codes_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
