"""Where in which file a declaration stands, so that a finding can point at it."""

from dataclasses import dataclass, field
from typing import Any, Literal, cast

from gateway.bundle.strict_yaml import Document, UnreadableError, escape_token, read_yaml
from gateway.domain.findings import Finding


@dataclass(frozen=True, kw_only=True)
class Source:
    """A part of a file: findings name its pointers."""

    file: str
    document: Document
    base: str = ""
    """JSON pointer of this part in the file."""

    @property
    def value(self) -> Any:
        """The part's value."""
        value: Any = self.document.value
        for token in self.base.split("/")[1:]:
            key = token.replace("~1", "/").replace("~0", "~")
            value = cast("list[Any]", value)[int(key)] if isinstance(value, list) else value[key]
        return value

    def at(self, *tokens: object) -> "Source":
        """A part of this part."""
        return Source(file=self.file, document=self.document, base=self.base + point(*tokens))

    def finding(self, pointer: str, code: str, message: str, mend: str, *, severity: Literal["error", "warning"] = "error") -> Finding:
        """A finding at `pointer` (below this part), or at the nearest part above that exists."""
        full = self.base + pointer
        while full and full not in self.document.places:
            full = full.rpartition("/")[0]
        line, column = self.document.places.get(full, (0, 0))
        if (entry := self._entry(full)) is not None and f"`{entry}`" not in message:
            message = f"`{entry}`: {message}"
        message = "".join(c if c.isprintable() else "\ufffd" for c in message)  # names are the author's, one line is ours
        return Finding(file=self.file, line=line, column=column, code=code, message=message, mend=mend, severity=severity)

    def _entry(self, pointer: str) -> str | None:
        """The name of the list entry that a pointer leads into, in files that are a list: a number says little there."""
        first = pointer.split("/")[1:2]
        if not isinstance(self.document.value, list) or not first:
            return None
        entry: Any = cast("list[Any]", self.document.value)[int(first[0])]
        name: Any = cast("dict[str, Any]", entry).get("name") if isinstance(entry, dict) else None
        return name if isinstance(name, str) else None


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The documents of a bundle that could be read, by path, and what was wrong with the others."""

    documents: dict[str, Source] = field(default_factory=dict[str, Source])
    findings: list[Finding] = field(default_factory=list[Finding])

    def read(self, path: str, data: bytes) -> Source | None:
        """Read one YAML file; None when that left a finding."""
        try:
            source = Source(file=path, document=read_yaml(data))
        except UnreadableError as error:
            self.findings.append(locate(path, error))
            return None
        self.documents[path] = source
        return source


def locate(file: str, error: UnreadableError) -> Finding:
    """The finding for a file that cannot be read."""
    line, column = error.place
    return Finding(file=file, line=line, column=column, code=error.code, message=error.message, mend=error.mend)


def point(*tokens: object) -> str:
    """A JSON pointer from its tokens."""
    return "".join(f"/{escape_token(token)}" for token in tokens)
