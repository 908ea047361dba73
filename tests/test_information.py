"""Entropies of a value before and after its report, and how surely repeated reports identify it."""

from __future__ import annotations

from itertools import product

import duckdb
import numpy as np
import pytest
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray

from ldpsql.errors import InvalidParameter
from ldpsql.functions import registry
from ldpsql.mechanisms import Information, information_of, repeated_error

SYMMETRIC = "krr(1, ['a', 'b', 'c'])"
SKEWED = "matrix(['a', 'b'], [['1/2', '1/4', '1/4'], ['1/8', '3/8', '1/2']], reports := ['x', 'y', 'z'])"
ALIKE = "matrix(['a', 'b', 'c'], [['1/2', '1/2'], ['1/2', '1/2'], ['1/4', '3/4']], reports := ['x', 'y'])"


def table(con: DuckDBPyConnection, m: str, values: int) -> NDArray[np.float64]:
    rows = con.sql(f"SELECT probability FROM ldp.channel(ldp.{m})").fetchall()
    return np.array(rows).reshape(values, -1)


def identified_wrongly(rows: NDArray[np.float64], reports: int) -> float:
    """Return the largest probability that another value is at least as likely as the true one, over all words of reports."""
    words = np.array(list(product(range(rows.shape[1]), repeat=reports)))
    likelihood = rows[:, words].prod(axis=2)
    others = [np.delete(likelihood, x, axis=0).max(axis=0) for x in range(len(rows))]
    return max(float(own @ (other >= own * (1 - 1e-12))) for own, other in zip(likelihood, others, strict=True))


@pytest.mark.parametrize(("m", "values"), [(SYMMETRIC, 3), (SKEWED, 2), (ALIKE, 3)])
@pytest.mark.parametrize("reports", [1, 3, 7])
def test_repeated_reports_identify_a_value_at_least_as_surely_as_the_bound_says(
    con: DuckDBPyConnection, m: str, values: int, reports: int
) -> None:
    error = con.sql(f"SELECT unnest(ldp.repeated_error(ldp.{m}, {reports}))").pl().row(0, named=True)
    assert identified_wrongly(table(con, m, values), reports) <= error["error"] <= error["types_error"] <= 1


def test_the_divergence_is_the_rate_at_which_the_error_falls() -> None:
    """For two values that k-RR keeps with probability p, the overlap of their rows is 2 sqrt(p (1 - p))."""
    mechanism, keep = registry().mechanism("krr(1, ['a', 'b'])"), np.e / (np.e + 1)
    overlap = 2 * np.sqrt(keep * (1 - keep))
    bound = repeated_error(mechanism, 50)
    assert bound.divergence == pytest.approx(-np.log2(overlap))
    assert bound.error == pytest.approx(overlap**50)
    assert repeated_error(mechanism, 200).types_error == pytest.approx(201**2 * overlap**200)


def test_values_with_the_same_reports_are_never_identified() -> None:
    bound = repeated_error(registry().mechanism(ALIKE), 10_000)
    assert (bound.divergence, bound.error, bound.types_error) == (0, 1, 1)


def test_entropies_are_those_of_a_small_channel(con: DuckDBPyConnection) -> None:
    keep = np.e / (np.e + 1)
    joint = np.array([[keep, 1 - keep], [1 - keep, keep]]) * [[0.25], [0.75]]
    left = -(joint * np.log(joint / joint.sum(axis=0))).sum()
    before = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    ((row,),) = con.sql("SELECT ldp.information(ldp.krr(1, ['a', 'b']), [1, 3], 1)").fetchall()
    assert row.pop("least_information") <= before - left
    expected = {
        "entropy": before,
        "residual_entropy": left,
        "mutual_information": before - left,
        "average_distortion": 1 - keep,
    }
    assert row == pytest.approx(expected)
    for wrong in ("[1]", "[1, -1]", "[0, 0]", "['x', 'y']", "['NaN'::DOUBLE, 1]", "[1, 3], 'canary'", "[1, 3], 'inf'::DOUBLE"):
        with pytest.raises(duckdb.Error, match="LDP103") as refused:
            con.sql(f"SELECT ldp.information(ldp.krr(1, ['a', 'b']), {wrong})").fetchall()
        assert "canary" not in str(refused.value)


def test_reports_that_are_no_values_have_no_distortion() -> None:
    rounding, prior = registry().mechanism("stochastic_rounding(1, 0, 4)"), np.ones(1024)
    seen = information_of(rounding, prior)
    assert (seen.average_distortion, seen.least_information) == (None, None)
    with pytest.raises(InvalidParameter, match="not values of its domain"):
        information_of(rounding, prior, 1.0)


def test_a_value_that_is_certain_leaves_nothing_to_learn() -> None:
    certain = information_of(registry().mechanism(SYMMETRIC), np.array([0.0, 2.0, 0.0]))
    assert certain == Information(0, 0, 0, certain.average_distortion, None)
    assert certain.average_distortion == pytest.approx(2 / (np.e + 2))


@pytest.mark.parametrize("reports", ["0", "-1", "1.5", "NULL", "'canary'", "'nan'::DOUBLE", "'infinity'::DOUBLE"])
def test_reports_that_are_not_a_count_are_refused(con: DuckDBPyConnection, reports: str) -> None:
    with pytest.raises(duckdb.Error, match="LDP103") as refused:
        con.sql(f"SELECT ldp.repeated_error(ldp.{SYMMETRIC}, {reports})").fetchall()
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    "asked", ["repeated_error(ldp.krr(1, range(100000)), 3)", "information(ldp.krr(1, range(100000)), range(100000))"]
)
def test_tables_that_would_fill_the_memory_are_refused(con: DuckDBPyConnection, asked: str) -> None:
    with pytest.raises(duckdb.Error, match=r"LDP103.*100,000 x 100,000"):
        con.sql(f"SELECT ldp.{asked}").fetchall()


def test_mechanisms_without_a_table_are_refused() -> None:
    sets = registry().mechanism("oue(1, ['a', 'b'])")
    with pytest.raises(InvalidParameter, match="no table"):
        repeated_error(sets, 3)
    with pytest.raises(InvalidParameter, match="no table"):
        information_of(sets, np.ones(2))
