"""What an engine loads for a bundle: the combining library, the authors' modules, and a generated list of their packages."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.domain.catalogue import PolicySet
from gateway.domain.reasons import Effect

AUTHORS_ROOT = "policies"
"""Authors' packages live below this name; the library is ``gateway``."""
LIBRARY_FILE = "gateway/gateway.rego"
BUNDLE_FILE = "gateway/bundle.rego"
TEST_SUFFIX = "_test.rego"

_LIBRARY = Path(__file__).parent / "rego" / "gateway.rego"
_PACKAGE = re.compile(r"(?:\s|#[^\n]*(?:\n|$))*package[ \t]+(policies(?:\.[A-Za-z_]\w*)+)[ \t]*(?:[\r\n;#]|$)", re.ASCII)
"""The package clause is a module's first word; `gateway.policy.analysis` proves that this reading and regorus' agree."""


def read_package(source: str) -> str | None:
    """The package that a module declares, such as ``policies.travel.search``; None where it is none of an author's."""
    match = _PACKAGE.match(source)
    return match[1] if match else None


def assemble(modules: Mapping[str, str], data: Mapping[str, Any], revision: str) -> PolicySet:
    """The policy set of a bundle: library, generated list of packages, and the authors' modules without their tests.

    Raises ValueError for a module outside ``policies``; a checked bundle has none.
    """
    own = {file: source for file, source in modules.items() if not file.endswith(TEST_SUFFIX)}
    mentioned: dict[str, set[Effect]] = {}
    for file, source in own.items():
        package = read_package(source)
        if package is None:
            msg = f"{file} declares no package below {AUTHORS_ROOT}"
            raise ValueError(msg)
        # A word in a comment costs one undefined rule set, nothing else.
        mentioned.setdefault(package, set()).update(effect for effect in Effect if re.search(rf"\b{effect}\b", source))
    library = {LIBRARY_FILE: _LIBRARY.read_text("utf-8"), BUNDLE_FILE: _bundle_module(mentioned, revision)}
    return PolicySet(revision=revision, modules=library | own, data=data)


def _bundle_module(mentioned: Mapping[str, set[Effect]], revision: str) -> str:
    """Rego that names each rule set by its full path: iterating over ``data.policies`` would miss nested packages."""
    rule_sets = [
        f'rule_sets contains {{"effect": "{effect}", "policy": "{package.removeprefix(AUTHORS_ROOT + ".")}", "elements": elements}} if {{\n'
        f"\telements := data.{package}.{effect}\n"
        "}"
        for package in sorted(mentioned)
        for effect in sorted(mentioned[package])
    ]
    parts = [
        "# Generated at assembly from the bundle's package names.",
        "package gateway.bundle",
        f"revision := {json.dumps(revision)}",
        *(rule_sets or ["rule_sets := set()"]),
    ]
    return "\n\n".join(parts) + "\n"
