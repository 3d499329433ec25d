"""Checks a decision log, or a part of it, against checkpoints that the log signed. Needs Python 3.9 or newer, nothing else.

    python3 verify.py EXPORT --pubkey KEYFILE [--known CHECKPOINTS]

EXPORT is the folder of an export, or the file of one record's proof. KEYFILE holds the log's public key, one line, which you
got from the operator by another way than the export. CHECKPOINTS holds checkpoints that you kept from earlier looks.

Exit codes: 0 verified; 6 broken, with the position where; 7 cannot be checked. Nothing found is never 0.

This file shares no code with the gateway. What it relies on: SHA-256, Ed25519 (RFC 8032), the tree of RFC 6962 section 2,
signed notes (c2sp.org/signed-note) that carry checkpoints (c2sp.org/tlog-checkpoint), and docs/audit.md for the files.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

EXPORT_FORMAT = "agent-tool-gateway/export/1"
PROOF_FORMAT = "agent-tool-gateway/proof/1"
VERIFIED, BROKEN, UNCHECKABLE = 0, 6, 7

LIMITS = (
    "that the gateway wrote down what really happened: it proves that what was written was not changed since",
    "that a record was written at the time it names: clocks are the gateway's",
    "anything about records after the checkpoint: those of the last seconds are not covered yet",
    "that the operator showed everybody the same log: compare the checkpoint with one that somebody else holds (--known)",
    "that an export of a query has every record that the query finds: only an export without a query is complete",
    "anything about payloads: an export has none, and they may have been erased, which changes no record",
)
LIMITS_OF_A_LOG = (
    *LIMITS[:4],
    "anything against who holds both the database and every copy of the checkpoints: keep some of them elsewhere",
)


class Broken(Exception):
    """The evidence contradicts itself or the checkpoint."""

    def __init__(self, why: str, position: int | None = None) -> None:
        super().__init__(why)
        self.why, self.position = why, position


class Uncheckable(Exception):
    """There is not enough to say anything."""


# --- signed notes ------------------------------------------------------------------------------------------------------


class Key(NamedTuple):
    """A log's public key."""

    name: str
    key_id: bytes
    public: bytes


class Checkpoint(NamedTuple):
    """What a log signed: how long it is and what its root is."""

    origin: str
    size: int
    root: bytes


def read_key(text: str) -> Key:
    """A public key, ``name+id+base64``. Raises Uncheckable."""
    try:
        name, key_id, written = text.strip().split("+", 2)
        raw = base64.b64decode(written, validate=True)
        key = Key(name, bytes.fromhex(key_id), raw[1:])
    except ValueError:
        raise Uncheckable("the public key is not of the form name+id+key") from None
    if raw[:1] != b"\x01" or len(key.public) != 32:
        raise Uncheckable("the public key is not an Ed25519 key")
    if hashlib.sha256(name.encode() + b"\n" + raw).digest()[:4] != key.key_id:
        raise Uncheckable("the public key's id does not fit its name and key; was it copied whole?")
    return key


def read_note(note: str, key: Key) -> Checkpoint:
    """The checkpoint in a note that `key` signed. Raises Broken where the signature is wrong, Uncheckable where there is none."""
    text, separator, signatures = note.partition("\n\n")
    if not separator:
        raise Uncheckable("the checkpoint is not a signed note")
    for line in signatures.splitlines():
        words = line.split(" ")
        if len(words) != 3 or words[0] != "\u2014" or words[1] != key.name:
            continue
        try:
            raw = base64.b64decode(words[2], validate=True)
        except ValueError:
            raise Broken("the checkpoint's signature is not base64") from None
        if raw[:4] != key.key_id:
            continue
        if not verify_signature(key.public, f"{text}\n".encode(), raw[4:]):
            raise Broken("the checkpoint's signature is not this key's: it was changed or forged")
        return _read_checkpoint(text, key)
    raise Uncheckable(f"the checkpoint carries no signature by {key.name}")


