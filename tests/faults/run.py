"""Runs the fault tests row by row: ``python -m tests.faults.run [--long] [--rows kills,cuts]``. Exit code 1 on any violation.

A long run keeps its progress after every batch and goes on where it was interrupted; --fresh starts it anew.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.faults.sizes import KEPT, ROOT, ROWS, Row, make_folder

PROOFS = (("scenarios", "test_scenarios.py"), ("planted", "test_planted.py"))
SELECTIONS = {
    "commits": "commits",
    "cuts": "answers_of_tools",
    "duplicates": "duplicates",
    "budgets": "ten_cents",
    "policies": "eight_parallel",
}
"""Rows that share a file, by words of their test's name."""
FOLDER = Path(__file__).parent.relative_to(ROOT)


def run_tests(name: str, file: str, *, is_long: bool) -> tuple[int, float]:
    """One row in a pytest of its own; exit code and seconds."""
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", str(FOLDER / file)]
    if name in SELECTIONS:
        command += ["-k", SELECTIONS[name]]
    began = time.monotonic()
    code = subprocess.run(command, cwd=ROOT, env=dict(os.environ) | {"FAULTS": "long" if is_long else "1"}, check=False).returncode
    return code, time.monotonic() - began


def main() -> int:
    """Run, and say what came of it."""
    parser = argparse.ArgumentParser(prog="tests.faults.run")
    parser.add_argument("--long", action="store_true", help="the long sizes, resumable")
    parser.add_argument("--fresh", action="store_true", help="forget the progress of an earlier long run")
    parser.add_argument("--rows", help=f"some rows only: {', '.join([*ROWS, *(name for name, _ in PROOFS)])}")
    given = parser.parse_args()
    chosen = given.rows.split(",") if given.rows else None
    folder = make_folder(KEPT)
    results = folder / "results.jsonl"
    results.unlink(missing_ok=True)
    if given.fresh:
        for progress in folder.glob("*.progress"):
            progress.unlink()
    entries: list[tuple[str, str, Row | None]] = [(row.name, row.test, row) for row in ROWS.values()]
    entries += [(name, file, None) for name, file in PROOFS]
    summary: list[tuple[str, str, str, str, str]] = []
    has_failed = False
    for place, (name, file, row) in enumerate(entries, 1):
        if chosen is not None and name not in chosen:
            continue
        _say(f"[{place}/{len(entries)}] {name}: {row.what if row else file}")
        code, seconds = run_tests(name, file, is_long=given.long)
        has_failed |= code != 0
        lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
        found = [line for line in lines if line["row"] == name]
        done = f"{found[-1]['total']}/{found[-1]['wanted']}" if found else "-"
        violations = str(sum(line["violations"] for line in found)) if found else "-"
        summary.append((name, done, violations, f"{seconds:.0f}", "ok" if code == 0 else "FAILED"))
    _say("")
    for line in [("row", "done", "violations", "seconds", ""), *summary]:
        _say(f"{line[0]:<12}{line[1]:>14}{line[2]:>12}{line[3]:>10}  {line[4]}")
    if has_failed:
        _say(f"evidence: {folder}")
    return int(has_failed)


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a command


if __name__ == "__main__":
    sys.exit(main())
