"""Twelve kinds of tampering at random places of a prepared log: all are found, and the untouched log is never accused."""

import asyncio
import base64
import hashlib
import json
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest

from gateway.domain.record import FIELDS, leaf_hash
from gateway.evidence import verify as verifier
from gateway.evidence.export import export_outcome, manifest, proof_lines
from gateway.evidence.note import Checkpoint, Signer
from gateway.evidence.tree import Tree, fold_level, nodes_between
from gateway.evidence.vault import Vault
from gateway.ledger.audit import StoredLogCheck

ORIGIN = "tool-gateway/test/default"
SIGNED_AT = (40, 97, 160, 240)
SIZE = SIGNED_AT[-1]
CASES = 504
OWN = 200
"""Position of the export's own record."""

SIGNER = Signer(os.urandom(32))
KEY = SIGNER.public_key(ORIGIN).text()
VAULT = Vault(os.urandom(32))

Row = dict[str, Any]


@dataclass
class Stored:
    """What somebody with all rights on the database can change, and the notes that lie outside of it."""

    rows: list[Row] = field(default_factory=list[Row])
    payloads: list[Row] = field(default_factory=list[Row])
    keys: list[Row] = field(default_factory=list[Row])
    head: int = 0
    notes: list[str] = field(default_factory=list[str])


def make_log() -> Stored:
    """A log of records with payloads, an erasure and an export in it."""
    stored = Stored(head=SIZE)
    key, wrapped = VAULT.make_key(b"ada")
    gone, _ = VAULT.make_key(b"bob")
    stored.keys = [{"key_id": key.key_id, "wrapped": wrapped}, {"key_id": gone.key_id, "wrapped": None}]
    tree = Tree()
    for position in range(SIZE):
        facts: dict[str, Any] = {"kind": "decision", "agent": f"agent-{position % 3}", "effect": "allow", "reason_code": "POLICY_ALLOWED"}
        decision_id = str(uuid4())
        if position % 4 == 1:
            used = key if position % 8 == 1 else gone
            sealed = used.seal(b"{}", b"")
            digest = f"sha256:{hashlib.sha256(sealed).hexdigest()}"
            facts["links"] = [{"rel": "payload", "kind": "arguments", "digest": digest, "key": used.key_id.hex()}]
            stored.payloads.append({"decision_id": decision_id, "kind": "arguments", "body": sealed, "key_id": used.key_id})
        if position == 150:
            facts = {"kind": "redaction", "outcome": {"action": "erased_subject", "keys": [gone.key_id.hex()]}}
        if position == OWN:
            facts = {"kind": "export", "outcome": outcome_of(stored.rows)}
        stored.rows.append(make_row(position, decision_id, facts))
        list(tree.push([stored.rows[-1]["leaf"]]))
        if tree.size in SIGNED_AT:
            stored.notes.append(SIGNER.sign(Checkpoint(origin=ORIGIN, size=tree.size, root=tree.root())))
    return stored


def make_row(position: int, decision_id: str, facts: dict[str, Any]) -> Row:
    at = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=position)
    told = {"decision_id": decision_id, "position": position, "at": at.isoformat(timespec="microseconds").replace("+00:00", "Z")}
    empty: dict[str, Any] = dict.fromkeys(FIELDS)
    document = empty | {"links": list[Any](), "tenant": "default", "schema_version": "1.0"} | facts | told
    body = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
    columns = {
        name: document.get(name) for name in ("kind", "agent", "subject", "run_id", "workflow", "tool", "effect", "reason_code", "status")
    }
    return columns | {"position": position, "decision_id": decision_id, "at": at, "about": None, "body": body, "leaf": leaf_hash(body)}


def chosen(rows: list[Row]) -> list[Row]:
    """The records that the export of agent-1 has."""
    return [row for row in rows if row["agent"] == "agent-1"]


def outcome_of(rows: list[Row]) -> dict[str, Any]:
    picked = chosen(rows)
    text = b"".join(row["body"] + b"\n" for row in picked)
    first, last = picked[0]["position"], picked[-1]["position"]
    query = {"q": "agent:agent-1", "after": None, "before": None}
    return export_outcome(query=query, count=len(picked), first_position=first, last_position=last, sha256=hashlib.sha256(text).hexdigest())


def write_export(folder: Path, stored: Stored) -> None:
    """The export as the gateway would have written it."""

    async def around(begin: int, positions: Iterable[int], behind: int) -> AsyncIterator[tuple[int, int, bytes]]:
        for position in (*positions, behind):
            for height, number in nodes_between(begin, position):
                yield number << height, height, fold_level([row["leaf"] for row in stored.rows[number << height : (number + 1) << height]])
            begin = position + 1

    async def lines() -> bytes:
        picked = [(row["position"], row["leaf"]) for row in chosen(stored.rows[:OWN])]
        return b"".join([line async for line in proof_lines(around, picked, (OWN, stored.rows[OWN]["leaf"]), SIZE)])

    proof = asyncio.run(lines())
    own = stored.rows[OWN]["body"]
    told = manifest(
        orjson.loads(own)["outcome"],
        file="records.ndjson",
        export_record=own,
        proof_sha256=hashlib.sha256(proof).hexdigest(),
        made_by="test",
    )
    folder.mkdir()
    (folder / "records.ndjson").write_bytes(b"".join(row["body"] + b"\n" for row in chosen(stored.rows[:OWN])))
    (folder / "proof").write_bytes(proof)
    (folder / "manifest.json").write_text(json.dumps(told))
    (folder / "checkpoint").write_text(stored.notes[-1])


