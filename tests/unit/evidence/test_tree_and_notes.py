"""The writer's tree and notes against the verifier's, which shares no code with them."""

import ast
import hashlib
import os
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from gateway.evidence import verify as verifier
from gateway.evidence.note import Checkpoint, NoteRefused, Signer
from gateway.evidence.tree import STORED_EVERY, Node, Tree, consistency_path, fold_level, fold_path, inclusion_path, nodes_between

LEAVES = [hashlib.sha256(b"%d" % number).digest() for number in range(1_200)]


class Hashes(dict[Node, bytes]):
    """Hashes of all nodes over `LEAVES`."""

    def __missing__(self, node: Node) -> bytes:
        height, number = node
        return fold_level(LEAVES[number << height : (number + 1) << height])


def grown(size: int) -> tuple[Tree, dict[Node, bytes]]:
    tree = Tree()
    return tree, dict(tree.push(LEAVES[:size]))


@given(st.integers(0, len(LEAVES)), st.integers(0, len(LEAVES)))
def test_a_tree_can_be_put_down_and_taken_up_again_anywhere(size: int, more: int):
    tree, stored = grown(size)
    again = Tree.from_bytes(size, tree.to_bytes())
    stored |= dict(again.push(LEAVES[size:more]))
    seen = verifier.Tree()
    for leaf in LEAVES[: max(size, more)]:
        seen.add(leaf)
    assert again.root() == seen.root()
    assert all(Hashes()[node] == root for node, root in stored.items())
    assert {node for node in stored if node[0] == STORED_EVERY} == {(STORED_EVERY, n) for n in range(max(size, more) >> STORED_EVERY)}


@given(st.integers(1, len(LEAVES)), st.data())
def test_every_record_is_proven_and_no_other_in_its_place(size: int, data: st.DataObject):
    position = data.draw(st.integers(0, size - 1))
    path = fold_path(inclusion_path(position, size), Hashes())
    root = grown(size)[0].root()
    assert verifier.root_from_inclusion(LEAVES[position], position, size, path) == root
    with pytest.raises(verifier.Broken):
        assert verifier.root_from_inclusion(LEAVES[position], position, size, [*path, LEAVES[0]]) != root
    if size > 1:
        assert verifier.root_from_inclusion(LEAVES[position - 1], position, size, path) != root


@given(st.integers(1, len(LEAVES)), st.data())
def test_a_log_is_proven_to_begin_with_what_it_was(size: int, data: st.DataObject):
    old = data.draw(st.integers(1, size))
    path = fold_path(consistency_path(old, size), Hashes())
    assert check_consistency(old, size, grown(old)[0].root(), path) == (grown(old)[0].root(), grown(size)[0].root())


def check_consistency(old: int, size: int, root: bytes, path: list[bytes]) -> tuple[bytes, bytes]:
    """Both roots that a proof leads to: RFC 9162, section 2.1.4.2."""
    if old == size:
        assert path == []
        return root, root
    steps = path if old & (old - 1) else [root, *path]
    node, last = old - 1, size - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    first = second = steps[0]
    for step in steps[1:]:
        assert last
        if node & 1 or node == last:
            first, second = verifier.hash_pair(step, first), verifier.hash_pair(step, second)
            while node and not node & 1:
                node, last = node >> 1, last >> 1
        else:
            second = verifier.hash_pair(second, step)
        node, last = node >> 1, last >> 1
    assert last == 0
    return first, second


@given(st.integers(0, 5_000), st.integers(0, 5_000))
def test_nodes_cover_a_stretch_exactly_once(begin: int, end: int):
    covered = [position for height, number in nodes_between(begin, end) for position in range(number << height, (number + 1) << height)]
    assert covered == list(range(begin, end))


def test_the_verifier_reads_notes_that_only_the_right_key_signed():
    signer, other = Signer(os.urandom(32)), Signer(os.urandom(32))
    checkpoint = Checkpoint(origin="tool-gateway/x/default", size=7, root=bytes(32))
    note, key = signer.sign(checkpoint), signer.public_key(checkpoint.origin)
    assert key.open(note) == checkpoint
    read = verifier.read_key(key.text())
    assert verifier.read_note(note, read) == (checkpoint.origin, 7, bytes(32))
    with pytest.raises(verifier.Broken):
        verifier.read_note(note.replace("\n7\n", "\n8\n"), read)
    with pytest.raises(verifier.Uncheckable):
        verifier.read_note(other.sign(checkpoint), read)
    with pytest.raises(NoteRefused):
        key.open(other.sign(checkpoint))


def test_the_verifier_needs_no_library_for_signatures():
    for _ in range(20):
        key, message = Ed25519PrivateKey.generate(), os.urandom(60)
        public, signature = key.public_key().public_bytes_raw(), key.sign(message)
        assert verifier.verify_signature_slowly(public, message, signature)
        place = int.from_bytes(os.urandom(2), "big") % 64
        forged = signature[:place] + bytes([signature[place] ^ 4]) + signature[place + 1 :]
        assert not verifier.verify_signature_slowly(public, message, forged)
        assert not verifier.verify_signature_slowly(public, message + b"!", signature)
    # RFC 8032, 7.1, test 1.
    public = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    signature = bytes.fromhex(
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )
    assert verifier.verify_signature_slowly(public, b"", signature)


def test_the_verifier_shares_no_code_with_the_gateway():
    tree = ast.parse(Path(verifier.__file__).read_text())
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    named |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in named} - sys.stdlib_module_names == {"cryptography"}
