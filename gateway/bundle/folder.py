"""The folder of a bundle as one snapshot in memory: which files count, their bytes, and the revision over them."""

import hashlib
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.domain.findings import Finding

MAX_FILE = 1024 * 1024
MAX_FILES = 2_000
MAX_TOTAL = 16 * 1024 * 1024
_MAX_LEVELS = 12

TOP_FILES = ("bundle.yaml", "workflows.yaml", "principals.yaml", "budgets.yaml")
_KNOWN = (
    re.compile(r"(bundle|workflows|principals|budgets)\.yaml"),
    re.compile(r"tools/[a-z][a-z0-9_]{0,47}\.yaml"),
    re.compile(r"cases/[A-Za-z0-9_.-]+\.yaml"),
    re.compile(r"rego/(?:[A-Za-z0-9_-]+/)*[A-Za-z0-9_-]+\.rego"),
    re.compile(r"data/(?:[A-Za-z0-9_-]+/)*data\.(json|yaml)"),
)
_IGNORED = re.compile(r"(README|LICENSE|CHANGELOG)(\.(md|txt))?")
_LAYOUT = "A bundle has bundle.yaml, workflows.yaml, principals.yaml, budgets.yaml, tools/<name>.yaml, cases/*.yaml, rego/**/*.rego and data/**/data.json or data.yaml."


@dataclass(frozen=True, kw_only=True)
class Folder:
    """What was read of a bundle's folder."""

    files: Mapping[str, bytes]
    """Relative path with forward slashes -> bytes; only files that count."""
    findings: tuple[Finding, ...]


def read_folder(folder: Path) -> Folder:
    """Read every file that counts, once; what does not belong there becomes a finding. Names that start with a dot are ignored."""
    if not folder.is_dir():
        return Folder(
            files={}, findings=(_finding(".", "folder-missing", "there is no such folder", "Name the folder that contains bundle.yaml."),)
        )
    walk = _Walk(folder.resolve())
    try:
        walk.enter(folder, "", 0)
    except _TooLarge as error:  # Whatever it is, thousands of findings would not say so better.
        return Folder(files={}, findings=(error.finding,))
    return Folder(files=dict(sorted(walk.files.items())), findings=tuple(sorted(walk.findings)))


def compute_revision(files: Mapping[str, bytes]) -> str:
    """``sha256:<hex>`` over the sorted paths and bytes of the files; each length-prefixed, so that nothing can shift between them."""
    content = hashlib.sha256(b"bundle\0")
    for path in sorted(files):
        name, data = path.encode(), files[path]
        content.update(b"%d:%s%d:" % (len(name), name, len(data)))
        content.update(data)
    return f"sha256:{content.hexdigest()}"


def unexpected_files(files: Mapping[str, bytes]) -> list[Finding]:
    """A finding for each file that stands where no file of a bundle belongs."""
    return [_unexpected(path) for path in sorted(files) if not is_known(path)]


def is_known(path: str) -> bool:
    """Whether a relative path is one of the places of a bundle."""
    return any(place.fullmatch(path) for place in _KNOWN)


class _TooLarge(Exception):
    def __init__(self, path: str) -> None:
        super().__init__()
        message = f"a bundle has at most {MAX_FILES} files, as many folders, and 16 MiB; this one does not fit any more"
        self.finding = _finding(path, "folder-too-large", message, "Name the folder of a bundle, or split the bundle.")


class _Walk:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: dict[str, bytes] = {}
        self.findings: list[Finding] = []
        self.total = 0
        self.seen = {"files": 0, "folders": 0}

    def enter(self, folder: Path, prefix: str, level: int) -> None:
        if level > _MAX_LEVELS:
            self.findings.append(
                _finding(
                    prefix.rstrip("/"),
                    "folder-too-deep",
                    f"nested deeper than {_MAX_LEVELS} folders",
                    "Flatten the folders; look for a link to itself.",
                )
            )
            return
        for place in sorted(folder.iterdir()):
            name = place.name
            if not name.startswith(".") and not (level == 0 and _IGNORED.fullmatch(name)):
                self._take(place, prefix + name, level)

    def _take(self, place: Path, path: str, level: int) -> None:
        if not path.isprintable():
            self.findings.append(_finding(ascii(path), "file-name", "a name that is not printable text", "Rename it."))
            return
        try:
            mode = place.stat().st_mode
            if place.is_symlink() and not place.resolve().is_relative_to(self.root):
                self.findings.append(
                    _finding(path, "link-leaves-folder", "a link that leaves the bundle's folder", "Put the file itself into the folder.")
                )
            elif stat.S_ISDIR(mode):
                self._count("folders", path)
                self.enter(place, f"{path}/", level + 1)
            elif not stat.S_ISREG(mode):
                self.findings.append(_finding(path, "file-unexpected", "neither a file nor a folder", _LAYOUT))
            else:
                self._read(place, path)
        except OSError as error:
            self.findings.append(
                _finding(
                    path,
                    "file-unreadable",
                    f"cannot be read: {error.strerror or type(error).__name__}",
                    "Let the gateway's user read it; mend or remove broken links.",
                )
            )

    def _count(self, kind: str, path: str) -> None:
        self.seen[kind] += 1
        if self.seen[kind] > MAX_FILES:
            raise _TooLarge(path)

    def _read(self, place: Path, path: str) -> None:
        self._count("files", path)
        if not is_known(path):
            self.findings.append(_unexpected(path))
            return
        with place.open("rb") as file:
            data = file.read(MAX_FILE + 1)
        self.total += len(data)
        if self.total > MAX_TOTAL:
            raise _TooLarge(path)
        if len(data) > MAX_FILE:
            self.findings.append(_finding(path, "file-too-large", "larger than 1 MiB", "Split it."))
        else:
            self.files[path] = data


def _unexpected(path: str) -> Finding:
    if path.endswith(".yml"):
        return _finding(path, "file-unexpected", "not a file of a bundle: YAML files end in .yaml", f"Rename it to {path[:-4]}.yaml.")
    return _finding(path, "file-unexpected", "not a file of a bundle", f"Move it out of the folder. {_LAYOUT}")


def _finding(file: str, code: str, message: str, mend: str) -> Finding:
    return Finding(file=file, line=0, column=0, code=code, message=message, mend=mend)
