"""The RFC 6962 tree over the log's leaves, kept as the roots of its perfect subtrees.

A node is named by its height and its number: node (h, n) is the root over the 2^h leaves from position n * 2^h on.
Nodes at heights that are multiples of `STORED_EVERY` are stored; every other one is a few hashes away from them.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

STORED_EVERY = 8
HASH_BYTES = 32
EMPTY_ROOT = hashlib.sha256(b"").digest()

Node = tuple[int, int]
"""Height and number."""


def node_hash(left: bytes, right: bytes) -> bytes:
    """The root over two subtrees: SHA-256(0x01 || left || right)."""
    return hashlib.sha256(b"\x01" + left + right).digest()


@dataclass
class Tree:
    """A tree that grows by leaves. Holds one hash a bit of its size."""

    size: int = 0
    peaks: list[bytes] = field(default_factory=list[bytes])
    """Roots of its perfect subtrees, the largest first."""

    @classmethod
    def from_bytes(cls, size: int, packed: bytes) -> "Tree":
        """A tree as `to_bytes` packed its peaks. Raises ValueError."""
        if len(packed) != size.bit_count() * HASH_BYTES:
            raise ValueError(f"a tree of {size} leaves has {size.bit_count()} peaks")
        return cls(size, [packed[begin : begin + HASH_BYTES] for begin in range(0, len(packed), HASH_BYTES)])

    def to_bytes(self) -> bytes:
        """The peaks, one after the other."""
        return b"".join(self.peaks)

    def push(self, leaves: Iterable[bytes]) -> Iterator[tuple[Node, bytes]]:
        """Add leaf hashes; gives the nodes that are to be stored as they are completed."""
        peaks = self.peaks
        for leaf in leaves:
            peaks.append(leaf)
            self.size += 1
            height, number = 0, self.size
            while not number & 1:
                right = peaks.pop()
                peaks[-1] = node_hash(peaks[-1], right)
                height, number = height + 1, number >> 1
                if height % STORED_EVERY == 0:
                    yield (height, number - 1), peaks[-1]

    def root(self) -> bytes:
        """The root hash; of the empty tree, the hash of nothing."""
        return fold_peaks(self.peaks) if self.peaks else EMPTY_ROOT


def fold_peaks(peaks: Sequence[bytes]) -> bytes:
    """The root over perfect subtrees that stand side by side, each smaller than the one before."""
    root = peaks[-1]
    for peak in reversed(peaks[:-1]):
        root = node_hash(peak, root)
    return root


def fold_level(hashes: Sequence[bytes]) -> bytes:
    """The root over 2^k nodes of one height."""
    while len(hashes) > 1:
        hashes = [node_hash(hashes[index], hashes[index + 1]) for index in range(0, len(hashes), 2)]
    return hashes[0]


def nodes_between(begin: int, end: int) -> Iterator[Node]:
    """The fewest nodes that cover exactly the positions from `begin` up to before `end`, left to right."""
    while begin < end:
        height = (begin & -begin).bit_length() - 1 if begin else 63
        while (1 << height) > end - begin:
            height -= 1
        yield height, begin >> height
        begin += 1 << height


def inclusion_path(position: int, size: int) -> list[list[Node]]:
    """What the audit path of a leaf (RFC 6962, 2.1.1) is made of: for each step from the leaf up, the nodes that its sibling folds."""
    if not 0 <= position < size:
        raise ValueError(f"position {position} is not in a tree of {size}")
    path: list[list[Node]] = []
    begin, end = 0, size
    while end - begin > 1:
        middle = begin + (1 << (end - begin - 1).bit_length() - 1)
        if position < middle:
            path.append(list(nodes_between(middle, end)))
            end = middle
        else:
            path.append(list(nodes_between(begin, middle)))
            begin = middle
    return path[::-1]


def consistency_path(old: int, size: int) -> list[list[Node]]:
    """What the proof that a tree of `size` extends one of `old` leaves (RFC 6962, 2.1.2) is made of, as `inclusion_path`."""
    if not 0 < old <= size:
        raise ValueError(f"a tree of {size} does not extend one of {old}")
    path: list[list[Node]] = []
    begin, end, is_whole = 0, size, True
    while end != old:
        middle = begin + (1 << (end - begin - 1).bit_length() - 1)
        if old <= middle:
            path.append(list(nodes_between(middle, end)))
            end = middle
        else:
            path.append(list(nodes_between(begin, middle)))
            begin, is_whole = middle, False
    if not is_whole:
        path.append(list(nodes_between(begin, end)))
    return path[::-1]


def fold_path(path: Iterable[Sequence[Node]], hashes: Mapping[Node, bytes]) -> list[bytes]:
    """The hashes of a path, from the hashes of its nodes."""
    return [fold_peaks([hashes[node] for node in step]) for step in path]
