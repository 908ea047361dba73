from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldpsql import Epsilon
from ldpsql.errors import InvalidEpsilon
from ldpsql.mechanisms import exp_below, log_ratio
from tests.properties import patient

BAD = [0, -1, "0", "-1", "nan", "inf", "1e3", "1_0", " 1", "1 ", "+1", "01", ".5", "1.", "\u0661", 1000, "32.000000000001"]
BAD += ["0.0000000000001", float("nan"), float("inf"), True, None, [1], b"1", 1e-5, "1\n"]


@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_anything_but_a_plain_decimal_in_range_is_refused(bad: object) -> None:
    with pytest.raises(InvalidEpsilon) as caught:
        Epsilon.parse(bad)
    assert caught.value.code == "LDP101"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given_as", "exact"),
    [("0.1", Fraction(1, 10)), (0.1, Fraction(1, 10)), (Decimal("2.50"), Fraction(5, 2)), (32, Fraction(32))],
)
def test_a_decimal_is_kept_exactly(given_as: object, exact: Fraction) -> None:
    assert Epsilon.parse(given_as).value == exact


@patient()
@given(st.fractions(min_value=Fraction(1, 10**12), max_value=32).map(lambda f: Fraction(round(f * 10**12), 10**12)))
def test_text_gives_the_epsilon_back(value: Fraction) -> None:
    if value > 0:
        assert Epsilon.parse(str(Epsilon(value))).value == value


def test_the_exponential_is_bounded_from_below_and_close() -> None:
    # 66 digits of e, from OEIS A001113
    e = Fraction("2.71828182845904523536028747135266249775724709369995957496696762772")
    below = exp_below(Fraction(1))
    assert below < e
    assert e - below < Fraction(1, 10**55)


def test_log_ratio_is_accurate_near_one() -> None:
    assert log_ratio(Fraction(10**30 + 1, 10**30)) == pytest.approx(1e-30, rel=1e-12)
