"""The words of a record that a search by free text looks at: safe ones only, never values of arguments or results.

Names that have a field of their own in searches are not among them.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.domain.json_values import is_object
from gateway.domain.search import split_words

MAX_WORDS = 256
_TEXTS_OF_OUTCOME = ("detail", "problem", "evidence", "method", "by", "reason", "comment", "query")


def words_of(document: Mapping[str, Any]) -> str | None:
    """The words of a record's document, in order and parted by single blanks; None where there are none.

    They are the names of arguments (with the decision only, not again with each of its followers), the deciding policy,
    the rules that matched, and what gateway or persons said about it.
    """
    words: list[str] = []
    for text in _texts(document):
        words += split_words(text)
        if len(words) >= MAX_WORDS:
            break
    return " ".join(words[:MAX_WORDS]) or None


def _texts(document: Mapping[str, Any]) -> Iterable[str]:
    if isinstance(document["policy"], str):
        yield document["policy"]
    for rule in document["rules"]:
        yield from (rule[name] for name in ("policy", "reason_code") if isinstance(rule.get(name), str))
    outcome = document["outcome"]
    if is_object(outcome):
        yield from (outcome[name] for name in _TEXTS_OF_OUTCOME if isinstance(outcome.get(name), str))
    if document["kind"] == "decision":
        yield from document["argument_keys"]