def _read_checkpoint(text: str, key: Key) -> Checkpoint:
    lines = text.split("\n")
    try:
        origin, size, root = lines[0], int(lines[1]), base64.b64decode(lines[2], validate=True)
    except (ValueError, IndexError):
        raise Broken("the signed text is no checkpoint") from None
    if len(lines) != 3 or len(root) != 32 or size < 0 or lines[1] != str(size):
        raise Broken("the signed text is no checkpoint")
    if origin != key.name:
        raise Broken(f"the checkpoint is of the log {origin}, the key is of {key.name}")
    return Checkpoint(origin, size, root)


def read_notes(text: str) -> list[str]:
    """All notes of a file: one note as it is, or JSON lines with a note each. A line that a crash has cut is left out."""
    if not text.lstrip().startswith("{"):
        return [text] if text.strip() else []
    notes: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            if line.strip():
                notes.append(json.loads(line)["note"])
        except (ValueError, KeyError, TypeError):
            # A writer that died leaves a cut line; the next one began on a line of its own.
            if line.rstrip().endswith("}"):
                raise Broken(f"line {number} of the file of checkpoints is no note") from None
    return notes


# --- Ed25519 (RFC 8032, section 5.1), for machines without the library `cryptography` ------------------------------------

_P = 2**255 - 19
_L = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, _P - 2, _P) % _P
_ROOT_OF_MINUS_1 = pow(2, (_P - 1) // 4, _P)


def verify_signature(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether `signature` is Ed25519's of `message` under `public`."""
    try:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - may be missing
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415 - the same
    except ImportError:
        return verify_signature_slowly(public, message, signature)
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def verify_signature_slowly(public: bytes, message: bytes, signature: bytes) -> bool:
    """As `verify_signature`, in Python alone: a few milliseconds."""
    if len(public) != 32 or len(signature) != 64:
        return False
    a, r = _read_point(public), _read_point(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= _L:
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % _L
    left, right = _times(s, _base()), _add(r, _times(h, a))
    return (left[0] * right[2] - right[0] * left[2]) % _P == 0 and (left[1] * right[2] - right[1] * left[2]) % _P == 0


class _Point(NamedTuple):
    """A point of the curve in extended coordinates."""

    x: int
    y: int
    z: int
    t: int


def _add(p: _Point, q: _Point) -> _Point:
    a, b = (p.y - p.x) * (q.y - q.x) % _P, (p.y + p.x) * (q.y + q.x) % _P
    c, d = 2 * p.t * q.t * _D % _P, 2 * p.z * q.z % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return _Point(e * f % _P, g * h % _P, f * g % _P, e * h % _P)


def _times(scalar: int, point: _Point) -> _Point:
    result = _Point(0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            result = _add(result, point)
        point, scalar = _add(point, point), scalar >> 1
    return result


def _read_point(raw: bytes) -> _Point | None:
    number = int.from_bytes(raw, "little")
    sign, y = number >> 255, number & ((1 << 255) - 1)
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, _P - 2, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT_OF_MINUS_1 % _P
    if (x * x - square) % _P or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = _P - x
    return _Point(x, y, 1, x * y % _P)


def _base() -> _Point:
    point = _read_point((4 * pow(5, _P - 2, _P) % _P).to_bytes(32, "little"))
    assert point is not None  # noqa: S101 - RFC 8032 says so
    return point


# --- the tree (RFC 6962, section 2.1) ----------------------------------------------------------------------------------


def hash_leaf(body: bytes) -> bytes:
    """The leaf of a record: SHA-256(0x00 || its exact bytes)."""
    return hashlib.sha256(b"\x00" + body).digest()


def hash_pair(left: bytes, right: bytes) -> bytes:
    """The node over two: SHA-256(0x01 || left || right)."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class Tree:
    """The tree, built from left to right from leaves and from the roots of whole subtrees."""

    def __init__(self) -> None:
        self.size = 0
        self._stack: list[bytes] = []  # roots of whole subtrees, the largest first

    def add(self, root: bytes, height: int = 0) -> None:
        """Add a subtree of 2^height leaves."""
        if self.size & ((1 << height) - 1):
            raise Broken(f"a subtree of {1 << height} records cannot begin here", self.size)
        self.size += 1 << height
        number = self.size >> height
        stack = self._stack
        while not number & 1:
            root = hash_pair(stack.pop(), root)
            number >>= 1
        stack.append(root)

    def root(self) -> bytes:
        """The root over everything added so far."""
        root = None
        for peak in reversed(self._stack):
            root = peak if root is None else hash_pair(peak, root)
        return root or hashlib.sha256(b"").digest()


def root_from_inclusion(leaf: bytes, position: int, size: int, path: Iterable[bytes]) -> bytes:
    """The root that an audit path leads to (RFC 9162, section 2.1.3.2)."""
    if position >= size:
        raise Broken("the checkpoint does not reach this record", position)
    node, last = position, size - 1
    for step in path:
        if last == 0:
            raise Broken("the path of the proof is too long", position)
        if node & 1 or node == last:
            leaf = hash_pair(step, leaf)
            while node and not node & 1:
                node, last = node >> 1, last >> 1
        else:
            leaf = hash_pair(leaf, step)
        node, last = node >> 1, last >> 1
    if last:
        raise Broken("the path of the proof is too short", position)
    return leaf


# --- a log, record by record -------------------------------------------------------------------------------------------


class LogCheck:
    """Takes the records of a log in order, and compares the tree over them with every checkpoint that it passes."""

    def __init__(self, checkpoints: Iterable[Checkpoint]) -> None:
        self.tree = Tree()
        self.records = 0
        self.confirmed: Checkpoint | None = None  # the longest checkpoint that the records led to
        self.passed_by = 0  # checkpoints that end inside a subtree of which only the root is here
        self._waiting = sorted(checkpoints, key=lambda checkpoint: checkpoint.size, reverse=True)
        self._compare()

    def record(self, body: bytes, noted: bytes = b"") -> None:
        """Take the record at the next position; `noted` is how its leaf begins, as somebody noted."""
        position = self.tree.size
        # Reading a record as JSON takes longer than everything else here; the tree vouches for all of it anyway.
        if b'"position":%d,' % position not in body:
            raise Broken(f"a record that says position {position_of(body)} stands here", position)
        leaf = hash_leaf(body)
        if not leaf.startswith(noted):
            raise Broken("the record is not the one that was noted here: it was changed", position)
        self.records += 1
        self._add(leaf, 0)

    def subtree(self, position: int, height: int, root: bytes) -> None:
        """Take the root over 2^height records that are not here, from `position` on."""
        if position != self.tree.size:
            raise Broken(f"records or hashes are missing up to {position}", self.tree.size)
        if not 0 <= height < 64 or len(root) != 32:
            raise Broken("this is no subtree", position)
        self._add(root, height)

    def finish(self, latest: Checkpoint) -> None:
        """Demand that everything up to the checkpoint `latest` was here and led to its root."""
        if self.tree.size < latest.size:
            why = f"the log ends here, but its checkpoint covers {latest.size} records: it was cut off or rolled back"
            raise Broken(why, self.tree.size)
        if self.confirmed is None or self.confirmed.size < latest.size:
            raise Uncheckable("the records do not end where the checkpoint does")
        if not self.records:
            raise Uncheckable("there are no records")

    def _add(self, root: bytes, height: int) -> None:
        self.tree.add(root, height)
        if self._waiting and self._waiting[-1].size <= self.tree.size:
            self._compare()

    def _compare(self) -> None:
        while self._waiting and self._waiting[-1].size <= self.tree.size:
            checkpoint = self._waiting.pop()
            if checkpoint.size < self.tree.size:
                self.passed_by += 1
            elif checkpoint.root != self.tree.root():
                begin = self.confirmed.size if self.confirmed else 0
                raise Broken(f"the records from position {begin} up to {checkpoint.size - 1} are not those of the checkpoint", begin)
            else:
                self.confirmed = checkpoint


def position_of(body: bytes) -> object:
    """The position that a record says it has, for messages."""
    try:
        return json.loads(body)["position"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "nothing"


# --- exports -----------------------------------------------------------------------------------------------------------


def verify_export(folder: Path, key: Key, known: Sequence[Checkpoint] = ()) -> dict[str, Any]:
    """Check the folder of an export; gives what was verified. Raises Broken, Uncheckable."""
    manifest = _read_manifest(folder)
    checkpoint = read_note(_read_file(folder / "checkpoint"), key)
    _check_newest(checkpoint, known)
    file_name = manifest["records"].get("file")
    if file_name not in {"records.ndjson", "records.csv"}:
        raise Uncheckable("the manifest names no file of records")
    _compare_file(folder / "proof", manifest["proof"])
    own = manifest["export_record"].encode()
    _check_export_record(own, manifest)
    log, digest = LogCheck([checkpoint, *known]), hashlib.sha256()
    with _open(folder / file_name) as file:
        lines = _hashed(file, digest)
        bodies = _csv_bodies(lines) if file_name == "records.csv" else _ndjson_bodies(lines)
        places = _walk(folder, log, bodies, own)
        if next(bodies, None) is not None:
            raise Broken("there are more records than the proof has", log.tree.size)
    log.finish(checkpoint)
    if digest.hexdigest() != manifest["records"].get("sha256"):
        raise Broken(f"{file_name} is not the file that the manifest names")
    if not places.count:
        raise Uncheckable("there are no records")
    if (manifest["count"], manifest["first_position"], manifest["last_position"]) != (places.count, places.first, places.last):
        raise Broken("the manifest tells of other records than there are")
    query = manifest["query"]
    is_complete = not any(query.values())
    if is_complete and (places.first, places.last) != (0, places.count - 1):
        raise Broken("an export without a query has every record from the first on; here are holes")
    told: dict[str, Any] = {"log": checkpoint.origin, "records": places.count, "first_position": places.first, "last_position": places.last}
    told |= {"size": checkpoint.size, "root": base64.b64encode(checkpoint.root).decode(), "query": query}
    return told | {"is_complete": is_complete, "known_compared": len(known) - log.passed_by}


class _Places:
    """Where the records of an export stand."""

    def __init__(self) -> None:
        self.count = 0
        self.first: int | None = None
        self.last: int | None = None

    def add(self, position: int) -> None:
        self.count, self.last = self.count + 1, position
        if self.first is None:
            self.first = position


def _walk(folder: Path, log: LogCheck, bodies: Iterator[bytes], own: bytes) -> _Places:
    """Build the tree from the proof's lines: what is not in the export, and where its records stand."""
    places, has_own = _Places(), False
    with _open(folder / "proof") as proof:
        if proof.readline().rstrip(b"\n") != PROOF_FORMAT.encode():
            raise Uncheckable("the proof is of a format that this program does not know")
        for line in proof:
            words = line.split()
            try:
                what, position = words[0], int(words[1])
                height = int(words[2]) if what == b"node" else 0
                noted = base64.b64decode(words[-1], validate=True)
            except (ValueError, IndexError):
                raise Broken("the proof has a line that is none", log.tree.size) from None
            if what == b"node":
                log.subtree(position, height, noted)
                continue
            if position != log.tree.size or len(noted) < 8 or what not in {b"record", b"export"}:
                raise Broken("the proof has a hole", log.tree.size)
            body = own if what == b"export" else next(bodies, None)
            if body is None:
                raise Broken("a record is missing", position)
            if what == b"record":
                places.add(position)
            has_own = has_own or body == own
            log.record(body, noted)
    if not has_own:
        raise Broken("the record of this export itself is not under the checkpoint")
    return places


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest: Any = json.loads(_read_file(folder / "manifest.json"))
    except ValueError:
        raise Uncheckable("manifest.json is not JSON") from None
    if not isinstance(manifest, dict) or manifest.get("format") != EXPORT_FORMAT:  # pyright: ignore[reportUnknownMemberType]
        raise Uncheckable("manifest.json is of a format that this program does not know")
    wanted = {
        "query": dict,
        "records": dict,
        "proof": dict,
        "export_record": str,
        "count": int,
        "first_position": int,
        "last_position": int,
    }
    for name, kind in wanted.items():
        if not isinstance(manifest.get(name), kind):  # pyright: ignore[reportUnknownMemberType]
            raise Uncheckable(f"manifest.json has no {name}")
    return manifest  # pyright: ignore[reportUnknownVariableType]


def _check_export_record(own: bytes, manifest: Mapping[str, Any]) -> None:
    """The export's own record says what was exported; the manifest may say nothing else."""
    names = ("query", "count", "first_position", "last_position")
    try:
        record = json.loads(own)
        said = {name: record["outcome"][name] for name in (*names, "sha256")}
        kind = record["kind"]
    except (ValueError, KeyError, TypeError):
        raise Broken("the manifest's export_record is no record of an export") from None
    claimed = {name: manifest[name] for name in names} | {"sha256": manifest["records"].get("sha256")}
    if kind != "export" or said != claimed:
        raise Broken("the log says that something else was exported than the manifest does")


def _compare_file(path: Path, told: Mapping[str, Any]) -> None:
    digest = hashlib.sha256()
    with _open(path) as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    if digest.hexdigest() != told.get("sha256"):
        raise Broken(f"{path.name} is not the file that the manifest names")


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError:
        raise Uncheckable(f"there is no readable file {path.name}") from None


def _read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise Uncheckable(f"there is no readable file {path.name}") from None


def _hashed(lines: Iterable[bytes], digest: Any) -> Iterator[bytes]:
    for line in lines:
        digest.update(line)
        yield line


def _ndjson_bodies(lines: Iterable[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield line[:-1] if line.endswith(b"\n") else line


def _csv_bodies(lines: Iterable[bytes]) -> Generator[bytes, None, None]:
    """The column `record` has the exact record; every other column must say what the record says."""
    csv.field_size_limit(1 << 24)
    rows = csv.reader(line.decode("utf-8", "replace") for line in lines)
    header = next(rows, None)
    if not header or header[-1] != "record":
        raise Uncheckable("the last column of records.csv must be `record`")
    for row in rows:
        try:
            document = json.loads(row[-1])
            position = document["position"]
        except (ValueError, KeyError, TypeError, IndexError):
            raise Broken("a row of records.csv has no record") from None
        if row[:-1] != [cell_of(document.get(name)) for name in header[:-1]]:
            raise Broken("the columns say something else than the record", position)
        yield row[-1].encode()


def cell_of(value: object) -> str:
    """A field of a record as a cell of records.csv; what a spreadsheet would take for a formula begins with '."""
    if value is None:
        return ""
    if isinstance(value, (dict, list)):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    text = value if isinstance(value, str) else json.dumps(value)
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r", "\n", "'"} else text


def _check_newest(checkpoint: Checkpoint, known: Iterable[Checkpoint]) -> None:
    for other in known:
        if other.size > checkpoint.size:
            raise Broken(f"you know a checkpoint of {other.size} records, this one has {checkpoint.size}: it is an old one")
        if other.size == checkpoint.size and other.root != checkpoint.root:
            raise Broken(f"you know another checkpoint of {other.size} records: the log showed two faces")


# --- one record --------------------------------------------------------------------------------------------------------


def verify_proof(text: str, key: Key, known: Sequence[Checkpoint] = ()) -> dict[str, Any]:
    """Check one record's proof, the JSON that ``GET /v1/decisions/{id}/proof`` gives. Raises Broken, Uncheckable."""
    try:
        proof = json.loads(text)
        body, position, note, decision_id = proof["record"].encode(), proof["position"], proof["checkpoint"], proof["decision_id"]
        path = [base64.b64decode(step, validate=True) for step in proof["inclusion"]]
        document = json.loads(body)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Uncheckable("this is no proof of a record") from None
    checkpoint = read_note(note, key)
    _check_newest(checkpoint, known)
    if (document.get("position"), document.get("decision_id")) != (position, decision_id):
        raise Broken("the proof is of another record", position)
    if root_from_inclusion(hash_leaf(body), position, checkpoint.size, path) != checkpoint.root:
        raise Broken("the record is not in the log that the checkpoint signs", position)
    told: dict[str, Any] = {
        "log": checkpoint.origin,
        "records": 1,
        "first_position": position,
        "last_position": position,
        "size": checkpoint.size,
    }
    told |= {"root": base64.b64encode(checkpoint.root).decode(), "query": {"decision_id": decision_id}, "is_complete": False}
    return told | {"known_compared": sum(other.size == checkpoint.size for other in known)}


# --- the command -------------------------------------------------------------------------------------------------------


def verify(path: Path, key_text: str, known_text: str = "") -> tuple[int, dict[str, Any]]:
    """Check a folder or a proof; gives the exit code and what to say."""
    try:
        key = read_key(key_text)
        known = [read_note(note, key) for note in read_notes(known_text)]
        found = verify_export(path, key, known) if path.is_dir() else verify_proof(_read_file(path), key, known)
    except Broken as broken:
        return BROKEN, {"result": "broken", "position": broken.position, "why": broken.why}
    except Uncheckable as uncheckable:
        return UNCHECKABLE, {"result": "cannot be checked", "why": str(uncheckable)}
    return VERIFIED, {"result": "verified"} | found | {"does_not_prove": list(LIMITS)}


def describe(code: int, found: Mapping[str, Any]) -> str:
    """The sentences for a person."""
    if code == UNCHECKABLE:
        return f"CANNOT BE CHECKED: {found['why']}"
    if code == BROKEN:
        place = "" if found["position"] is None else f" at position {found['position']}"
        return f"BROKEN{place}: {found['why']}"
    last = found["last_position"]
    lines = [
        f"VERIFIED: {found['records']} records, positions {found['first_position']} to {last}, in the log {found['log']}",
        f"under its checkpoint of {found['size']} records with root {found['root']}.",
        f"The log is complete up to position {last}." if found["is_complete"] else "They are a selection.",
        "This does not prove:",
    ]
    return "\n".join(lines + [f"  - {limit}" for limit in found["does_not_prove"]])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; gives its exit code."""
    parser = argparse.ArgumentParser(description="Check an export of a decision log. Exit code 0 verified, 6 broken, 7 cannot be checked.")
    parser.add_argument("export", type=Path, help="folder of the export, or file with one record's proof")
    parser.add_argument("--pubkey", type=Path, required=True, help="file with the log's public key")
    parser.add_argument("--known", type=Path, help="file with checkpoints that you kept from earlier looks")
    parser.add_argument("--json", action="store_true", help="say it as JSON")
    options = parser.parse_args(arguments)
    try:
        key_text = _read_file(options.pubkey)
        known_text = _read_file(options.known) if options.known else ""
    except Uncheckable as uncheckable:
        code, found = UNCHECKABLE, {"result": "cannot be checked", "why": str(uncheckable)}
    else:
        code, found = verify(options.export, key_text, known_text)
    print(json.dumps(found) if options.json else describe(code, found))
    return code


if __name__ == "__main__":
    sys.exit(main())
