"""How much of each row is run: the sizes of CI, the long sizes, and the progress of a long run."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEPT = Path(os.environ.get("FAULTS_DIR", ROOT / ".faults"))
"""Progress of long runs, results, and evidence of violations; ignores itself in git."""


def is_on() -> bool:
    """Whether fault tests are asked for at all."""
    return bool(os.environ.get("FAULTS"))


def is_long() -> bool:
    """Whether the long sizes are."""
    return os.environ.get("FAULTS") == "long"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the issue's table. `unit` is what is counted; `batch` how many are run before progress is kept."""

    name: str
    what: str
    ci: int
    long: int
    batch: int
    test: str

    @property
    def wanted(self) -> int:
        """How many this run is to do; FAULTS_COUNT says otherwise, for a quick look."""
        override = os.environ.get("FAULTS_COUNT")
        return int(override) if override else self.long if is_long() else self.ci


ROWS = {
    row.name: row
    for row in (
        Row(name="points", what="kill -9 at every point of a call, per class (0 in CI: each point once)", ci=0, long=20_000, batch=200, test="test_row_points.py"),
        Row(name="kills", what="kill -9 of one of three gateways under load", ci=25, long=1_000, batch=25, test="test_row_kills.py"),
        Row(name="zombies", what="SIGSTOP past the lease, then CONT", ci=10, long=300, batch=10, test="test_row_zombies.py"),
        Row(name="restarts", what="PostgreSQL immediate restart under load", ci=6, long=200, batch=6, test="test_row_restarts.py"),
        Row(name="commits", what="COMMIT or its answer dropped", ci=150, long=10_000, batch=150, test="test_row_cuts.py"),
        Row(name="cuts", what="tool answer cut", ci=150, long=10_000, batch=150, test="test_row_cuts.py"),
        Row(name="duplicates", what="100 concurrent duplicates over two gateways", ci=30, long=2_000, batch=30, test="test_row_races.py"),
        Row(name="budgets", what="1,000 x 0.10 against 5.00, two gateways", ci=5, long=500, batch=5, test="test_row_races.py"),
        Row(name="policies", what='8 parallel calls under "only if none was sent"', ci=50, long=2_000, batch=50, test="test_row_races.py"),
        Row(name="machine", what="state machine against a small model", ci=150, long=20_000, batch=150, test="test_row_machine.py"),
        Row(name="log_head", what="a gateway frozen while it holds the log head", ci=5, long=100, batch=5, test="test_row_log_head.py"),
    )
}  # fmt: skip


class Progress:
    """How much of a row is done; kept in a file for long runs, so that an interrupted one goes on."""

    def __init__(self, row: Row, folder: Path = KEPT) -> None:
        self._row = row
        self._is_kept = is_long()
        self._path = make_folder(folder) / f"{row.name}.progress"
        self.done = json.loads(self._path.read_text())["done"] if self._is_kept and self._path.exists() else 0

    @property
    def left(self) -> int:
        """How many are still to do."""
        return max(0, self._row.wanted - self.done)

    @property
    def next_batch(self) -> int:
        """How many to do before the next `add`."""
        return min(self._row.batch, self.left)

    def add(self, count: int) -> None:
        """So many more are done, without a violation."""
        self.done += count
        if self._is_kept:
            fresh = self._path.with_suffix(".new")
            fresh.write_text(json.dumps({"done": self.done}))
            fresh.replace(self._path)


def make_folder(folder: Path) -> Path:
    """A folder that git does not see."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    return folder
