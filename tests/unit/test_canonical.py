"""Canonical JSON: the fast writer and rfc8785 write the same bytes; what I-JSON cannot carry is refused."""

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.canonical import canonical_json, integral_floats_as_integers

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_writes_the_bytes_of_rfc_8785(value: object):
    assert canonical_json(value) == rfc8785.dumps(value)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53, -(2**53), "\ud83d", {"\ud83d": 1}, [2**70]])
def test_refuses_what_has_no_canonical_form(value: object):
    with pytest.raises(ValueError, match="canonical"):
        canonical_json(value)


def test_takes_integral_floats_for_integers_and_leaves_the_rest():
    assert repr(integral_floats_as_integers({"a": [3.0, 3.5, -0.0, 1e300, True, "3.0"]})) == "{'a': [3, 3.5, 0, 1e+300, True, '3.0']}"
