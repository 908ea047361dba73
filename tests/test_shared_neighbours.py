"""Groups in order: neighbours are what a group is shrunk towards if they predict it better than all groups do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql.engine.groups import in_order
from ldpsql.errors import OutOfTime
from ldpsql.estimators import Estimator, Floats, Likelihood, sharing
from ldpsql.estimators.sharing.prior import runs_of
from ldpsql.functions import registry
from ldpsql.testing import operator_of
from tests.seeds import generator

RNG = generator(__name__)
VALUES, GROUPS = 4, 24
KEEP, SPREAD = 0.5, 0.5 / 3  # a ratio of 3
RESPONSE = operator_of(registry().mechanism("krr(1.098612288668, [0, 1, 2, 3])"))


def drifting() -> Floats:
    """Return shares that move from the first value to the last one."""
    at, place = np.linspace(0.0, VALUES - 1.0, GROUPS)[:, None], np.arange(VALUES)
    shares = np.maximum(0.0, 1.0 - np.abs(at - place) / 2.0)
    return shares / shares.sum(axis=1, keepdims=True)


def reports(shares: Floats, n: int) -> Likelihood:
    counts = RNG.multinomial(n, SPREAD + (KEEP - SPREAD) * shares)
    return Likelihood(RESPONSE, counts.astype(np.float64))


def learned(likelihood: Likelihood, **options: Any) -> tuple[Any, list[Estimator]]:
    estimator = registry().estimator({"estimator": "shared", **options})
    return estimator.learnt_in_order(likelihood.with_counts(likelihood.counts.sum(axis=0, keepdims=True)), [likelihood])


def error(likelihood: Likelihood, shares: Floats, **options: Any) -> float:
    runs, estimators = learned(likelihood, **options)
    fits = np.empty_like(shares)
    for run, estimator in enumerate(estimators):
        fits[runs == run] = estimator.fit(likelihood.with_counts(likelihood.counts[runs == run])).theta
    return float(np.abs(fits - shares).sum(axis=1).mean() / 2)


def test_groups_that_drift_lose_a_tenth_of_their_error_at_least() -> None:
    shares = drifting()
    likelihood = reports(shares, 400)  # the ratio is 0.56 +- 0.05
    assert error(likelihood, shares) <= 0.9 * error(likelihood, shares, neighbours="ignore")


def test_groups_whose_order_means_nothing_keep_the_common_mean() -> None:
    jumping = np.tile(np.eye(VALUES), (9, 1)) * 0.7 + 0.3 / VALUES  # neighbours differ more than others
    for shares in (jumping, np.full((GROUPS, VALUES), 1 / VALUES)):
        counts = np.rint(300 * (SPREAD + (KEEP - SPREAD) * shares))
        runs, estimators = learned(Likelihood(RESPONSE, counts))
        assert len(estimators) == 1
        assert len(runs) == len(shares)
        assert not runs.any()


def test_if_there_is_no_time_for_neighbours_the_common_mean_has_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object) -> None:
        raise OutOfTime

    monkeypatch.setattr(sharing, "with_neighbours", late)
    runs, estimators = learned(reports(drifting(), 50))
    assert len(estimators) == 1
    assert not runs.any()


@pytest.mark.parametrize("groups", [0, 1, 2])
def test_too_few_groups_have_no_neighbours(groups: int) -> None:
    likelihood = Likelihood(operator_of(registry().mechanism("krr(2, [0, 1])")), np.array([[9.0, 0.0], [0.0, 9.0]])[:groups])
    prior = sharing.Prior((0.5, 0.5), (0.1, 0.1), (1 / 17,) * 17, (1 / 17,) * 17)
    assert sharing.with_neighbours(prior, [likelihood] if groups else []) is None


def test_reports_that_are_no_votes_are_left_to_the_common_mean() -> None:
    mechanism = registry().mechanism("square_wave(epsilon=1, low=0, high=4, bins=4)")
    operator = operator_of(mechanism)
    counts = np.repeat(np.eye(operator.outputs), 3, axis=0)
    prior = sharing.Prior((0.25,) * 4, (0.1,) * 4, (1 / 17,) * 17, (1 / 17,) * 17)
    assert sharing.with_neighbours(prior, [Likelihood(operator, counts)]) is None


def test_runs_have_about_as_many_reports_each() -> None:
    assert runs_of(np.ones(5), 10).tolist() == [0, 1, 2, 3, 4]
    runs = runs_of(np.concatenate([np.full(300, 1.0), np.full(300, 3.0)]), 100)  # room for 2,000 / 100 of them
    sums = np.bincount(runs, weights=np.repeat([1.0, 3.0], 300))
    assert len(sums) == 20
    assert sums.min() >= 57
    assert sums.max() <= 63


@pytest.mark.parametrize(
    ("key", "ordered"),
    [
        (pa.int64(), True),
        (pa.date32(), True),
        (pa.timestamp("us"), True),
        (pa.float64(), True),
        (pa.decimal128(38, 0), True),
        (pa.string(), False),
        (pa.bool_(), False),
        (pa.struct([]), False),
        (pa.struct([("region", pa.string()), ("month", pa.int8())]), True),
        (pa.struct([("month", pa.int8()), ("region", pa.string())]), False),
    ],
)
def test_times_and_numbers_are_in_order(key: pa.DataType, ordered: bool) -> None:
    assert in_order(key) is ordered


@pytest.fixture
def days(con: DuckDBPyConnection) -> DuckDBPyConnection:
    """Return a connection with the reports of a population that moves from Lima to Rome, by day."""
    rng, shares = RNG, np.linspace(0.05, 0.95, 16)
    values = np.where(rng.random((16, 300)) < 0.2 + 0.6 * shares[:, None], "Rome", "Lima")
    frame = pa.table({"day": np.repeat(np.arange(16), 300), "city": values.ravel()})
    con.register("frame", frame)
    con.execute("CREATE TABLE seen AS SELECT day, DATE '2026-01-01' + day::INT AS date, 'd' || day AS name, city FROM frame")
    return con


MECHANISM = "krr(1.386, ['Lima', 'Rome'])"  # keeps 0.8
BY = """SELECT value, estimate, std_error, low, high, n FROM ldp.estimate(seen, city, ldp.krr(1.386,
        ['Lima', 'Rome']), by := {}, estimator := '{}') ORDER BY ALL"""


def test_the_type_of_the_key_decides_whether_groups_are_in_order(days: DuckDBPyConnection) -> None:
    by = {key: days.execute(BY.format(key, "shared")).fetchall() for key in ("day", "date", "name", "{'n': name, 'd': day}")}
    plain = days.execute(BY.format("day", 'shared(neighbours="ignore")')).fetchall()
    assert by["day"] == by["date"] != plain
    assert by["name"] == plain


@pytest.mark.parametrize("key", ["day", "date", "name"])
def test_a_table_of_estimates_has_the_same_neighbours_as_sql(days: DuckDBPyConnection, key: str) -> None:
    options: dict[str, Any] = {"report": "city", "keys": [key], "mechanism": MECHANISM, "estimator": "shared"}
    assert ldpsql.estimate_groups(days, "seen", "estimates", **options) == 16
    rows = days.execute(f"SELECT * EXCLUDE ({key}, borrowed) FROM estimates ORDER BY ALL").fetchall()
    assert rows == days.execute(BY.format(key, "shared")).fetchall()


def test_groups_without_reports_have_none_among_neighbours(days: DuckDBPyConnection) -> None:
    days.execute("INSERT INTO seen SELECT 12, DATE '2026-06-01', NULL, NULL UNION ALL SELECT 77, NULL, NULL, NULL")
    before = days.execute(BY.format("day", "shared")).fetchall()
    days.execute("DELETE FROM seen WHERE city IS NULL")
    assert days.execute(BY.format("day", "shared")).fetchall() == before