def check_stored(stored: Stored) -> int:
    """The exit code of the check of a database with these rows."""
    try:
        key = verifier.read_key(KEY)
        checkpoints = [verifier.read_note(note, key) for note in stored.notes]
        redactions = [row for row in stored.rows if row["kind"] == "redaction"]
        check = StoredLogCheck(checkpoints, redactions, stored.keys)
        for begin in range(0, len(stored.rows), 64):
            check.take(stored.rows[begin : begin + 64], stored.payloads)
        check.finish(stored.head).finish(checkpoints[-1])
    except verifier.Broken:
        return verifier.BROKEN
    except verifier.Uncheckable:
        return verifier.UNCHECKABLE
    return verifier.VERIFIED


def moved(row: Row, position: int) -> Row:
    """A record rewritten to say that it stands elsewhere, with a leaf that fits."""
    body = row["body"].replace(b'"position":%d,' % row["position"], b'"position":%d,' % position)
    return row | {"position": position, "body": body, "leaf": leaf_hash(body)}


def renumbered(rows: list[Row]) -> list[Row]:
    return [moved(row, position) for position, row in enumerate(rows)]


def change(stored: Stored, dice: random.Random) -> None:
    place = dice.randrange(SIZE)
    row = stored.rows[place]
    body = row["body"].replace(b'"tenant":"default"', b'"tenant":"defauit"') if dice.random() < 0.5 else flipped(row["body"], dice)
    stored.rows[place] = row | {"body": body} | ({"leaf": leaf_hash(body)} if dice.random() < 0.7 else {})


def delete(stored: Stored, dice: random.Random) -> None:
    del stored.rows[dice.randrange(SIZE)]
    if dice.random() < 0.7:
        stored.rows, stored.head = renumbered(stored.rows), SIZE - 1


def insert(stored: Stored, dice: random.Random) -> None:
    place = dice.randrange(SIZE)
    stored.rows.insert(place, make_row(place, str(uuid4()), {"kind": "decision", "agent": "agent-1", "effect": "allow"}))
    stored.rows, stored.head = renumbered(stored.rows), SIZE + 1


def reorder(stored: Stored, dice: random.Random) -> None:
    first, second = dice.sample(range(SIZE), 2)
    stored.rows.insert(second, stored.rows.pop(first))
    stored.rows = renumbered(stored.rows)


def truncate(stored: Stored, dice: random.Random) -> None:
    stored.head = dice.randrange(SIZE)
    del stored.rows[stored.head :]


def swap(stored: Stored, dice: random.Random) -> None:
    first, second = dice.sample(range(SIZE), 2)
    one, other = stored.rows[first], stored.rows[second]
    is_clever = dice.random() < 0.7
    stored.rows[first] = moved(other, first) if is_clever else other
    stored.rows[second] = moved(one, second) if is_clever else one


def roll_back(stored: Stored, dice: random.Random) -> None:
    truncate(stored, dice)
    if dice.random() < 0.7:  # and life goes on from there
        stored.rows += [
            make_row(position, str(uuid4()), {"kind": "decision", "effect": "deny"}) for position in range(stored.head, SIZE + 5)
        ]
        stored.head = SIZE + 5


def edit_payload(stored: Stored, dice: random.Random) -> None:
    place = dice.randrange(len(stored.payloads))
    if dice.random() < 0.3:
        del stored.payloads[place]
    else:
        stored.payloads[place] |= {"body": flipped(stored.payloads[place]["body"], dice)}


def edit_keys(stored: Stored, dice: random.Random) -> None:
    match dice.randrange(4):
        case 0:
            stored.keys[0] |= {"wrapped": None}
        case 1:
            del stored.keys[0]
        case 2:
            stored.keys[0] |= {"wrapped": flipped(stored.keys[0]["wrapped"], dice)}
        case _:
            wrapped = flipped(stored.keys[0]["wrapped"], dice)
            stored.keys[0] = {"wrapped": wrapped, "key_id": hashlib.sha256(wrapped).digest()}


