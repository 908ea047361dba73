"""Domains of thousands of values, read through characters of a finite field: nothing is made for each pair of values."""

import tracemalloc
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql import Estimate, KeepOrSpread, Likelihood, Status
from ldpsql.channels import native
from ldpsql.channels.hashed import hashed
from ldpsql.errors import InvalidParameter, NotApplicable, NotReports
from ldpsql.estimators import block_maximum, maximum_likelihood
from ldpsql.functions import fingerprint, registry
from ldpsql.inference.operators import CharacterOperator, ListedOperator, supports
from ldpsql.inference.solver.mle import _SOLVED
from ldpsql.mechanisms import TOTAL, OrthogonalHash, PrivateHash, base, certify
from ldpsql.testing import estimate_counts
from plugins.mechanisms.olh import Olh
from tests import seeds

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
    """Ratios of errors vary by a third after two draws, as logarithms; those bounded here are .009, .11 and .19 (110 draws)."""
    error = dict.fromkeys(("inv", "inv_p", "pool", "best"), 0.0)
    for _ in range(2):
        truth, counts = drawn(REPORTS)
        for name in error:
            error[name] += ((estimated(counts, name).estimate - truth) ** 2).sum()
    assert error["inv_p"] < error["inv"] / 2
    assert max(error["pool"], error["best"]) < error["inv_p"]


def test_equal_reports_are_refused_even_if_few_and_honest_ones_are_not() -> None:
    """Of honest reports at most half support an absent value; fifty equal ones support all of its hash."""
    counts = np.zeros(drawn(10)[1].shape)
    counts[5] = 60
    with pytest.raises(NotReports):
        estimated(counts, "inv")
    counts[5] = 3
    assert estimated(counts, "inv").diagnosis.fit_p_value > 0.001
    for people in (10, 60, 1_000):
        assert estimated(drawn(people)[1], "inv").diagnosis.fit_p_value > 1e-6


def test_what_needs_all_pairs_of_many_values_is_refused_with_a_reason() -> None:
    with pytest.raises(NotApplicable, match="at most 2048 values"):
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


