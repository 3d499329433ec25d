"""Every construct: equal in both engines on every input, or kept away by ``gateway check``."""

from collections.abc import AsyncGenerator

import jsonschema_rs
import orjson
import pytest

from gateway.domain.policy_input import CANARY
from gateway.policy.analysis import analyse
from gateway.policy.checks.names import DeclaredNames
from gateway.policy.checks.shapes import InputShapes
from gateway.policy.modules import assemble
from tests.parity.engines import Pair, open_pair
from tests.parity.rows import ARGUMENTS, DATA, INPUTS, ROWS, SCHEMA, Row

SURROUNDINGS = [
    {},
    {
        "approval": {"id": "1", "state": "granted", "rule": "self", "valid": True, "expires_at": "2026-03-01T10:00:00Z"},
        "cost": {"usd": 5_000_000},
    },
    {
        "run": {
            "id": "r",
            "calls": 3,
            "failures": 1,
            "history": [{"tool": "row_0", "status": "ok", "reason_code": None, "at": "2026-03-01T10:00:00Z"}],
        },
        "subject": {"name": "ada", "permissions": ["x", "y"], "attributes": {"tier": "gold", "hours": [7, 22]}},
        "cost": {"usd": 11_000_000},
    },
]


SHAPES = InputShapes(
    arguments=[SCHEMA],
    contexts=[{"type": "object", "additionalProperties": {"type": "string"}}],
    attributes=[{"tier": "gold", "hours": [7, 22]}],
)
_GROUP = 15
"""Rows that are loaded together: with all at once each decision would take as long as all of them."""


def module_of(number: int, row: Row) -> str:
    beside = row.beside.replace("{ROW}", f"row_{number}")
    gate = f'input.tool.name == "row_{number}"'
    rule = f'allow contains "POLICY_ALLOWED" if {{\n\t{gate}\n\t{row.body}\n}}\n'
    return f"package policies.parity.row_{number}\n\nimport future.keywords.not\n\n{rule}\n{beside}\n"


def file_of(number: int, row: Row) -> str:
    return f"rego/row_{number}_test.rego" if "test_" in row.beside else f"rego/row_{number}.rego"


def errors_of(modules: dict[str, str]) -> dict[str, set[str]]:
    """The findings that stop activation, by file."""
    names = DeclaredNames(tools=frozenset(f"row_{number}" for number in range(len(ROWS))), attributes=frozenset({"tier", "hours"}))
    found: dict[str, set[str]] = {}
    for finding in analyse(modules, DATA, argument_names=ARGUMENTS, own_codes={}, declared=names, shapes=SHAPES):
        if finding.severity == "error":
            found.setdefault(finding.file, set()).add(finding.code)
    return found


@pytest.fixture
async def pair() -> AsyncGenerator[Pair]:
    async with open_pair() as opened:
        yield opened


def test_the_check_keeps_away_exactly_what_is_said_here() -> None:
    plain = {file_of(n, row): module_of(n, row) for n, row in enumerate(ROWS) if row.refused is None}
    assert errors_of(plain) == {}
    told = {n: row for n, row in enumerate(ROWS) if row.refused is not None}
    missed = [
        row.body
        for n, row in told.items()
        if row.refused not in errors_of({file_of(n, row): module_of(n, row)}).get(file_of(n, row), set())
    ]
    assert missed == []


async def test_everything_else_is_equal_on_every_input(pair: Pair) -> None:
    numbered = [(number, row) for number, row in enumerate(ROWS) if row.refused is None]
    different: list[object] = []
    asked = 0
    for start in range(0, len(numbered), _GROUP):
        group = numbered[start : start + _GROUP]
        revision = f"sha256:rows-{start}"
        await pair.load(assemble({file_of(n, row): module_of(n, row) for n, row in group}, DATA, revision))
        questions = [(row, document) for number, row in group for document in documents_for(number, row)]
        answers = await pair.compare(revision, [document for _, document in questions])
        different += [
            (row.body, document, ours, theirs) for (row, document), (ours, theirs) in zip(questions, answers, strict=True) if ours != theirs
        ]
        asked += len(questions)
    assert different == []
    assert asked > 5_000


def documents_for(number: int, row: Row) -> list[bytes]:
    """The inputs of a row, in more than one situation where it looks at that."""
    base = orjson.loads(CANARY)
    base["tool"]["name"] = f"row_{number}"
    looks = any(part in row.body + row.beside for part in ("input.approval", "input.cost", "input.run", "input.subject"))
    situations = SURROUNDINGS if looks else SURROUNDINGS[:1]
    return [orjson.dumps(base | {"args": args} | more) for args in FITTING for more in situations]


_FITS = jsonschema_rs.validator_for(SCHEMA)
FITTING = [args for args in INPUTS if _FITS.is_valid(args)]