def forge_checkpoint(stored: Stored, dice: random.Random) -> None:
    place = dice.randrange(len(stored.notes))
    if dice.random() < 0.5:
        text, _, signature = stored.notes[place].partition("\n\n")
        stored.notes[place] = text.replace(f"\n{SIGNED_AT[place]}\n", f"\n{SIGNED_AT[place] - 1}\n") + "\n\n" + signature
    else:
        other = Signer(bytes(dice.randbytes(32)))
        stored.notes[place] = other.sign(Checkpoint(origin=ORIGIN, size=SIGNED_AT[place], root=bytes(32)))


def flipped(body: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(body))
    return body[:place] + bytes([body[place] ^ (1 << dice.randrange(8))]) + body[place + 1 :]


IN_DATABASE: tuple[Callable[[Stored, random.Random], None], ...] = (
    change, delete, insert, reorder, truncate, swap, roll_back, edit_payload, edit_keys, forge_checkpoint,
)  # fmt: skip


def cherry_pick(folder: Path, stored: Stored, dice: random.Random) -> str:
    """Leave a record out, cleverly: its leaf as a node, every digest and count of the manifest made to fit."""
    lines = (folder / "records.ndjson").read_bytes().splitlines(keepends=True)
    place = dice.randrange(len(lines))
    position: int = orjson.loads(lines.pop(place))["position"]
    records = b"".join(lines)
    proof = (folder / "proof").read_text().splitlines(keepends=True)
    leaf = base64.b64encode(stored.rows[position]["leaf"]).decode()
    proof = [f"node {position} 0 {leaf}\n" if line.startswith(f"record {position} ") else line for line in proof]
    told = json.loads((folder / "manifest.json").read_text())
    first, last = orjson.loads(lines[0])["position"], orjson.loads(lines[-1])["position"]
    told |= {"count": len(lines), "first_position": first, "last_position": last}
    told["records"]["sha256"] = hashlib.sha256(records).hexdigest()
    told["proof"]["sha256"] = hashlib.sha256("".join(proof).encode()).hexdigest()
    if dice.random() < 0.5:  # and the export's own record rewritten
        own = orjson.loads(told["export_record"])
        own["outcome"] |= {"count": len(lines), "first_position": first, "last_position": last, "sha256": told["records"]["sha256"]}
        told["export_record"] = orjson.dumps(own, option=orjson.OPT_SORT_KEYS).decode()
    (folder / "records.ndjson").write_bytes(records)
    (folder / "proof").write_text("".join(proof))
    (folder / "manifest.json").write_text(json.dumps(told))
    return ""


def replay_export(folder: Path, stored: Stored, dice: random.Random) -> str:
    """An old export in place of the one that was asked for: under a new query, or whole, to somebody who knows a later checkpoint."""
    if dice.random() < 0.5:
        told = json.loads((folder / "manifest.json").read_text())
        told["query"]["q"] = f"agent:agent-{dice.choice('02')}"
        (folder / "manifest.json").write_text(json.dumps(told))
        return ""
    later = SIZE + dice.randrange(1, 50)
    return SIGNER.sign(Checkpoint(origin=ORIGIN, size=later, root=stored.rows[0]["leaf"]))


IN_EXPORT: tuple[Callable[[Path, Stored, random.Random], str], ...] = (cherry_pick, replay_export)


@pytest.fixture(scope="module")
def prepared() -> Stored:
    return make_log()


def test_the_untouched_log_and_its_export_are_verified(prepared: Stored, tmp_path: Path):
    assert check_stored(prepared) == verifier.VERIFIED
    write_export(tmp_path / "export", prepared)
    code, found = verifier.verify(tmp_path / "export", KEY, prepared.notes[1])
    assert (code, found.get("records")) == (verifier.VERIFIED, len(chosen(prepared.rows[:OWN]))), found


def test_every_tampering_is_found(prepared: Stored, tmp_path: Path):
    seen: Counter[str] = Counter()
    for number in range(CASES):
        dice = random.Random(number)  # noqa: S311 - the seed names the case
        place = number % 12
        if place < len(IN_DATABASE):
            stored, kind = deepcopy(prepared), IN_DATABASE[place].__name__
            IN_DATABASE[place](stored, dice)
            code = check_stored(stored)
        else:
            folder, tamper = tmp_path / f"export-{number}", IN_EXPORT[place - len(IN_DATABASE)]
            kind = tamper.__name__
            write_export(folder, prepared)
            known = tamper(folder, prepared, dice)
            code, _ = verifier.verify(folder, KEY, known)
        assert code in {verifier.BROKEN, verifier.UNCHECKABLE}, f"{kind}, seed {number}: not found"
        seen[kind] += 1
    assert len(seen) == 12
    assert set(seen.values()) == {CASES // 12}


def test_nothing_is_never_green(tmp_path: Path):
    empty = Stored(notes=[SIGNER.sign(Checkpoint(origin=ORIGIN, size=0, root=verifier.Tree().root()))])
    assert check_stored(empty) == verifier.UNCHECKABLE
    (tmp_path / "export").mkdir()
    assert verifier.verify(tmp_path / "export", KEY)[0] == verifier.UNCHECKABLE