def test_reports_of_several_epsilons_over_many_values_are_estimated_without_a_table_of_pairs(
    con: DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over 20,000 values it took 3 GB a table, and no deadline held. The errors are those of the curvature, nearly."""
    levels = "MAP {'lo': ldp.olh(1, range(600)), 'hi': ldp.olh(3, range(600))}"
    drawn = f"SELECT lev, ldp.perturb(i % 50, {levels}, lev) AS r FROM people"
    con.execute("CREATE TABLE people AS SELECT i, CASE WHEN i % 3 = 0 THEN 'lo' ELSE 'hi' END AS lev FROM range(3000) t(i)")
    con.execute(f"CREATE TABLE drawn AS {drawn}")
    estimates = []
    for most in (2048, 100):
        monkeypatch.setattr(supports, "MOST_PAIRS", most)
        base._CERTIFIED.clear()
        _SOLVED.clear()
        rows = con.execute(
            f"SELECT unnest(ldp.ibu({{level: lev, report: r}}, {levels}), recursive := true) FROM drawn"
        ).fetchnumpy()
        estimates.append((rows["estimate"], rows["std_error"]))
    base._CERTIFIED.clear()
    (usual, errors), (large, rough) = estimates
    assert np.abs(usual - large).max() < 1e-5
    assert (np.abs(rough / errors - 1) < 0.2).all()


def test_several_reports_of_a_person_over_many_values_have_errors_without_a_table_of_pairs(con: DuckDBPyConnection) -> None:
    """A table of all pairs of 20,000 values takes 3 GB. One person says nothing about how people differ."""
    tracemalloc.start()
    try:
        sql = "SELECT ldp.ibu([1, 0, 1], ldp.krr(9, range(20000))), ldp.mean([1, 0, 1], ldp.krr(9, range(20000))).std_error"
        ((rows, error),) = con.execute(sql).fetchall()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 28
    assert error is None
    assert [row["value"] for row in rows if row["estimate"] > 0] == [1]
    keep, lie = np.exp(9) / (np.exp(9) + 19_999), 1 / (np.exp(9) + 19_999)
    assert rows[1]["std_error"] == pytest.approx((keep * (1 - keep) / 3) ** 0.5 / (keep - lie), rel=1e-6)


LARGE = ["olh(2, DOMAIN, seeds='private')", "oue(2, DOMAIN)", "rappor(2, DOMAIN)", "subset_selection(2, DOMAIN)"]


def likelihood_of(text: str, size: int, people: int) -> Likelihood:
    mechanism = registry().mechanism(text.replace("DOMAIN", str(list(range(size)))))
    return ldpsql.estimate(certify(mechanism).perturb(pa.array(np.arange(people) % 7)), mechanism, "uniform").likelihood


@pytest.mark.parametrize("text", LARGE)
def test_the_maximum_of_thousands_of_shares_of_observed_sets_is_certified(text: str) -> None:
    one = likelihood_of(text, 2_500, 3_000)
    fit = registry().estimator("ibu").fit(one)
    assert fit.status == (Status.CERTIFIED,)
    assert one.gap(fit.theta)[0] <= 1e-9
    with pytest.raises(NotApplicable, match="at most 2048 values"):
        one.operator.covariance(one.shares[0], fit.theta[0])


def test_gradients_and_newton_steps_find_the_same_maximum_of_many_observed_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    one = likelihood_of("oue(3, DOMAIN)", 40, 3_000)
    newton = registry().estimator("ibu").fit(one)
    monkeypatch.setattr(one.operator, "even", True)
    gradients = registry().estimator("ibu(tolerance=0.0000000005)").fit(one)  # another one: it is not remembered
    assert gradients.theta == pytest.approx(newton.theta, abs=1e-5)
    assert gradients.status == newton.status == (Status.CERTIFIED,)


@pytest.mark.skipif(native.kernels() is None, reason="installed without a C compiler")
@pytest.mark.parametrize("size", [2, 7, 8, 9, 300])
@pytest.mark.parametrize("symbols", [2, 3, 20, 149, 1 << 20, (1 << 31) - 1])
def test_the_kernel_finds_the_sets_of_hashed_reports_that_python_finds(symbols: int, size: int) -> None:
    draw = np.random.default_rng(symbols)
    seeds, y = (draw.integers(0, end, 1500, dtype=np.uint64) for end in (2**64, symbols))
    seeds[:4] = [0, 1, 2**63, 2**64 - 1]
    hashes = hashed(seeds[:, None], np.arange(size, dtype=np.int32), symbols)
    y[:700] = hashes[:700, size - 1]  # with many symbols a report seldom has a member
    y[700:710] = symbols - 1
    found = native.hash_sets(seeds[::3], y[::3], size, symbols)  # every third: the columns of reports are not contiguous
    assert found is not None
    assert (found == np.packbits(hashes == y.astype(np.int32)[:, None], axis=1, bitorder="little").T[:, ::3]).all()


@pytest.mark.parametrize("symbols", [2, 3, 4, 5, 7, 8, 9, 16, 25, 27, 149])
def test_sums_by_characters_are_those_over_the_sets(symbols: int) -> None:
    """A wrong character, of a prime or of a power, changes a sum."""
    channel = OrthogonalHash(min(40, symbols**3), KeepOrSpread.within(symbols, Fraction(3)))
    draw, by_characters, listed = np.random.default_rng(symbols), CharacterOperator(channel), ListedOperator(channel)
    theta, w = draw.dirichlet(np.ones(channel.inputs), 2), draw.random((2, channel.outputs))
    assert by_characters.forward(theta) == pytest.approx(listed.forward(theta), rel=1e-9)
    assert by_characters.adjoint(w) == pytest.approx(listed.adjoint(w), rel=1e-9)
    assert by_characters.forward(theta[0]) == pytest.approx(by_characters.forward(theta)[0], rel=1e-12)


@pytest.mark.parametrize("seeds", ["orthogonal", "private"])
def test_symbols_that_are_given_are_used_and_the_default_keeps_its_meaning(seeds: str) -> None:
    plain, same, other = (Olh(epsilon=5, domain=range(2_500), seeds=seeds, symbols=g) for g in (None, 149, 64))
    assert Olh(epsilon=5, domain=range(2_500), seeds=seeds) == plain
    assert "symbols" not in plain.to_json()
    channel: Any = certify(other).channel
    assert channel.response.size == 64
    assert certify(plain).channel == certify(same).channel
    assert len({fingerprint(plain).split()[0], fingerprint(other).split()[0]}) == 2


def test_symbols_that_no_field_has_are_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidParameter, match="the nearest are 5 and 7") as refusal:
        certify(Olh(epsilon=1, domain=range(100), symbols=6))
    assert refusal.value.code == "LDP103"
    assert certify(Olh(epsilon=1, domain=range(100), symbols=6, seeds="private")).epsilon <= 1


@pytest.mark.parametrize("seeds", ["orthogonal", "private"])
@pytest.mark.parametrize("epsilon", ["0.5", "1", "2", "3", "5"])
def test_the_realised_epsilon_follows_from_where_the_sampler_changes_its_mind(epsilon: str, seeds: str) -> None:
    """Independent of the certificate: the words at which the response changes are looked up in draws, and counted."""
    certified = certify(Olh(epsilon=epsilon, domain=range(2_500), seeds=seeds))
    channel: Any = certified.channel
    pieces = responses(channel, np.arange(0, 2_500, 125, dtype=np.int32))
    masses = [{y: sum(mass for other, mass in parts if other == y) for y, _ in parts} for parts in pieces]
    assert all(sum(mass.values()) == TOTAL and len(mass) == channel.response.size for mass in masses)
    largest = max(Decimal(a[y]) / b[y] for a in masses for b in masses for y in a)
    assert largest <= Decimal(epsilon).exp()
    assert float(largest.ln()) == pytest.approx(certified.epsilon, abs=1e-12)


def responses(channel: Any, values: np.ndarray) -> list[list[tuple[int, int]]]:
    """Return for each value, under one seed, the responses with the number of words that lead to them."""
    edges = [*(i * channel.response.spread for i in range(channel.response.size)), TOTAL]
    inside = [*edges[:-1], *(edge - 1 for edge in edges[1:]), *((a + b) // 2 for a, b in pairwise(edges))]
    place = [*range(len(edges) - 1)] * 3
    pieces = []
    for value in values:
        calls = iter([np.full(len(inside), 12345 << 40, dtype=np.uint64), np.array(inside, dtype=np.uint64)])
        drawn = channel.draw(np.full(len(inside), value, dtype=np.int32), lambda _: next(calls))  # noqa: B023  # called at once
        y = drawn[:, 1].astype(np.int64) if drawn.ndim == 2 else drawn.astype(np.int64) % channel.response.size
        parts = [set(y[np.array(place) == i].tolist()) for i in range(len(edges) - 1)]
        assert all(len(part) == 1 for part in parts)  # the same at both ends of a piece, and in its middle
        pieces.append([(part.pop(), b - a) for part, (a, b) in zip(parts, pairwise(edges), strict=True)])
    return pieces


@pytest.mark.parametrize("size", [2_500, 10_000])
def test_every_function_is_drawn_equally_often(size: int) -> None:
    """The words at which the function changes are evenly spaced; the last one has the rest, less than a part in 10^9 more."""
    channel = certify(Olh(epsilon=1, domain=range(size))).channel
    assert isinstance(channel, OrthogonalHash)
    step = TOTAL // channel.seeds
    starts = np.arange(channel.seeds, dtype=np.uint64) * np.uint64(step)
    for words in (starts, starts + np.uint64(step - 1)):
        calls = iter([words, np.zeros(channel.seeds, dtype=np.uint64)])
        drawn = channel.draw(np.zeros(channel.seeds, dtype=np.int32), lambda _: next(calls))  # noqa: B023
        assert (drawn // channel.response.size == np.arange(channel.seeds)).all()
    assert (TOTAL - step * channel.seeds) / step < 1e-9


def test_a_private_seed_is_a_whole_random_word() -> None:
    channel = certify(Olh(epsilon=1, domain=range(9), seeds="private")).channel
    assert isinstance(channel, PrivateHash)
    words = seeds.words(1000)
    calls = iter([words, np.zeros(1000, dtype=np.uint64)])
    drawn = channel.draw(np.zeros(1000, dtype=np.int32), lambda _: next(calls))
    assert (drawn[:, 0] == words).all()
