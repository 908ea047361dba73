"""A deadline holds while operators are built, in every step of a solve, and for the errors of an estimate."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic

import numpy as np
import pytest
from duckdb import DuckDBPyConnection, Error

from ldpsql.errors import OutOfTime
from ldpsql.estimates.estimate import estimate_counts
from ldpsql.estimates.functionals import Mean
from ldpsql.inference.counting import _operator
from ldpsql.inference.deadline import check, soonest, until
from ldpsql.registry.registry import registry

FIVE_THOUSAND = "ldp.olh(1, range(5000))"


@pytest.mark.parametrize("call", ["ldp.ibu(r, {m}, deadline := 0.2)", "ldp.mean(r, {m}, estimator := 'ibu(deadline=0.2)')"])
def test_a_deadline_holds_while_the_operator_is_built(con: DuckDBPyConnection, call: str) -> None:
    con.execute(f"CREATE TABLE few AS SELECT ldp.perturb(i, {FIVE_THOUSAND}) AS r FROM range(10) t(i)")
    _operator.cache_clear()
    before = monotonic()
    with pytest.raises(Error, match="LDP407"):  # it took 40 seconds
        con.execute(f"SELECT {call.format(m=FIVE_THOUSAND)} FROM few")
    assert monotonic() - before < 10  # a loaded machine; unloaded .3


def test_errors_for_which_there_is_no_time_are_infinite() -> None:
    square = registry().mechanism("square_wave(1, 0, 9, bins=10)")
    found = estimate_counts(square, np.full((2, 10), 50.0), registry().estimator("ibu(deadline=60)"))
    assert np.isfinite(found.intervals.std_error).all()
    late = replace(found, end=monotonic() - 1)
    assert np.isinf(late.intervals.std_error).all()
    assert (late.intervals.low == 0).all()
    assert (late.intervals.high == 1).all()
    assert np.isinf(Mean().measure(late).std_error).all()
    assert np.allclose(Mean().measure(late).estimate, Mean().measure(found).estimate)


def test_the_earlier_of_two_deadlines_holds_and_is_forgotten_afterwards() -> None:
    with until(monotonic() + 50):
        first = soonest()
        assert soonest(100) == first
        assert soonest(1) != first
        check()
    with until(monotonic() - 1), pytest.raises(OutOfTime):
        check()
    assert soonest() is None
