"""Bracket nesting, counted before any parser sees a file: regorus needs seconds for 20 levels, and twice that for each more."""

import re

from gateway.domain.findings import Finding

LIMIT = 10

# Strings, raw strings and comments are skipped whole; an unfinished one runs to the end of its line or file.
_TOKENS = re.compile(r'"(?:\\.|[^"\\\n])*"?|`[^`]*`?|#[^\n]*|[(\[{]|[)\]}]')


def check_nesting(file: str, source: str) -> Finding | None:
    """The place where brackets are nested deeper than `LIMIT`, if any."""
    depth = 0
    for token in _TOKENS.finditer(source):
        if token[0] in "([{":
            depth += 1
        elif token[0] in ")]}":
            depth -= 1
        if depth > LIMIT:
            line = source.count("\n", 0, token.start()) + 1
            return Finding(
                file=file,
                line=line,
                column=token.start() - source.rfind("\n", 0, token.start()),
                code="rego-nesting",
                message=f"Brackets are nested deeper than {LIMIT}.",
                mend="Move inner parts into rules of their own, or into a data document.",
            )
    return None
