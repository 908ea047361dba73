"""The verdict of a diagnosis says how much was learnt about the shares, apart from whether the estimate is the maximum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from duckdb import DuckDBPyConnection
from scipy.stats import binom

import ldpsql
from ldpsql.estimators import Floats
from ldpsql.functions import registry
from ldpsql.questions import Estimates
from ldpsql.testing import estimate_counts, operator_of
from tests.seeds import generator

SHAPES: dict[str, Callable[[int], Floats]] = {
    "zipf": lambda size: 1.0 / np.arange(1, size + 1),
    "bell": lambda size: np.exp(-(((np.arange(size) - 0.35 * size) / (0.15 * size)) ** 2)) + 0.01,
    "comb": lambda size: np.where(np.arange(size) % 5 == 1, 1.0, 0.02),
    "even": np.ones,
}
RNG = generator("verdicts")
WORTHLESS = [(1000, 0.25, 300), (200, 0.25, 200), (1000, 1, 500), (5, 0.1, 50), (50, 0.5, 200)]
GOOD = [(4, 1, 5_000), (10, 1, 200_000), (20, 2, 50_000), (60, 3, 100_000), (2, 0.5, 20_000)]


def drawn(size: int, epsilon: float, reports: int, shape: str, groups: int = 1) -> Estimates:
    """Return estimates from reports of k-RR on values of this distribution."""
    mechanism = registry().mechanism(f"krr({epsilon}, {list(range(size))})")
    law = operator_of(mechanism).forward((SHAPES[shape](size) / SHAPES[shape](size).sum())[None])[0]
    counts = RNG.multinomial(reports, law / law.sum(), groups).astype(np.float64)
    return estimate_counts(mechanism, counts, registry().estimator("ibu"))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("size", "epsilon", "reports"), WORTHLESS)
def test_nothing_is_learnt_from_worthless_reports_although_the_maximum_is_certified(
    size: int, epsilon: float, reports: int, shape: str
) -> None:
    estimates = drawn(size, epsilon, reports, shape, groups=20)
    diagnoses = [estimates[group].diagnosis for group in range(20)]
    assert {one.status for one in diagnoses} == {"certified"}
    # A share stands out in one group of a hundred: in more than eight of twenty with a chance of 1e-11.
    assert sum(one.verdict == "nothing learnt" for one in diagnoses) >= 12
    assert not any(one.verdict == "usable" for one in diagnoses)
    worthless = next(one for one in diagnoses if one.verdict == "nothing learnt")
    assert (worthless.enough_reports or 0) > reports
    assert f"{worthless.enough_reports:,} reports would be enough" in worthless.remedy


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("size", "epsilon", "reports"), GOOD)
def test_good_estimates_are_usable(size: int, epsilon: float, reports: int, shape: str) -> None:
    diagnosis = drawn(size, epsilon, reports, shape)[0].diagnosis
    assert diagnosis.verdict == "usable"
    assert (diagnosis.enough_reports or reports) < reports
    assert "would be enough" not in diagnosis.remedy


@pytest.mark.slow
def test_equal_shares_stand_out_no_more_often_than_promised() -> None:
    groups = 1500
    verdicts = [
        drawn_group.learnt.verdict.words for drawn_group in map(drawn(30, 1, 400, "even", groups).__getitem__, range(groups))
    ]
    assert sum(one != "nothing learnt" for one in verdicts) <= binom.isf(1e-6, groups, 0.015)


def test_a_few_heavy_rows_make_no_share_stand_out(con: DuckDBPyConnection) -> None:
    """All shares are equal, and the weights of the rows so unequal that a hundred are worth fourteen."""
    groups = 300
    weights = pl.DataFrame({"g": np.repeat(np.arange(groups), 100), "w": 1 / (RNG.random(100 * groups) + 1e-3)})
    con.register("weights", weights)
    drawn = "ldp.perturb(row_number() OVER () % 5, ldp.krr(1, range(5)))"
    con.execute(f"CREATE TABLE weighted AS SELECT g, w, {drawn} AS r FROM weights")
    told = con.sql("SELECT verdict FROM ldp.diagnose(weighted, r, ldp.krr(1, range(5)), by := g, weight := w)").fetchall()
    assert sum(one != ("nothing learnt",) for one in told) <= binom.isf(1e-6, groups, 0.02)


def test_as_many_reports_as_are_said_to_be_enough_are_usable() -> None:
    few = drawn(20, 1, 3_000, "zipf")[0].diagnosis
    assert few.verdict != "usable"
    assert few.enough_reports is not None
    assert drawn(20, 1, 2 * few.enough_reports, "zipf")[0].diagnosis.verdict == "usable"


def test_only_the_largest_values_of_many_are_known() -> None:
    diagnosis = drawn(1000, 1, 2_000_000, "zipf")[0].diagnosis
    assert diagnosis.verdict == "only the largest values"
    assert "show only the largest shares" in diagnosis.remedy


def test_ranges_make_numbers_usable_whose_neighbours_are_not_distinguished() -> None:
    mechanism = registry().mechanism("square_wave(1, 0, 100, bins=64)")
    law = operator_of(mechanism).forward((SHAPES["bell"](64) / SHAPES["bell"](64).sum())[None])[0]
    few, many = (
        estimate_counts(mechanism, RNG.multinomial(n, law / law.sum(), 1).astype(np.float64), registry().estimator("best"))[0]
        for n in (60, 30_000)
    )
    assert few.diagnosis.verdict != many.diagnosis.verdict == "usable"


def test_every_surface_has_the_verdict(con: DuckDBPyConnection) -> None:
    reports = pl.DataFrame({"x": ["a", "b", "c"] * 5})
    con.register("reports", reports)
    made = "krr(0.1, ['a', 'b', 'c'])"
    row = con.execute(
        f"SELECT d.verdict, d.status, d.enough_reports FROM (SELECT ldp.diagnose(x, ldp.{made}) AS d FROM reports)"
    ).fetchone()
    one = ldpsql.estimate(reports, made)
    assert row == ("nothing learnt", "certified", one.diagnosis.enough_reports)
    assert "nothing learnt, certified" in repr(one)
