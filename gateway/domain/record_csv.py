"""Records as lines of CSV (RFC 4180), safe to open in a spreadsheet: no cell is a formula there."""

import csv
import io
import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from gateway.domain.record import FIELDS

COLUMNS = (*FIELDS, "leaf")
"""A column for each field of a record, and the leaf hash of its stored bytes (hex)."""

# One record, one line, whatever stands in it: names that models made up may hold line ends and control characters.
_LINE_BREAKING = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# What spreadsheets take for a formula (OWASP, "CSV Injection"), in the full-width forms too.
_FORMULA_STARTS = tuple("=+-@|%＝＋－＠")  # noqa: RUF001 - full-width signs on purpose


def write_header() -> str:
    """The line of column names."""
    return _write([COLUMNS])


def write_rows(records: Iterable[tuple[Mapping[str, Any], bytes]]) -> str:
    """A line for each (document, leaf)."""
    return _write([*(_cell(document.get(name)) for name in FIELDS), leaf.hex()] for document, leaf in records)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return str(value)  # a negative number is a number
    text = value if isinstance(value, str) else orjson.dumps(value).decode() if value else ""
    text = _LINE_BREAKING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    # An apostrophe keeps it text; blanks before a formula do not make it harmless.
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA_STARTS) else text


def _write(rows: Iterable[Iterable[str]]) -> str:
    out = io.StringIO(newline="")
    csv.writer(out).writerows(rows)
    return out.getvalue()
