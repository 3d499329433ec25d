"""Runs the fault tests row by row: ``python -m tests.faults.run [--long] [--rows kills,cuts] [--for 8m]``.

Rows that mostly wait run beside rows that mostly work, in three lanes (--lanes 1 for one after the other, as --long always
does); the row whose bound is seconds goes first and alone. A long run keeps its results after every batch, and the next one
goes on where they end; --for is the time that each row of it has, --fresh starts anew. Exit code 4 where a row failed or
none ran, 1 where one could not be run.
"""

import argparse
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.sizes import KEPT, ROOT, ROWS, Result, forget_results, make_folder, read_results

PROOFS = {"scenarios": "test_scenarios.py", "planted": "test_planted.py"}
FILES = {name: row.test for name, row in ROWS.items()} | PROOFS
WORDS = {"commits": "commits", "cuts": "answers_of_tools", "duplicates": "duplicates", "budgets": "ten_cents", "policies": "eight_parallel"}
"""Rows that share a file, by words of their test's name."""
ALONE = ("log_head",)
"""Rows with a bound in seconds: nothing else of ours runs meanwhile."""
WAITING = (("planted", "zombies"), ("scenarios", "restarts", "cuts", "commits"))
"""Rows that mostly wait for leases and restarts, in two lanes."""
WORKING = tuple(name for name in FILES if name not in {*WAITING[0], *WAITING[1], *ALONE})
TAIL = 60
EXIT_UNEXPECTED, EXIT_FAILED = 1, 4
_PYTEST_FAILED = frozenset({1, 5})
"""Tests failed, or none was collected; anything else but 0 is a run that broke off."""
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a row. `results` are those of this run, `skipped` what pytest left out and why."""

    name: str
    code: int
    seconds: float
    tests: str
    skipped: Sequence[str]
    results: Sequence[Result]

    @property
    def is_good(self) -> bool:
        return self.code == 0

    @property
    def exit_code(self) -> int:
        """What this row makes of the whole run's exit code."""
        return 0 if self.is_good else EXIT_FAILED if self.code in _PYTEST_FAILED else EXIT_UNEXPECTED


class Runner:
    """Runs rows, each in a pytest of its own, and says what comes of them."""

    def __init__(self, folder: Path, environment: Mapping[str, str], total: int) -> None:
        self._folder = folder
        self._environment = dict(os.environ) | dict(environment)
        self._total = total
        self._speaking = threading.Lock()
        self.outcomes: list[Outcome] = []

    def run_lanes(self, lanes: Sequence[Sequence[str]]) -> None:
        """Lanes side by side, the rows of each one after the other."""
        threads = [threading.Thread(target=self._run_lane, args=(lane,)) for lane in lanes if lane]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _run_lane(self, names: Sequence[str]) -> None:
        for name in names:
            self._say(f"{name}: {ROWS[name].what if name in ROWS else FILES[name]}")
            outcome = self._run(name)
            self.outcomes.append(outcome)
            verdict = "ok" if outcome.is_good else "FAILED"
            self._say(f"{name}: {verdict} after {outcome.seconds:.0f} s, {outcome.tests} [{len(self.outcomes)}/{self._total}]")
            for line in outcome.skipped:
                self._say(f"    {line}")
            if not outcome.is_good:
                self._say("\n".join(self._log(name).read_text(errors="replace").splitlines()[-TAIL:]))

    def _run(self, name: str) -> Outcome:
        at, began = time.time(), time.monotonic()
        with self._log(name).open("wb") as output:
            done = subprocess.run(_command(name), cwd=ROOT, env=self._environment, stdout=output, stderr=output, check=False)
        lines = self._log(name).read_text(errors="replace").splitlines()
        return Outcome(
            name=name,
            code=done.returncode,
            seconds=time.monotonic() - began,
            tests=next((_without_time(line) for line in reversed(lines) if " passed" in line or " failed" in line), "no test ended"),
            skipped=[line for line in lines if line.startswith("SKIPPED")],
            results=[result for result in read_results(name) if result.at >= at],
        )

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _say(self, text: str) -> None:
        with self._speaking:
            print(text, flush=True)  # noqa: T201 - a command

    def summarize(self, *, is_long: bool) -> None:
        """A table of all rows: what this run did, and what all long runs did so far."""
        self._say(f"\n{'row':<12}{'done':>8}{'in all':>16}{'violations':>12}{'seconds':>9}  tests")
        for outcome in sorted(self.outcomes, key=lambda found: list(FILES).index(found.name)):
            name, results = outcome.name, outcome.results
            done = str(sum(result.done for result in results)) if results else "-"
            violations = str(sum(result.violations for result in results)) if results else "-"
            total = sum(result.done for result in read_results(name) if result.size == "long")
            in_all = f"{total}/{ROWS[name].long}" if is_long and name in ROWS else "-"
            verdict = outcome.tests if outcome.is_good else f"FAILED ({outcome.tests})"
            self._say(f"{name:<12}{done:>8}{in_all:>16}{violations:>12}{outcome.seconds:>9.0f}  {verdict}")


def _command(name: str) -> list[str]:
    file = str((Path(__file__).parent / FILES[name]).relative_to(ROOT))
    words = ["-k", WORDS[name]] if name in WORDS else []
    return [sys.executable, "-m", "pytest", "-q", "-rs", "--no-header", "-p", "no:cacheprovider", file, *words]


def _without_time(line: str) -> str:
    return line.strip("= ").split(" in ")[0]


def _read_duration(text: str) -> float:
    match = re.fullmatch(r"([0-9]+)([smh])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 90s, 8m or 2h")
    return int(match[1]) * _UNITS[match[2]]


def _name_commit() -> str:
    """The commit that is tested, with a mark where files differ from it."""
    command = ("git", "describe", "--always", "--dirty", "--exclude", "*")
    try:
        found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"  # not a clone
    return found.stdout.strip()


def main() -> int:
    """Run, and say what came of it."""
    parser = argparse.ArgumentParser(prog="tests.faults.run")
    parser.add_argument("--long", action="store_true", help="the long sizes, resumable")
    parser.add_argument(
        "--for", dest="seconds", type=_read_duration, metavar="TIME", help="with --long: how long each row may go on, such as 8m"
    )
    parser.add_argument("--fresh", action="store_true", help="with --long: forget the results of earlier runs")
    parser.add_argument("--lanes", type=int, choices=(1, 3), default=3, help="rows at once")
    parser.add_argument("--rows", default=",".join(FILES), help="some rows only, by name")
    given = parser.parse_args()
    chosen = given.rows.split(",")
    if unknown := set(chosen) - set(FILES):
        parser.error(f"no such row: {', '.join(sorted(unknown))}; rows: {', '.join(FILES)}")
    if not given.long and (given.seconds or given.fresh):
        parser.error("--for and --fresh go with --long; the sizes of CI are done in one go")
    for name in chosen if given.fresh else ():
        forget_results(name)
    environment = {"FAULTS": "long" if given.long else "1", "FAULTS_COMMIT": _name_commit(), "FAULTS_FOR": str(given.seconds or "")}
    runner = Runner(make_folder(KEPT), environment, len(chosen))
    runner.run_lanes([[name for name in ALONE if name in chosen]])
    lanes = [WORKING, *WAITING] if given.lanes > 1 and not given.long else [(*WORKING, *WAITING[0], *WAITING[1])]
    runner.run_lanes([[name for name in lane if name in chosen] for lane in lanes])
    runner.summarize(is_long=given.long)
    return min((outcome.exit_code for outcome in runner.outcomes if not outcome.is_good), default=0)


if __name__ == "__main__":
    sys.exit(main())
