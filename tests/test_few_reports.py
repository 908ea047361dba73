"""Groups of few reports, or of unlikely ones, have estimates that are numbers and intervals that admit to be uncertain."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql import partial_supports
from ldpsql.functions import registry
from ldpsql.pairs import ROW
from ldpsql.questions import Mean, RangeShare, Variance
from ldpsql.testing import estimate_counts

ESTIMATORS = ("inv", "inv_n", "inv_p", "base_cut", "ibu", "pool", "empirical_bayes", "corrected_em", "em_mr", "ems")
SPECS = ("krr(1, {})", "krr(4, {})", "truncated_geometric(1, 0, 5)", "truncated_geometric(3, 0, 5)", "laplace(2, 0, 5, bins=6)")
SIX = "[0, 1, 2, 3, 4, 5]"


def test_inv_n_is_a_distribution_where_no_inverted_share_is_positive(con: DuckDBPyConnection) -> None:
    row = con.execute("SELECT ldp.inv_n(r, ldp.oue(1, range(5))) FROM (SELECT [0::UBIGINT] AS r)").fetchone()
    assert row is not None
    assert [cell["estimate"] for cell in row[0]] == pytest.approx([0.2] * 5)
    assert all(cell["low"] < 0.2 < cell["high"] for cell in row[0])


@pytest.mark.parametrize("estimator", ["inv", "inv_n", "base_cut"])
def test_a_mean_is_a_number_where_no_inverted_share_is_positive(con: DuckDBPyConnection, estimator: str) -> None:
    call = f"ldp.mean(r, ldp.oue(1, range(5)), estimator := '{estimator}')"
    row = con.execute(f"SELECT {call} FROM (SELECT [0::UBIGINT] AS r FROM range(3))").fetchone()
    assert row is not None
    assert 0 <= row[0]["low"] <= row[0]["estimate"] <= row[0]["high"] <= 4


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_no_interval_has_width_zero_however_unlikely_the_reports(spec: str, estimator: str) -> None:
    mechanism = registry().mechanism(spec.format(SIX))
    counts = np.concatenate([34 * np.eye(6), np.full((1, 6), 2.0), 2 * np.eye(6)])
    estimates = estimate_counts(mechanism, counts, registry().estimator(f"{estimator}(misfit='allow')"))
    errors = estimates.intervals
    assert (errors.high - errors.low > 0.02).all()
    inside = (errors.low <= estimates.fit.theta) & (estimates.fit.theta <= errors.high)
    assert (inside | estimates.fit.regularised[:, None]).all()
    for functional in (Mean(), Variance(), RangeShare(1, 3)):
        number = functional.measure(estimates)
        assert (number.high - number.low > 0.005).all()


def test_no_interval_has_width_zero_where_reports_are_sets() -> None:
    mechanism = registry().mechanism(f"oue(2, {SIX})")
    table = partial_supports(pa.table({"r": [[0]] * 34}, pa.schema([("r", pa.list_(pa.uint64()))])), "r", mechanism).inv()
    assert (table["high"].to_numpy() - table["low"].to_numpy() > 0.02).all()


def test_no_interval_of_a_key_has_width_zero() -> None:
    for name in ("pckv_grr", "pckv_ue", "pckv_pm", "pckv_pm_ue"):
        mechanism = registry().mechanism(f"{name}(4, ['a', 'b', 'c'], padding=2)")
        reports = ldpsql.perturb([[{"key": "a", "value": 1.0}]] * 34, mechanism)
        alike = pa.concat_arrays([reports.slice(0, 1)] * 34)
        for column in (reports, alike):
            rows = ldpsql.key_value(column, mechanism).of.rows()[0]
            for low, high in (("low", "high"), ("mean_low", "mean_high")):
                assert (rows[:, ROW.index(high)] - rows[:, ROW.index(low)] > 0.002).all()
