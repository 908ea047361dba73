"""Distances are what their definitions say, and only compare what can be compared."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pytest
from duckdb import DuckDBPyConnection

from ldpsql.errors import InvalidParameter
from ldpsql.mechanisms import Distances, Grid, Line
from ldpsql.questions import distances
from tests import seeds

RNG = seeds.generator(__name__)  # data for the tests; no claim depends on a seed


def pairs(size: int, count: int = 20) -> list[tuple[Any, Any]]:
    drawn = [RNG.dirichlet(np.full(size, alpha), 2) for alpha in RNG.choice([0.1, 1, 5], count)]
    return [(p, q) for p, q in drawn]


def test_hand_solved_distances() -> None:
    p, q = [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]
    assert distances.total_variation(p, q) == pytest.approx(0.5)
    assert distances.emd(p, q) == pytest.approx(1)
    assert distances.wasserstein(p, q, 2) == pytest.approx(1)  # both halves move one step
    assert distances.wasserstein(p, q, 1, [0, 10, 40]) == pytest.approx(20)
    assert distances.mse(p, q) == pytest.approx(1 / 6)
    assert distances.mae(p, q) == pytest.approx(1 / 3)
    assert distances.js_divergence([1, 0], [0, 1]) == pytest.approx(np.log(2))
    assert distances.emd([1, 0, 0, 0], [0, 0, 0, 1], Grid(2, 2, Fraction(3))) == pytest.approx(3 * np.sqrt(2))
    assert distances.emd([0.5, 0, 0, 0.5], [0, 0.5, 0.5, 0], Grid(2, 2, Fraction(1))) == pytest.approx(1)


GRID = Grid(3, 3, Fraction(1))


def test_distances_are_symmetric_zero_for_equals_and_keep_the_triangle() -> None:
    for p, q in pairs(9):
        middle = RNG.dirichlet(np.ones(9))
        for distance in (
            distances.total_variation,
            distances.emd,
            distances.wasserstein,
            lambda a, b: distances.emd(a, b, GRID),
        ):
            assert distance(p, q) == pytest.approx(distance(q, p), abs=1e-8)
            assert distance(p, p) == pytest.approx(0, abs=1e-12)
            assert distance(p, q) <= distance(p, middle) + distance(middle, q) + 1e-8
        assert distances.js_divergence(p, q) == pytest.approx(distances.js_divergence(q, p))
        assert 0 <= distances.js_divergence(p, q) <= np.log(2)
        assert distances.js_divergence(p, p) == pytest.approx(0, abs=1e-15)


def test_the_linear_programme_and_the_sum_on_the_line_agree() -> None:
    for p, q in pairs(8):
        table = Distances(tuple(tuple(Fraction(abs(x - y)) for y in range(8)) for x in range(8)))
        expected = np.abs(np.cumsum(p - q)).sum()
        assert distances.emd(p, q) == pytest.approx(expected, abs=1e-9)
        assert distances.emd(p, q, Line(8)) == pytest.approx(expected, abs=1e-9)
        assert distances.emd(p, q, table) == pytest.approx(expected, abs=1e-7)
        assert distances.emd(p, q, Grid(8, 1, Fraction(1))) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("power", ["MAP {1.5: 2}", "[1]", "'1'", "true"])
def test_a_power_that_is_no_number_is_refused(con: DuckDBPyConnection, power: str) -> None:
    with pytest.raises(duckdb.Error, match=r"\[LDP103\] power must be a number of at least 1"):
        con.execute(f"SELECT ldp.distance_between([1.0, 0], [0.5, 0.5], 'wasserstein', power := {power})")


def test_wasserstein_of_a_power_is_that_of_many_quantiles() -> None:
    at = np.array([0.0, 1.0, 5.0, 2.5])
    for p, q in pairs(4):
        order = np.argsort(at)
        levels = (np.arange(200_000) + 0.5) / 200_000
        quantiles = [at[order][np.searchsorted(s[order].cumsum(), levels).clip(max=3)] for s in (p, q)]
        for power in (1, 2, 3.5):
            expected = (np.abs(quantiles[0] - quantiles[1]) ** power).mean() ** (1 / power)
            assert distances.wasserstein(p, q, power, at) == pytest.approx(expected, rel=1e-2, abs=1e-2)


@pytest.mark.parametrize(
    ("p", "q"),
    [
        ([0.5, 0.5], [1.0]),
        ([0.5, 0.6], [0.5, 0.5]),
        ([1.5, -0.5], [0.5, 0.5]),
        ([np.nan, 1], [0.5, 0.5]),
        ([], []),
        (["a"], [1]),
    ],
)
def test_what_is_not_two_distributions_is_refused(p: Any, q: Any) -> None:
    for distance in (distances.total_variation, distances.js_divergence, distances.emd, distances.wasserstein):
        with pytest.raises(InvalidParameter):
            distance(p, q)


def test_errors_take_any_numbers_of_equal_length() -> None:
    assert distances.mse([1.5, -0.5], [0.5, 0.5]) == 1
    for distance in (distances.mse, distances.mae):
        with pytest.raises(InvalidParameter):
            distance([1.0], [1.0, 2.0])
        with pytest.raises(InvalidParameter):
            distance([np.inf], [1.0])
    with pytest.raises(InvalidParameter):
        distances.wasserstein([1.0], [1.0], 0.5)
    with pytest.raises(InvalidParameter):
        distances.emd([0.5, 0.5], [0.5, 0.5], Grid(2, 2, Fraction(1)))


def test_in_sql_they_take_lists_and_estimates(con: DuckDBPyConnection) -> None:
    def value(sql: str) -> Any:
        row = con.execute(f"SELECT {sql}").fetchone()
        assert row is not None
        return row[0]

    for name in ("total_variation", "js_divergence", "mse", "mae", "emd", "wasserstein"):
        expected = getattr(distances, name)([0.5, 0.5, 0], [0.25, 0.25, 0.5])
        assert value(f"ldp.distance_between([0.5, 0.5, 0], [0.25, 0.25, 0.5], '{name}')") == pytest.approx(expected)
        assert value(f"ldp.distance_between([0.5, 0.5], NULL, '{name}')") is None
        estimates = f"ldp.distance_between(ldp.ibu(x, city()), [1, 0, 0, 0], '{name}') FROM (SELECT 'Lima' AS x)"
        assert value(estimates) == pytest.approx(getattr(distances, name)([1, 0, 0, 0], [1, 0, 0, 0]), abs=1e-12)
    for p, q, rest, expected in (
        ([1, 0, 0], [0, 0, 1], "'emd', ldp.krr(1, [10, 20, 50])", 40),
        ([1, 0], [0, 1], "'emd', ldp.krr(1, [DATE '2020-01-01', DATE '2020-01-31'])", 30),
        ([1, 0, 0, 0], [0, 0, 0, 1], "'emd', ldp.planar_geometric(1, 2, 2, side := 3)", 18**0.5),
        ([0.5, 0.5, 0], [0, 0.5, 0.5], "'wasserstein', ldp.krr(1, [10, 20, 50]), power := 2", 500**0.5),
    ):
        assert value(f"ldp.distance_between({p}, {q}, {rest})") == pytest.approx(expected)
    for sql, code in {
        "ldp.distance_between([1, 0, 0, 0], [0, 0, 0, 1], 'emd', city())": "LDP102",
        "ldp.distance_between([1, 0], [0, 1], 'emd', ldp.krr(1, [1, 2, 3]))": "LDP103",
        "ldp.distance_between([1, NULL], [0, 1], 'mse')": "LDP103",
        "ldp.distance_between('canary', [0, 1], 'mse')": "LDP103",
        "ldp.distance_between(ldp.ibu(x, ldp.krr(1, [1, 2])), ldp.ibu(x, ldp.krr(1, [1, 3]))) FROM (SELECT 1 AS x)": "LDP103",
        "ldp.distance_between([1, 0], [0, 1], 'wasserstein', power := 'canary')": "LDP103",
        "ldp.distance_between([1, 0], [0, 1], 'canary')": "LDP103",
        "ldp.distance_between([1, 0], [0, 1], NULL)": "LDP103",
    }.items():
        with pytest.raises(duckdb.Error) as caught:
            con.execute(f"SELECT {sql}").fetchall()
        assert f"[{code}]" in str(caught.value)
        assert "canary" not in str(caught.value)


@pytest.mark.parametrize("metric", distances.DISTANCES)
def test_the_distance_from_known_shares_is_that_from_the_estimate(con: DuckDBPyConnection, metric: str) -> None:
    con.execute("CREATE MACRO m() AS ldp.krr(2, [1, 3, 9])")
    con.execute("CREATE TABLE r AS SELECT i % 2 AS g, ldp.perturb([1, 3, 9][1 + i % 3], m()) AS x FROM range(600) t(i)")
    con.execute("CREATE TABLE known AS FROM (VALUES (9, 0.5), (1, 0.25), (3, 0.25)) AS t(value, share)")
    places = ", m()" if metric in ("emd", "wasserstein") else ""
    scalar = f"ldp.distance_between(ldp.ibu(x, m()), [0.25, 0.25, 0.5], '{metric}'{places})"
    expected = con.execute(f"SELECT g, {scalar} FROM r GROUP BY g ORDER BY g").fetchall()
    rows = f"ldp.distance(x, m(), (SELECT list(k) FROM known AS k), metric := '{metric}').distance"
    assert con.execute(f"SELECT g, {rows} FROM r GROUP BY g ORDER BY g").fetchall() == expected
    listed = f"FROM ldp.distance(r, x, m(), [0.25, 0.25, 0.5], metric := '{metric}', by := g)"
    assert con.execute(f"SELECT g, distance {listed} ORDER BY g").fetchall() == expected


@pytest.mark.parametrize(
    "shares",
    ["[0.5, 0.5]", "NULL", "['a', 'b', 'c']", "[0.5, 0.5, NULL]", "[0.5, 0.5, 0.5]", "[{v: 1, s: 0.5}, {v: 1, s: 0.5}]",
     "[{v: 2, s: 1.0}]", "[{v: 1, s: 'x'}]", "[]", "[{v: NULL, s: 1.0}]", "3", "[0.5, 0.5, 0.0], metric := 'none'",
     "[50, 30, 20], metric := 'mse'", "[1.5, -0.5, 0.0], metric := 'mae'"],
)  # fmt: skip
def test_what_are_no_known_shares_is_refused(con: DuckDBPyConnection, shares: str) -> None:
    with pytest.raises(duckdb.Error, match=r"\[LDP103\].* Hint: "):
        con.execute(f"SELECT ldp.distance(1, ldp.krr(2, [1, 3, 9]), {shares})")
