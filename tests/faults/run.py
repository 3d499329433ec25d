"""Runs the fault tests row by row: ``python -m tests.faults.run [--long] [--rows kills,cuts]``. Exit code 1 on any violation.

Rows that mostly wait run beside rows that mostly work, in two lanes (--lanes 1 for one after the other, as --long always
does). A long run keeps its progress after every batch and goes on where it was interrupted; --fresh starts it anew.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.sizes import KEPT, ROOT, ROWS, make_folder

PROOFS = {"scenarios": "test_scenarios.py", "planted": "test_planted.py"}
FILES = {name: row.test for name, row in ROWS.items()} | PROOFS
WORDS = {"commits": "commits", "cuts": "answers_of_tools", "duplicates": "duplicates", "budgets": "ten_cents", "policies": "eight_parallel"}
"""Rows that share a file, by words of their test's name."""
WAITING = ("planted", "restarts", "cuts", "scenarios", "commits", "zombies")
"""Rows that mostly wait for leases and restarts, the longest first."""
WORKING = tuple(name for name in FILES if name not in WAITING)
TAIL = 60


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a row."""

    name: str
    is_good: bool
    seconds: float


class Runner:
    """Runs rows, each in a pytest of its own, and says what comes of them."""

    def __init__(self, folder: Path, *, is_long: bool) -> None:
        self._folder = folder
        self._is_long = is_long
        self._speaking = threading.Lock()
        self.outcomes: list[Outcome] = []

    def run_lane(self, names: Sequence[str]) -> None:
        """One row after the other."""
        for name in names:
            self._say(f"{name}: {ROWS[name].what if name in ROWS else FILES[name]}")
            began, log = time.monotonic(), self._folder / f"{name}.log"
            with log.open("wb") as output:
                code = subprocess.run(self._command(name), cwd=ROOT, env=self._environment(), stdout=output, stderr=output, check=False)
            outcome = Outcome(name=name, is_good=code.returncode == 0, seconds=time.monotonic() - began)
            self.outcomes.append(outcome)
            self._say(f"{name}: {'ok' if outcome.is_good else 'FAILED'} after {outcome.seconds:.0f} s")
            if not outcome.is_good:
                self._say("\n".join(log.read_text(errors="replace").splitlines()[-TAIL:]))

    def _command(self, name: str) -> list[str]:
        file = str((Path(__file__).parent / FILES[name]).relative_to(ROOT))
        words = ["-k", WORDS[name]] if name in WORDS else []
        return [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", file, *words]

    def _environment(self) -> dict[str, str]:
        return dict(os.environ) | {"FAULTS": "long" if self._is_long else "1"}

    def _say(self, text: str) -> None:
        with self._speaking:
            print(text, flush=True)  # noqa: T201 - a command

    def summarize(self, results: Path) -> None:
        """A table of all rows."""
        lines = {line["row"]: line for line in map(json.loads, results.read_text().splitlines())} if results.exists() else {}
        self._say(f"\n{'row':<12}{'done':>14}{'violations':>12}{'seconds':>10}")
        for outcome in sorted(self.outcomes, key=lambda found: list(FILES).index(found.name)):
            found = lines.get(outcome.name)
            done = f"{found['total']}/{found['wanted']}" if found else "-"
            violations = str(found["violations"]) if found else "-"
            self._say(f"{outcome.name:<12}{done:>14}{violations:>12}{outcome.seconds:>10.0f}  {'ok' if outcome.is_good else 'FAILED'}")


def main() -> int:
    """Run, and say what came of it."""
    parser = argparse.ArgumentParser(prog="tests.faults.run")
    parser.add_argument("--long", action="store_true", help="the long sizes, resumable")
    parser.add_argument("--fresh", action="store_true", help="forget the progress of an earlier long run")
    parser.add_argument("--lanes", type=int, choices=(1, 2), default=2, help="rows at once")
    parser.add_argument("--rows", default=",".join(FILES), help="some rows only, by name")
    given = parser.parse_args()
    chosen = given.rows.split(",")
    if unknown := set(chosen) - set(FILES):
        parser.error(f"no such row: {', '.join(sorted(unknown))}; rows: {', '.join(FILES)}")
    folder = make_folder(KEPT)
    results = folder / "results.jsonl"
    results.unlink(missing_ok=True)
    for progress in folder.glob("*.progress") if given.fresh else ():
        progress.unlink()
    runner = Runner(folder, is_long=given.long)
    lanes = [WORKING, WAITING] if given.lanes > 1 and not given.long else [tuple(FILES)]
    threads = [threading.Thread(target=runner.run_lane, args=([name for name in lane if name in chosen],)) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runner.summarize(results)
    return int(not all(outcome.is_good for outcome in runner.outcomes))


if __name__ == "__main__":
    sys.exit(main())
