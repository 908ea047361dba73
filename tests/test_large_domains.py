"""Domains of thousands of values, read through characters of a finite field: nothing is made for each pair of values."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

import ldpsql
from ldpsql.channels import KeepOrSpread, OrthogonalHash
from ldpsql.errors import NotApplicable
from ldpsql.estimates.estimate import Estimate, estimate_counts
from ldpsql.estimators.pooling import block_maximum
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import CharacterOperator, ListedOperator
from ldpsql.inference.operators.orthogonal import MOST_PAIRS
from ldpsql.inference.solver.mle import maximum_likelihood
from ldpsql.mechanisms import certify
from ldpsql.registry.registry import registry
from plugins.mechanisms.olh import Olh

VALUES, REPORTS = 10_000, 200_000
MECHANISM = Olh(epsilon=1, domain=range(VALUES))


def small(isotropic: bool) -> CharacterOperator:
    op = CharacterOperator(OrthogonalHash(60, KeepOrSpread.within(3, Fraction(3))))
    op.isotropic = isotropic
    return op


def drawn(people: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the true shares, a tenth of the people at one of ten values each, and the counts of their reports."""
    truth = np.zeros(VALUES)
    truth[np.arange(10) * 997] = 0.1
    values = np.repeat(np.arange(10) * 997, people // 10).astype(np.int32)
    channel = certify(MECHANISM).channel
    assert isinstance(channel, OrthogonalHash)
    return truth, np.bincount(channel.draw(values), minlength=channel.outputs).astype(np.float64)


def estimated(counts: np.ndarray, estimator: str) -> Estimate:
    return estimate_counts(MECHANISM, counts[None], registry().estimator(estimator))[0]


def test_projected_gradients_and_newton_steps_find_the_same_maximum() -> None:
    counts = np.random.default_rng(7).multinomial(3_000, np.full(small(False).outputs, 1 / small(False).outputs))
    newton, projected = (
        maximum_likelihood(Likelihood(small(isotropic), counts[None].astype(np.float64))) for isotropic in (False, True)
    )
    assert projected.theta == pytest.approx(newton.theta, abs=1e-6)
    assert [status.value for status in projected.status] == ["certified"]


def test_a_maximum_with_tied_values_is_that_of_their_blocks() -> None:
    counts = np.random.default_rng(8).multinomial(3_000, np.full(small(False).outputs, 1 / small(False).outputs))
    block = np.arange(60) % 7
    exact, tied = (block_maximum(Likelihood(small(on), counts[None].astype(np.float64)), block)[0] for on in (False, True))
    assert tied == pytest.approx(exact, abs=1e-6)
    assert all(np.ptp(tied[0, block == b]) == pytest.approx(0, abs=1e-15) for b in range(7))


def test_curvature_without_a_table_of_sets_is_that_with_one() -> None:
    w, among = np.random.default_rng(9).random(small(True).outputs), np.array([3, 50, 7])
    listed = ListedOperator(OrthogonalHash(60, KeepOrSpread.within(3, Fraction(3))))
    assert small(True).curvature(w, among) == pytest.approx(listed.curvature(w, among), rel=1e-9)
    assert small(True).rough_curvature(w, among) == pytest.approx(listed.curvature(w, among), rel=1e-5)


def test_the_error_of_an_inversion_of_ten_thousand_shares_is_that_of_the_theory() -> None:
    """False alarm about 1e-6: the mean of 10,000 squared errors varies by 1.4 % of itself."""
    truth, counts = drawn(REPORTS)
    one = estimated(counts, "inv")
    theory = 4 * np.e / ((np.e - 1) ** 2 * REPORTS)
    assert float(((one.estimate - truth) ** 2).mean()) == pytest.approx(theory, rel=0.075)
    covered = ((one.low <= truth) & (truth <= one.high)).mean()
    assert 0.965 < covered < 0.985  # of absent values only the low end can miss: 97.5 %, give or take .16 %


def test_the_maximum_of_ten_thousand_shares_is_certified_with_intervals_and_diagnosed() -> None:
    truth, counts = drawn(REPORTS)
    one = estimated(counts, "ibu")
    assert one.diagnosis.status == "certified"
    assert one.diagnosis.gap <= 1e-9
    assert one.diagnosis.fit_p_value > 1e-6
    assert ((one.low <= truth) & (truth <= one.high)).mean() > 0.935
    assert not np.isinf(one.std_error).any()


def test_shrinking_ten_thousand_shares_lowers_the_error_and_best_finds_that() -> None:
    truth, counts = drawn(REPORTS)
    error = {name: ((estimated(counts, name).estimate - truth) ** 2).sum() for name in ("inv", "inv_p", "pool", "best")}
    ranked = [error[name] for name in ("inv", "inv_p", "pool")]
    assert all(before > 2 * after for before, after in pairwise(ranked))
    assert error["best"] < error["inv_p"] / 2


def test_what_needs_all_pairs_of_many_values_is_refused_with_a_reason() -> None:
    with pytest.raises(NotApplicable, match=f"at most {MOST_PAIRS} values"):
        _ = estimated(drawn(1_000)[1], "ibu").covariance


def test_ten_thousand_values_through_sql() -> None:
    import duckdb  # noqa: PLC0415

    con = duckdb.connect()
    ldpsql.attach(con)
    con.execute("CREATE TABLE items AS SELECT 'item ' || i AS item FROM range(10000) t(i)")
    con.execute("SET VARIABLE m = ldp.olh(3, (SELECT list(item) FROM items))")
    con.execute("CREATE TABLE r AS SELECT ldp.perturb('item ' || (i % 10), getvariable('m')) AS y FROM range(20000) t(i)")
    query = "SELECT value, estimate FROM ldp.estimate('r', y, getvariable('m'), estimator := 'pool') ORDER BY 2 DESC LIMIT 10"
    top = con.execute(query).fetchall()
    assert {value for value, _ in top} == {f"item {i}" for i in range(10)}
    assert all(abs(share - 0.1) < 0.05 for _, share in top)
