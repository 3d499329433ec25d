"""The API description is true: schemathesis finds no answer that it does not describe, and no 5xx."""

import asyncio
import re
import sys
from pathlib import Path

from tests.acceptance.conftest import serving
from tests.conftest import ROOT
from tests.generated import openapi_page

CASES = 1_000

# The one check that is left out: a description cannot say that a key may stand in the header or in the call but not in
# both, or that a cursor must come from the list before.
CONFIGURATION = """
headers = { Authorization = "Bearer dev-agent-key" }
checks.positive_data_acceptance.enabled = false

[[operations]]
include-path-regex = "^/v1/decisions"
headers = { Authorization = "Bearer dev-auditor-key" }

[[operations]]
include-path-regex = "^/v1/runs/.*/timeline$"
headers = { Authorization = "Bearer dev-auditor-key" }

# An answer without an end.
[[operations]]
include-path = "/v1/decisions/tail"
enabled = false

# It would wait up to a minute for each pending approval that a link leads to.
[[operations]]
include-name = "GET /v1/calls/{decision_id}"
parameters = { wait = 0 }

[[operations]]
include-path-regex = "^/v1/(budgets|controls|keys)|/resolve$"
headers = { Authorization = "Bearer dev-operator-key" }

[[operations]]
include-name = "GET /v1/calls"
headers = { Authorization = "Bearer dev-operator-key" }

[[operations]]
include-path-regex = "^/v1/approvals"
headers = { Authorization = "Bearer dev-approver-key" }

[[operations]]
include-path-regex = "^/v1/log/checkpoint$"
headers = { Authorization = "Bearer dev-auditor-key" }

[[operations]]
include-path-regex = "^/v1/(evaluations|bundles|policy)"
headers = { Authorization = "Bearer dev-author-key" }
"""


def test_the_description_in_docs_is_up_to_date():
    assert (ROOT / "docs" / "openapi.json").read_text() == openapi_page(), "run: make docs"


async def test_schemathesis_finds_nothing_in_a_thousand_cases(travel_bundle: Path, data_dir: Path, tmp_path: Path):
    configuration = tmp_path / "schemathesis.toml"
    configuration.write_text(CONFIGURATION)
    async with serving("--dev", "--bundle", str(travel_bundle), "--port", "0", "--data-dir", str(data_dir)) as (_, ready):
        process = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("schemathesis"), "--config-file", str(configuration),
            "run", ready["url"] + "/openapi.json", "--max-examples", "90", "--seed", "20261130",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=tmp_path,
        )  # fmt: skip
        output, _ = await asyncio.wait_for(process.communicate(), 600)
    text = output.decode()
    generated = re.search(r"(\d+) generated", text)
    assert process.returncode == 0, text
    assert generated is not None
    assert int(generated[1]) >= CASES, text
