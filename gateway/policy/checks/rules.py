"""What rules declare: their package, their form, and the reason codes that they give."""

from collections.abc import Iterator, Mapping

from gateway.domain.findings import Finding
from gateway.domain.reasons import POLICY_CODES, Effect, ReasonCode
from gateway.policy.checks.syntax import Module, Node, Rule, children, kind_of, literal_string, offset_of
from gateway.policy.modules import AUTHORS_ROOT, read_package

_OF_THE_LIBRARY = frozenset({ReasonCode.DEFAULT_DENY, ReasonCode.APPROVAL_GRANTED})
_KEYWORDS = {("rego", "v1"), *(("future", "keywords", word) for word in ("if", "in", "every", "contains", "not"))}
_FIELDS = ("reason_code", "policy", "until", "obligations")
_OBLIGATIONS = ("redact_result", "record_level")


def check_package(module: Module, source: str) -> Iterator[Finding]:
    """A package below ``policies``, in plain words, so that the loader and the engines see the same one."""
    if read_package(source) != ".".join(module.package) or len(module.package) < 2:
        yield module.finding(
            0,
            "rego-package",
            f"The package {'.'.join(module.package)} is not below {AUTHORS_ROOT}, or not written in plain words on a line of its own.",
            f"Begin the file with a line such as: package {AUTHORS_ROOT}.travel.search",
        )


def check_imports(module: Module) -> Iterator[Finding]:
    """Only what both engines know can be imported; the embedded one would take any keyword."""
    for path, _, offset in module.imports:
        if path[0] not in ("input", "data") and path not in _KEYWORDS:
            yield module.finding(offset, "rego-name-unknown", f"There is nothing to import at {'.'.join(path)}.", "Take the line out.")


def check_rules(module: Module, own_codes: Mapping[str, Effect]) -> Iterator[Finding]:
    """Form and codes of ``deny``, ``suppress``, ``confirm`` and ``allow``."""
    if module.is_test:
        return
    for rule in module.rules:
        if not rule.name or rule.name[0] not in set(Effect):
            continue
        effect = Effect(rule.name[0])
        if rule.form != "set" or len(rule.name) != 1:
            yield module.finding(
                rule.offset, "rego-rule-form", f"{effect} is a set of reasons here.", f'Write it as: {effect} contains "REASON_CODE" if …'
            )
        else:
            yield from _check_element(module, rule, rule.head["key"], effect, own_codes)


def _check_element(module: Module, rule: Rule, element: Node, effect: Effect, own_codes: Mapping[str, Effect]) -> Iterator[Finding]:
    kind, content = kind_of(element)
    if kind != "Object":
        yield from _check_code(module, element, effect, own_codes)
        return
    has_code = False
    for _, key, value in content["fields"]:
        field = literal_string(key)
        if field not in _FIELDS:
            yield module.finding(offset_of(key), "rego-element-field", f"A reason has no field {field!r}.", f"Use {', '.join(_FIELDS)}.")
        if field == "reason_code":
            has_code = True
            yield from _check_code(module, value, effect, own_codes)
        if field == "obligations":
            yield from _check_obligations(module, value)
    if not has_code:
        yield module.finding(rule.offset, "rego-element-field", "The reason has no reason_code.", "Add reason_code.")


def _check_code(module: Module, node: Node, effect: Effect, own_codes: Mapping[str, Effect]) -> Iterator[Finding]:
    code = literal_string(node)
    offset = offset_of(node)
    if code is None:
        yield module.finding(
            offset, "rego-reason-literal", "The reason code is not a literal.", "Write the code as a string in the rule's head."
        )
    elif code in _OF_THE_LIBRARY:
        yield module.finding(offset, "rego-reason-reserved", f"{code} is given by the gateway itself.", "Use another code.")
    elif code not in POLICY_CODES[effect] and own_codes.get(code) is not effect:
        known = sorted({*POLICY_CODES[effect], *(own for own, of in own_codes.items() if of is effect)} - _OF_THE_LIBRARY)
        declared = f"It is declared for {own_codes[code]}." if code in own_codes else ""
        yield module.finding(
            offset,
            "rego-reason-unknown",
            f"{code} is not a reason code for {effect}. {declared}".strip(),
            f"Use one of {', '.join(known)}, or declare a code of your own (X_…) in bundle.yaml.",
        )


def _check_obligations(module: Module, node: Node) -> Iterator[Finding]:
    for item in children(kind_of(node)[1]) if kind_of(node)[0] in ("Array", "Set") else ():
        kind, content = kind_of(item)
        if kind != "Object":
            continue
        for _, key, value in content["fields"]:
            if literal_string(key) == "type" and literal_string(value) not in _OBLIGATIONS:
                yield module.finding(
                    offset_of(value),
                    "rego-obligation",
                    "The gateway does not know this obligation.",
                    f"Use one of {', '.join(_OBLIGATIONS)}.",
                )
