"""How much of each row is run: the sizes of CI, the long sizes, and the results that add up over many runs."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from tests.faults.evidence import JsonLines, read_lines

ROOT = Path(__file__).resolve().parents[2]
KEPT = Path(os.environ.get("FAULTS_DIR", ROOT / ".faults"))
"""Results, logs, and evidence of violations; ignores itself in git."""


def is_on() -> bool:
    """Whether fault tests are asked for at all."""
    return bool(os.environ.get("FAULTS"))


def is_long() -> bool:
    """Whether the long sizes are."""
    return os.environ.get("FAULTS") == "long"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the issue's table. `unit` is what is counted; `batch` how many are run before the result is kept."""

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
        Row(name="points", what="kill -9 at every point of a call, per class (0 in CI: each point once)", ci=0, long=20_000, batch=100, test="test_row_points.py"),
        Row(name="kills", what="kill -9 of one of three gateways under load", ci=25, long=1_000, batch=25, test="test_row_kills.py"),
        Row(name="zombies", what="SIGSTOP past the lease, then CONT", ci=10, long=300, batch=10, test="test_row_zombies.py"),
        Row(name="restarts", what="PostgreSQL immediate restart under load", ci=6, long=200, batch=6, test="test_row_restarts.py"),
        Row(name="commits", what="COMMIT or its answer dropped", ci=150, long=10_000, batch=150, test="test_row_cuts.py"),
        Row(name="cuts", what="tool answer cut", ci=150, long=10_000, batch=150, test="test_row_cuts.py"),
        Row(name="duplicates", what="100 concurrent duplicates over two gateways", ci=30, long=2_000, batch=30, test="test_row_races.py"),
        Row(name="budgets", what="1,000 x 0.10 against 5.00, two gateways", ci=5, long=500, batch=5, test="test_row_races.py"),
        Row(name="policies", what='8 parallel calls under "only if none was sent"', ci=50, long=2_000, batch=50, test="test_row_races.py"),
        Row(name="machine", what="state machine against a small model", ci=150, long=20_000, batch=75, test="test_row_machine.py"),
        Row(name="log_head", what="a gateway frozen while it holds the log head", ci=5, long=100, batch=5, test="test_row_log_head.py"),
    )
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one batch of a row came to; a line of the row's file. `done` counts units without a violation."""

    row: str
    size: str
    """``ci`` or ``long``."""
    commit: str
    at: float
    seconds: float
    done: int
    violations: int = 0
    fault: str | None = None
    """The exception that ended the batch, where it was not a violation."""

    @property
    def is_good(self) -> bool:
        """Whether nothing was wrong."""
        return not self.violations and self.fault is None


class Progress:
    """The results of a row. Those of long runs add up, whatever interrupted them, until its long size is reached."""

    def __init__(self, row: Row, folder: Path = KEPT) -> None:
        self._row = row
        self._folder = folder
        self._until = time.monotonic() + float(os.environ.get("FAULTS_FOR") or "inf")
        earlier = read_results(row.name, folder) if is_long() else []
        self.done = sum(result.done for result in earlier if result.size == "long")

    @property
    def next_batch(self) -> int:
        """How many to do before the next `add`; 0 where all are done or the time for this run is over."""
        left = max(0, self._row.wanted - self.done)
        return min(self._row.batch, left) if time.monotonic() < self._until else 0

    def add(self, done: int, seconds: float, *, violations: int = 0, fault: str | None = None) -> None:
        """Write the result of a batch down."""
        self.done += done
        keep_result(
            Result(
                row=self._row.name,
                size="long" if is_long() else "ci",
                commit=os.environ.get("FAULTS_COMMIT", "unknown"),
                at=time.time(),
                seconds=round(seconds, 1),
                done=done,
                violations=violations,
                fault=fault,
            ),
            self._folder,
        )


def read_results(row: str, folder: Path = KEPT) -> list[Result]:
    """All results of a row, oldest first."""
    return [Result(**line) for line in read_lines(_path(row, folder))]


def keep_result(result: Result, folder: Path = KEPT) -> None:
    """Append a result to its row's file."""
    make_folder(folder)
    path = _path(result.row, folder)
    path.parent.mkdir(exist_ok=True)
    lines = JsonLines(path)
    lines.write(vars(result))
    lines.close()


def forget_results(row: str, folder: Path = KEPT) -> None:
    """Start a row anew."""
    _path(row, folder).unlink(missing_ok=True)


def make_folder(folder: Path) -> Path:
    """A folder that git does not see."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    return folder


def _path(row: str, folder: Path) -> Path:
    return folder / "results" / f"{row}.jsonl"
