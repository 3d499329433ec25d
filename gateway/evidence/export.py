"""The files of an export that make it evidence: its proof and its manifest. `verify.py` reads them; docs/audit.md tells how.

How an export is made:
1. read the records that the query finds, in order of position, and write `records.ndjson` (each line the exact stored
   bytes) or `records.csv` (columns by `verify.cell_of`, the last one, `record`, with the exact stored text);
2. append a record of kind `export` whose outcome is `export_outcome(…)`;
3. wait until a checkpoint covers that record; write it as `checkpoint`;
4. write `proof` with `proof_lines`, `manifest.json` with `manifest`, and a copy of `verify.py`.
"""

import base64
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from importlib import resources
from typing import Any

from gateway.evidence.verify import EXPORT_FORMAT, PROOF_FORMAT

LINES_AT_ONCE = 500
NOTED_BYTES = 12
"""How much of a leaf the proof notes beside a record: enough to find the one that was changed."""

Around = Callable[[int, Iterable[int], int], AsyncIterator[tuple[int, int, bytes]]]
"""The subtrees (position, height, root) from the first number up to before the last one, but for the positions between."""


def export_outcome(*, query: Mapping[str, Any], count: int, first_position: int, last_position: int, sha256: str) -> dict[str, Any]:
    """What the record of an export says, as its `outcome`: `sha256` is of the file of records, in hex."""
    return {"query": dict(query), "count": count, "first_position": first_position, "last_position": last_position, "sha256": sha256}


def manifest(outcome: Mapping[str, Any], *, file: str, export_record: bytes, proof_sha256: str, **more: Any) -> dict[str, Any]:
    """`manifest.json`: `outcome` as it was recorded, the record's exact bytes, and whatever else helps a reader."""
    told = {name: outcome[name] for name in ("query", "count", "first_position", "last_position")}
    files = {"records": {"file": file, "sha256": outcome["sha256"]}, "proof": {"file": "proof", "sha256": proof_sha256}}
    return {"format": EXPORT_FORMAT} | told | files | {"export_record": export_record.decode()} | more


async def proof_lines(around: Around, records: Iterable[tuple[int, bytes]], own: tuple[int, bytes], size: int) -> AsyncIterator[bytes]:
    """The lines of `proof` for `records` (position, leaf; positions rise) and the export's own record, under `size` records."""
    yield f"{PROOF_FORMAT}\n".encode()
    begin = 0
    lines: list[tuple[int, bytes]] = []
    for position, leaf, what in _with_own(records, own):
        lines.append((position, _line(what, position, leaf[:NOTED_BYTES])))
        if len(lines) == LINES_AT_ONCE:
            for line in await _filled(around, begin, lines, position + 1):
                yield line
            begin, lines = position + 1, []
    for line in await _filled(around, begin, lines, size):
        yield line


def read_verifier() -> str:
    """The text of `verify.py`, as every export carries it."""
    return resources.files("gateway.evidence").joinpath("verify.py").read_text(encoding="utf-8")


async def _filled(around: Around, begin: int, lines: list[tuple[int, bytes]], behind: int) -> list[bytes]:
    nodes = around(begin, [position for position, _ in lines], behind)
    between = [(position, _line("node", f"{position} {height}", root)) async for position, height, root in nodes]
    return [line for _, line in sorted(between + lines)]


def _with_own(records: Iterable[tuple[int, bytes]], own: tuple[int, bytes]) -> Iterable[tuple[int, bytes, str]]:
    last = -1
    for position, leaf in records:
        if last < own[0] < position:
            yield *own, "export"
        yield position, leaf, "record"
        last = position
    if own[0] > last:
        yield *own, "export"


def _line(what: str, place: int | str, found: bytes) -> bytes:
    return f"{what} {place} {base64.b64encode(found).decode()}\n".encode()
