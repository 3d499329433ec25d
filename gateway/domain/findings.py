"""What a check of a bundle found: stable code, place, sentence, and how to mend it."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, order=True)
class Finding:
    """One thing that a check found. `line` and `column` count from 1; 0 where the whole file (or folder) is meant."""

    file: str
    """Path relative to the bundle's folder, with forward slashes."""
    line: int
    column: int
    code: str
    """Stable code such as ``tool-not-exposed``; listed in docs/findings.md."""
    message: str
    mend: str
    """How to mend it, one sentence."""
    severity: Literal["error", "warning"] = "error"

    @property
    def place(self) -> str:
        """``file:line:column``, as editors understand it."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file
