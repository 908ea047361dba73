"""Estimates: what every estimator makes of counts whose distribution is known, whatever mechanism drew the reports."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import norm

import ldpsql
from ldpsql import Counts, Estimate, merge
from ldpsql.errors import IllConditioned, InvalidDomain, NotApplicable
from ldpsql.functions import registry
from ldpsql.testing import DenseOperator, enumerated
from tests.laws.subjects import ESTIMATORS, LISTED, mechanism, of_pairs, reports, truth

MANY = 1e12
VALUES = [name for name in LISTED if not of_pairs(name)]
BIASED = {"observed", "ems", "iiw", "independent", "table_bayes"}  # by their definition, even with many reports
STOPPED = {"em_mr": 0.01, "best": 0.01}  # they take steps until these change little
SLOW = ["shared", "tree", "best", "independent", "table_bayes", "em_mr"]  # each mechanism meets one of them, each kind all


def applied(counts: Counts, name: str, estimator: str) -> Estimate | None:
    """Return an estimate, or None if the estimator does not apply to these reports."""
    try:
        return ldpsql.estimate(counts, mechanism(name), estimator)
    except (NotApplicable, InvalidDomain, IllConditioned):
        return None


@pytest.mark.parametrize("name", VALUES)
def test_every_estimator_gives_the_shares_back_from_expected_counts(name: str) -> None:
    shares = truth(len(reports(name).chances))
    counts = reports(name).expected(shares, MANY)
    applying, turn = set(), VALUES.index(name) % len(SLOW)
    others = [] if name in {"krr", "oue", "truncated_geometric", "row"} else [*SLOW[:turn], *SLOW[turn + 1 :]]
    for estimator in sorted({*ESTIMATORS} - {*others}):
        estimate = applied(counts, name, estimator)
        if estimate is None:
            continue
        applying.add(estimator)
        own, diagnosis = estimate.estimate, estimate.diagnosis
        assert diagnosis.reports == pytest.approx(MANY)
        assert own.shape == estimate.std_error.shape == shares.shape
        assert own.sum() == pytest.approx(1.0, abs=1e-9)
        assert registry().estimators[estimator].distribution is False or (own >= 0).all()
        assert (estimate.low <= estimate.high).all()
        if diagnosis.unique and diagnosis.status != "baseline" and estimator not in BIASED:
            assert own == pytest.approx(shares, abs=STOPPED.get(estimator, 1e-3)), estimator
        if diagnosis.status == "regularised":  # its errors are those of the unbiased estimate
            unbiased = ldpsql.estimate(counts, mechanism(name), "ibu").std_error
            assert np.allclose(estimate.std_error, unbiased, rtol=0.02) or np.isinf(unbiased).any(), estimator
    assert {"ibu", "uniform"} <= applying


@pytest.mark.parametrize("name", VALUES)
def test_an_estimate_of_merged_counts_is_that_of_all_reports_to_the_last_bit(name: str) -> None:
    numbers = np.rint(1000 * (truth(len(reports(name).chances)) @ reports(name).probabilities)) + 1
    part = np.floor(numbers / 3)
    whole, parts = reports(name).counted(numbers), [reports(name).counted(one) for one in (numbers - part, part)]
    for added in (merge(parts), parts[1] + parts[0], Counts.from_arrow(merge(parts).to_arrow())):
        assert len(added.reports) == len(whole.reports)
        assert (ldpsql.estimate(added, mechanism(name)).estimate == ldpsql.estimate(whole, mechanism(name)).estimate).all()


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("family", ["krr(1, {})", "olh(1, {})", "oue(2, {})"])
def test_the_order_of_the_values_changes_no_estimate(family: str, estimator: str) -> None:
    kind = registry().estimators[estimator]
    if kind.ordered:
        return
    numbers, order = np.array([[40, 31, 17, 8, 4]]), [3, 1, 4, 0, 2]
    text = "abcde"
    made = [registry().mechanism(family.format([text[at] for at in places])) for places in (range(5), order)]
    drawn = enumerated(made[0]).expected(numbers[0] / 100, 3000)
    other = enumerated(made[1]).expected(numbers[0][order] / 100, 3000)
    try:
        one, two = (ldpsql.estimate(counts, one, estimator).estimate for counts, one in ((drawn, made[0]), (other, made[1])))
    except NotApplicable:
        return
    assert one[order] == pytest.approx(two, abs=1e-5)


ALONE = (
    "truncated_geometric(0.3, 0, 39)",
    "square_wave(1, 0, 40, bins=40)",
    "hierarchy(1, 0, 64, bins=64, fanout=4, levels=3)",
)


@pytest.mark.parametrize("text", ["krr", "oue", "matrix", "hadamard_response", "olh, private seeds", *ALONE])
def test_a_maximum_is_certified_if_and_only_if_its_gap_is_within_the_tolerance(text: str) -> None:
    one = registry().mechanism(text) if text in ALONE else mechanism(text)
    listed = enumerated(one)
    shares = np.where(np.arange(len(listed.chances)) % 7 == 2, 1.0, 0.01)
    counts = listed.expected(shares / shares.sum(), 1e5)
    for tolerance in (1e-15, 1e-13, 1e-11, 1e-9, 1e-5):
        diagnosis = ldpsql.estimate(counts, one, f"ibu(tolerance={tolerance:.15f}, misfit='allow')").diagnosis
        assert diagnosis.status == ("certified" if diagnosis.gap <= tolerance else "rounded")


def test_an_estimate_that_ran_out_of_steps_is_certified_if_and_only_if_its_gap_is_within_the_tolerance() -> None:
    """On a map so large that the solver takes many steps, whose number decides on the gap; nothing depends on the data."""
    one = registry().mechanism("planar_geometric(1, 70, 70)")
    counts = ldpsql.partial_counts(pa.table({"r": ldpsql.perturb(np.arange(20_000) ** 2 % 4900, one)}), "r")

    def ended(steps: int, tolerance: float) -> tuple[str, float]:
        diagnosis = ldpsql.estimate(counts, one, f"ibu(max_iterations={steps}, tolerance={tolerance:.12f})").diagnosis
        assert diagnosis.iterations <= steps
        return diagnosis.status, diagnosis.gap

    for steps in (3, 12, 30):
        status, gap = ended(steps, 1e-9)
        assert status == "out of steps"
        assert ended(steps, gap / 30) == ("out of steps", gap)
        assert ended(steps, gap / 1.01) == ("out of steps", gap)
        assert ended(steps, gap * 1.01) == ("certified", gap)


def test_the_projection_of_an_inversion_is_the_nearest_distribution() -> None:
    """That is, what is subtracted is the same for all values that keep a share, and not less for the others than they have."""
    drawn = ["a"] * 90 + ["b"] * 108 + ["c"] * 112
    raw, near = (
        ldpsql.estimate(drawn, "krr(0.1, ['a', 'b', 'c'])", f"{name}(misfit='allow')").estimate for name in ("inv", "inv_p")
    )
    assert raw.min() < 0
    taken = (raw - near)[near > 0]
    assert taken == pytest.approx(np.full(len(taken), taken[0]))
    assert (raw[near == 0] <= taken[0]).all()
    assert near.sum() == pytest.approx(1)


def test_a_start_is_taken_as_shares() -> None:
    started = [
        ldpsql.estimate(["a", "b"], mechanism("krr"), f"ibu(start={start}, stop=0)")
        for start in ([0.8, 0.4, 0.4], [0.5, 0.25, 0.25])
    ]
    assert [list(one.estimate) for one in started] == [[0.5, 0.25, 0.25]] * 2


TABLES = ("krr", "matrix", "hadamard_response", "truncated_geometric", "geometric", "olh", "hierarchy", "laplace", "piecewise")


@pytest.mark.parametrize("name", TABLES)
def test_the_likelihood_its_gap_and_its_misfit_are_those_of_the_enumerated_reports(name: str) -> None:
    """Of shares that are no maximum: L = sum n log P, G = max over the values of sum q a / P, less 1."""
    chances = reports(name).probabilities
    numbers = np.rint(3000 * (truth(len(chances)) @ chances) * (1 + 0.2 * np.cos(np.arange(chances.shape[1])))) + 1
    estimate = ldpsql.estimate(reports(name).counted(numbers), mechanism(name), "ibu(stop=3, misfit='allow')")
    expected, q = estimate.estimate @ chances, numbers / numbers.sum()
    assert estimate.diagnosis.log_likelihood == pytest.approx(float(numbers @ np.log(expected)), rel=1e-9)
    assert estimate.diagnosis.gap == pytest.approx(float((chances @ (q / expected)).max()) - 1, rel=1e-6, abs=1e-12)
    best = ldpsql.estimate(reports(name).counted(numbers), mechanism(name), "ibu(misfit='allow')")
    misfit = 2 * float(numbers @ np.log(q / (best.estimate @ chances)))
    assert estimate.diagnosis.fit_statistic == pytest.approx(misfit, rel=1e-4, abs=1e-6)
    assert best.diagnosis.log_likelihood >= estimate.diagnosis.log_likelihood


@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize("errors", ["own", "shared"])
def test_groups_that_are_alike_have_at_least_the_error_of_what_they_share(errors: str, confidence: float) -> None:
    """A hundred groups with equal counts are estimated as one: what they share is known no better than from all reports."""
    numbers, estimator = 200 * (truth(3) @ reports("krr").probabilities), f"shared(errors='{errors}', confidence={confidence})"
    with ldpsql.connect() as con:
        con.execute("CREATE TABLE reports AS FROM range(0) SELECT 0 AS g, 'a' AS r")
        for value, number in zip("abc", np.rint(numbers), strict=True):
            con.execute("INSERT INTO reports SELECT g, $1 FROM range(100) t(g), range($2)", [value, int(number)])
        ldpsql.estimate_groups(con, "reports", "e", report="r", keys=["g"], mechanism=mechanism("krr"), estimator=estimator)
        rows = con.execute("SELECT estimate, std_error, high - low FROM e ORDER BY g, value").fetchall()
    pooled = ldpsql.estimate(reports("krr").counted(np.rint(numbers) * 100), mechanism("krr"), f"ibu(confidence={confidence})")
    own, error, width = (np.array(column).reshape(100, 3) for column in zip(*rows, strict=True))
    assert np.allclose(own, pooled.estimate, atol=0.01)
    assert (error >= 0.95 * pooled.std_error).all()
    assert (width >= 0.95 * (pooled.high - pooled.low)).all()
    assert errors == "own" or width == pytest.approx(2 * norm.isf((1 - confidence) / 2) * error, rel=0.1)


MISSING = "row with missing columns"


@pytest.mark.parametrize("name", [*VALUES, MISSING])
def test_what_is_computed_without_the_table_of_the_channel_is_what_the_table_gives(name: str) -> None:
    one = mechanism("row" if name == MISSING else name)
    values = ldpsql.certify(one).values.listed.values
    drawn = ldpsql.perturb(values.take(pa.array(np.arange(60) % len(values))), one)
    if name == MISSING:
        drawn = pa.array([row if at % 3 else row | {"adult": None} for at, row in enumerate(drawn.to_pylist())], drawn.type)
    op = ldpsql.estimate(drawn, one, "uniform(misfit='allow')").likelihood.operator
    dense, few = DenseOperator(op.matrix()), np.array([0, op.inputs - 1])
    theta = np.stack([truth(op.inputs), truth(op.inputs)[::-1]])
    w = 1.5 + np.cos(np.arange(2.0 * op.outputs)).reshape(2, -1)
    assert op.forward(theta) == pytest.approx(dense.forward(theta), rel=1e-9)
    assert op.adjoint(w) == pytest.approx(dense.adjoint(w), rel=1e-9)
    for among in (slice(None), few):
        assert op.curvature(w[0], among) == pytest.approx(dense.curvature(w[0], among), rel=1e-6)
        assert op.rows(among) == pytest.approx(dense.rows(among), rel=1e-9)
    some = np.array([op.outputs - 1, 0])
    assert op.of_reports(some) == pytest.approx(dense.of_reports(some), rel=1e-9)
