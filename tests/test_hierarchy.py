"""The hierarchy: its channel in whole numbers, constrained inference, ranges and quantiles with errors that hold."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction
from itertools import pairwise
from time import process_time
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

import ldpsql
from ldpsql import Epsilon, KeepOrSpread, Mechanism, certify
from ldpsql.errors import MissingValue, OutsideDomain, WrongType
from ldpsql.estimates.spans import Band
from ldpsql.functions import fingerprint, registry
from ldpsql.inference.operators import Ranges
from ldpsql.inference.operators.base import Parents, Tree, range_variances
from ldpsql.mechanisms import (
    TOTAL,
    Levels,
    NodeReports,
    OrthogonalHash,
    PureLdp,
    best_tree,
    exp_below,
    node_reports,
    tree_channel,
)
from ldpsql.mechanisms.trees import counts_of_levels, range_error, scatter
from ldpsql.questions import Estimates, Mean, Quantile, RangeShare, RangeShares
from ldpsql.testing import certificate, check_mechanism, estimate_counts, operator_of
from tests import seeds

RNG = seeds.generator(__name__)
E = exp_below(Fraction(1))


def mechanism(text: str) -> Mechanism:
    return registry().mechanism(text)


def small() -> Levels:
    """Return three levels over nine values on a line: hashes, hashes, k-RR."""
    hashes = [OrthogonalHash(count, KeepOrSpread.within(3, E)) for count in (9, 5)]
    return Levels((9,), ((1,), (2,), (4,)), (*hashes, KeepOrSpread.within(3, E)))


def grid() -> Levels:
    """Return two levels over a grid of three rows and four columns."""
    return Levels((3, 4), ((1, 1), (2, 2)), (OrthogonalHash(12, KeepOrSpread.within(4, E)), KeepOrSpread.within(4, E)))


def bits() -> Levels:
    """Return three levels over twelve values, hashes to a field of four elements, in blocks of 1, 3 and 6."""
    hashes = [OrthogonalHash(count, KeepOrSpread.within(4, E)) for count in (12, 4)]
    return Levels((12,), ((1,), (3,), (6,)), (*hashes, KeepOrSpread.within(2, E)))


@pytest.mark.parametrize("channel", [small(), grid(), bits()], ids=["line", "grid", "bits"])
def test_the_realised_epsilon_is_the_largest_ratio_over_all_reports_in_whole_numbers(channel: Levels) -> None:
    rows = [[channel.probability(x, y) for y in range(channel.outputs)] for x in range(channel.inputs)]
    assert all(sum(row) == 1 for row in rows)
    ratios = [max(column) / min(column) for column in zip(*rows, strict=True)]
    witness = channel.widest()
    assert max(ratios) == witness.ratio <= E
    assert rows[witness.value][witness.report] / rows[witness.other][witness.report] == witness.ratio


class Sequence:
    """A source that hands out these words, one a call."""

    def __init__(self, *parts: int) -> None:
        self.left = list(parts)

    def __call__(self, count: int) -> NDArray[np.uint64]:
        return np.full(count, self.left.pop(0), dtype=np.uint64)


def pieces(steps: int, width: int) -> list[tuple[int, int]]:
    """Return the parts of all words of equal width, the last of which has the rest."""
    ends = [step * width for step in range(steps)] + [TOTAL]
    return list(pairwise(ends))


def drawn_with(channel: Levels, value: int, level: int, seed: int, answer: int) -> int:
    """Return the report for a half that decides the level, a whole word for the seed and one for the response."""
    high, low = divmod(seed, 1 << 32)
    own = np.array([value], dtype=np.int32)
    further = Sequence(level + (high << 32), low << 32, answer)  # the lower half of the seed, if the upper one does not decide
    report = int(channel.draw(own, further)[0])
    return int(channel.draw(own, Sequence(level + (high << 32), answer))[0]) if further.left else report


@pytest.mark.parametrize("channel", [small(), grid(), bits()], ids=["line", "grid", "bits"])
def test_the_sampler_itself_has_these_probabilities_by_an_independent_derivation(channel: Levels) -> None:
    """Count the words of the sampler: half of the first decides the level, the other half and rarely more bits the seed."""
    half, levels = 1 << 32, len(channel.blocks)
    for value in range(channel.inputs):
        chances = [Fraction(0)] * channel.outputs
        for level, response in enumerate(channel.responses):
            lowest, end = (-(-half * at // levels) for at in (level, level + 1))
            answer = response.response if isinstance(response, OrthogonalHash) else response
            seeds = response.seeds if isinstance(response, OrthogonalHash) else 1
            for (a, b), (c, d) in ((s, r) for s in pieces(seeds, TOTAL // seeds) for r in pieces(answer.size, answer.spread)):
                drawn = {drawn_with(channel, value, *ends) for ends in ((lowest, a, c), (end - 1, b - 1, d - 1))}
                assert len(drawn) == 1
                chances[drawn.pop()] += Fraction((end - lowest) * (b - a) * (d - c), half * TOTAL * TOTAL)
        assert chances == [channel.probability(value, report) for report in range(channel.outputs)]


@pytest.mark.parametrize("channel", [small(), grid(), bits()], ids=["line", "grid", "bits"])
def test_reports_that_are_not_numbered_are_those_of_the_same_words(channel: Levels) -> None:
    values = RNG.integers(0, channel.inputs, 70_000).astype(np.int32)  # in several blocks
    word = seeds.words(3 * len(values))

    def words() -> Any:
        places = iter(range(3 * len(values)))
        return lambda count: word[[next(places) for _ in range(count)]]

    reports = node_reports(channel)
    assert reports.column(*channel.draw_nodes(values, words())).equals(reports.to_arrow(channel.draw(values, words())))


def test_reports_of_other_levels_than_those_of_the_channel_are_read_from_its_numbers() -> None:
    made = certify(mechanism("hierarchy(1, 0, 8, step=1)"))
    assert made.reports == NodeReports((1, 1), (9, 5))
    other = replace(made, reports=NodeReports((1, 1), (5, 9)))
    reports = other.perturb(pa.array(list(range(9)) * 100)).to_pylist()
    assert all(report["y"] < 5 for report in reports if report["level"] == 0)


def test_the_level_is_the_same_whatever_the_value() -> None:
    channel, word = small(), seeds.words(300)

    def words() -> Any:
        parts = iter([word])
        return lambda count: next(parts, seeds.words(count))

    drawn = [channel.draw(np.full(300, value, dtype=np.int32), words()) for value in range(9)]
    levels = [np.searchsorted(channel.starts, one, side="right") for one in drawn]
    assert all((one == levels[0]).all() for one in levels)


def level_by_value(channel: Levels, values: NDArray[np.int32], drawn: NDArray[np.int32]) -> NDArray[np.int32]:
    """Draw some reports of the last value again, all on the level of the leaves."""
    chosen = np.flatnonzero((values == channel.inputs - 1) & (drawn % 4 == 0))
    drawn[chosen] = channel.responses[0].draw(values[chosen])
    return drawn


def uneven_seed(channel: Levels, values: NDArray[np.int32], drawn: NDArray[np.int32]) -> NDArray[np.int32]:
    """Draw some reports of the leaves again until their seed is in the first half."""
    leaves = channel.responses[0]
    chosen = np.flatnonzero((drawn >= leaves.outputs // 2) & (drawn < leaves.outputs) & (drawn % 2 == 0))
    drawn[chosen] = leaves.draw(values[chosen])
    return drawn


def too_honest(channel: Levels, values: NDArray[np.int32], drawn: NDArray[np.int32]) -> NDArray[np.int32]:
    """Let some reports of the highest level be true."""
    top = len(channel.blocks) - 1
    chosen = np.flatnonzero((drawn >= channel.starts[top]) & (np.arange(len(drawn)) % 6 == 0))
    drawn[chosen] = channel.nodes(values[chosen], top) + channel.starts[top]
    return drawn


@pytest.mark.parametrize("bug", [level_by_value, uneven_seed, too_honest], ids=lambda bug: bug.__name__)
def test_a_planted_bug_in_the_sampler_is_found(bug: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made, original = mechanism("hierarchy(1, 0, 59, step=1)"), Levels.draw
    monkeypatch.setattr(
        Levels, "draw", lambda self, values, words=seeds.words: bug(self, values, original(self, values, words))
    )
    with pytest.raises(AssertionError, match="do not follow the channel"):
        check_mechanism(made, draws=50_000)


def test_a_claim_of_less_than_the_channel_realises_is_refused() -> None:
    with pytest.raises(ldpsql.NotPrivate):
        certificate(small(), PureLdp(Epsilon(Fraction(99, 100))))


@pytest.mark.parametrize(
    ("shape", "blocks"), [((9,), ((2,),)), ((9,), ((1,), (3,), (4,))), ((9,), ((1,), (1,))), ((4, 4), ((1, 1), (2,)))]
)
def test_levels_that_are_not_nested_are_refused(shape: tuple[int, ...], blocks: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ldpsql.InvalidParameter):
        Levels(shape, blocks, tuple(KeepOrSpread.within(9, E) for _ in blocks))


# Fanout and levels


@pytest.mark.parametrize(("leaves", "fanout", "levels"), [(64, 4, 3), (81, 3, 4), (128, 2, 5), (125, 5, 2)])
def test_the_expected_error_is_that_of_all_ranges_under_the_inverse_of_the_information(
    leaves: int, fanout: int, levels: int
) -> None:
    epsilon, place = Epsilon.parse("1"), np.arange(leaves)
    counts = counts_of_levels((leaves,), fanout, levels)
    variances = [levels * scatter(epsilon, count) for count in counts]
    information = sum(
        (place[:, None] // fanout**level == place // fanout**level) / variance for level, variance in enumerate(variances)
    )
    inverse = np.linalg.inv(information + 1e6)  # the total is known
    running = np.pad(inverse, ((1, 0), (1, 0))).cumsum(0).cumsum(1)
    each = running.diagonal()[:, None] + running.diagonal() - 2 * running
    assert range_error(variances, fanout, counts[-1]) == pytest.approx(each.mean() * (1 + 1 / leaves), rel=0.02)


def test_fanout_and_levels_are_those_of_the_smallest_error_and_part_of_the_fingerprint() -> None:
    chosen, other = mechanism("hierarchy(1, 0, 255, step=1)"), mechanism("hierarchy(1, 0, 255, step=1, fanout=5)")
    assert (chosen.fanout, chosen.levels) == best_tree(Epsilon.parse("1"), (256,))  # type: ignore[attr-defined]
    assert other.fanout == 5  # type: ignore[attr-defined]
    assert "fanout=5" in fingerprint(other)
    assert fingerprint(chosen) != fingerprint(other)
    assert mechanism(str(chosen)) == chosen
    assert chosen.changed(epsilon="4").levels == best_tree(Epsilon.parse("4"), (256,))[1]  # type: ignore[attr-defined]


def test_few_nodes_are_reported_as_they_are_and_many_by_hashes() -> None:
    epsilon = Epsilon.parse("1")
    assert isinstance(tree_channel(epsilon, (8,), 2, 1).responses[0], KeepOrSpread)
    assert isinstance(tree_channel(epsilon, (100,), 2, 1).responses[0], OrthogonalHash)


@pytest.mark.parametrize("text", ["levels=20", "fanout=64, levels=3", "fanout=1", "levels=0", "step='day'", "bins=3000000"])
def test_a_tree_that_the_range_does_not_fill_is_refused(text: str) -> None:
    with pytest.raises(ldpsql.InvalidParameter):
        certify(mechanism(f"hierarchy(1, 0, 99, {'' if 'step' in text else 'step=1, '}{text})"))


@pytest.mark.parametrize("ends", ["0, 20000, step=0.01", "0, 1048576, step=1"])
def test_more_steps_than_values_are_refused_unless_bins_are_asked_for(ends: str) -> None:
    with pytest.raises(ldpsql.InvalidParameter, match="more than 1,048,576 values"):
        mechanism(f"hierarchy(1, {ends})")
    assert mechanism(f"hierarchy(1, {ends}, bins=1000, fanout=2, levels=2)").bins <= 1000  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("low", "rest", "words"),
    [
        ("2024-01-01", "bins=12", "dates or times with a unit"),
        ("2024-01-01", "step='day', bins=12", "dates or times with a unit"),
        ("2024-01-01", "step='week'", "'day', 'hour' or 'minute'"),
        ("08:00:00", "step='minute'", "a date or a timestamp"),
    ],
)
def test_dates_take_a_unit_and_no_number_of_bins(low: str, rest: str, words: str) -> None:
    with pytest.raises(ldpsql.InvalidParameter, match=words):
        mechanism(f"hierarchy(1, '{low}', '2024-12-31', {rest})")


# Constrained inference


def exact_covariance(tree: Tree, blocks: list[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Return the inverse of the information among directions that sum to zero, from tables."""
    information = sum(
        (at[:, None] == at) / variance[at] for at, variance in zip(blocks, tree.variances, strict=True)
    ) + np.zeros((len(blocks[0]), len(blocks[0])))
    inverse = np.linalg.inv(information)
    along = inverse.sum(axis=0)
    return np.asarray(inverse - np.outer(along, along) / along.sum())


@pytest.mark.parametrize("lengths", [[1], [1, 3], [1, 2, 4, 8], [1, 5, 10]])
def test_consistent_shares_and_their_errors_are_those_of_generalised_least_squares(lengths: list[int]) -> None:
    leaves = 37
    blocks = [np.arange(leaves) // length for length in lengths]
    above = [*blocks[1:], np.zeros(leaves, dtype=np.int64)]
    parents = [
        Parents(up[np.unique(at, return_index=True)[1]], int(up.max()) + 1) for at, up in zip(blocks, above, strict=True)
    ]
    tree = Tree(parents, [RNG.uniform(0.5, 2.0, at.max() + 1) for at in blocks])
    covariance = exact_covariance(tree, blocks)
    measured = [RNG.normal(size=at.max() + 1) for at in blocks]
    weighted = sum((y / v)[at] for y, v, at in zip(measured, tree.variances, blocks, strict=True))
    start = np.full(leaves, 1 / leaves)
    pulled = sum((np.bincount(at, start) / v)[at] for v, at in zip(tree.variances, blocks, strict=True))
    expected = start + covariance @ (weighted - pulled)
    assert np.allclose(tree.solved(measured, 1.0), expected)
    assert np.allclose(tree.variance(), covariance.diagonal())
    c = RNG.normal(size=(4, leaves))
    assert np.allclose(tree.covariances(c), c @ covariance)
    ends = np.sort(np.concatenate([RNG.integers(0, leaves + 1, (200, 2)), [[0, 0], [leaves, leaves], [0, leaves]]]), axis=1)
    inside = (np.arange(leaves) >= ends[:, :1]) & (np.arange(leaves) < ends[:, 1:])
    variances = range_variances(tree, lengths, Ranges(ends[:, 0], ends[:, 1]))
    assert np.allclose(variances, np.einsum("mx,xy,my->m", inside, covariance, inside), atol=1e-12)


def estimates(made: Mechanism, theta: NDArray[np.float64], n: int, groups: int, name: str = "inv") -> Estimates:
    """Return the estimates of several groups of n honest reports."""
    law = operator_of(made).forward(theta)
    return estimate_counts(made, RNG.multinomial(n, law / law.sum(), groups).astype(np.float64), registry().estimator(name))


def shape(size: int) -> NDArray[np.float64]:
    x = (np.arange(size) + 0.5) / size
    weight = x * (1 - x) ** 3 + 0.02
    return np.asarray(weight / weight.sum())


def test_errors_of_ranges_means_and_shares_are_those_of_repeated_reports() -> None:
    made, groups = mechanism("hierarchy(2, 0, 99, step=1)"), 400
    theta = shape(100)
    of = estimates(made, theta, 20_000, groups)
    ranges = RangeShares((RangeShare(0, 9), RangeShare(10, 41), RangeShare(17, 17), RangeShare(33, 99)))
    truth = np.array([theta[:10].sum(), theta[10:42].sum(), theta[17], theta[33:].sum()])
    measured = ranges.measure(of)
    scaled = (measured.estimate - truth) / measured.std_error
    mean = Mean().measure(of)
    scaled = np.column_stack([scaled, (mean.estimate - theta @ np.arange(100)) / mean.std_error])
    # The root mean square of 400 normal numbers is within .82 and 1.18 of 1 with probability 1 - 3e-7.
    assert ((scaled**2).mean(axis=0) ** 0.5 < 1.18).all()
    assert ((scaled**2).mean(axis=0) ** 0.5 > 0.82).all()
    assert (np.abs(scaled.mean(axis=0)) < 6 / np.sqrt(groups)).all()


def test_the_inverse_is_unbiased_and_ranges_add_up() -> None:
    made, theta = mechanism("hierarchy(1, 0, 63, step=1)"), shape(64)
    of = estimates(made, theta, 5_000, 300)
    assert np.allclose(of.fit.theta.sum(axis=1), 1.0)
    error = of.intervals.std_error.mean(axis=0) / np.sqrt(300)
    assert (np.abs(of.fit.theta.mean(axis=0) - theta) < 5.8 * error).all()
    parts = RangeShares((RangeShare(0, 20), RangeShare(21, 63), RangeShare(0, 63), RangeShare(None, None))).measure(of)
    assert np.allclose(parts.estimate[:, 0] + parts.estimate[:, 1], 1.0)
    assert np.allclose(parts.estimate[:, 2:], 1.0)
    assert np.allclose(parts.std_error[:, 2:], 0.0, atol=1e-6)


@pytest.mark.parametrize("q", [0.5, 0.9])
def test_intervals_of_quantiles_hold(q: float) -> None:
    made, theta, groups = mechanism("hierarchy(1, 0, 255, step=1)"), shape(256), 400
    measured = Quantile(q=q).measure(estimates(made, theta, 50_000, groups))
    truth = int((theta.cumsum() >= q).argmax())
    held = int(((measured.low <= truth) & (truth <= measured.high)).sum())
    assert held >= 352  # a count of 400 with probability .95 is below with probability 4e-7


@pytest.mark.parametrize(("size", "n", "groups", "least"), [(1024, 50_000, 60, 0.7), (16_384, 100_000, 20, 0.4)])
def test_intervals_of_quantiles_are_not_wider_than_if_the_density_was_known(
    size: int, n: int, groups: int, least: float
) -> None:
    """Standard errors are at most a tenth too small; the finer the values, the more of their errors cancel out when sorted."""
    made, theta = mechanism(f"hierarchy(1, 0, {size - 1}, step=1)"), shape(size)
    of, shares = estimates(made, theta, n, groups), (0.5, 0.9)
    measured = Quantile(q=tuple(shares)).measure(of)
    for place, q in enumerate(shares):
        truth, near = int((theta.cumsum() >= q).argmax()), size // 100
        below = RangeShare(0, truth).measure(of)
        density = theta[truth - near : truth + near].mean()
        ratio = measured.std_error[:, place].mean() / (below.std_error.mean() / density)
        assert least < ratio < 1.5
        # The estimate itself is that of sorted shares: where they first reach q would be far too low.
        off = (measured.estimate[:, place] - truth) / (1.1 * measured.std_error[:, place])
        assert (off**2).sum() < chi2.isf(1e-6, groups)
        assert abs(off.mean()) < 5.2 / np.sqrt(groups)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inv", "ibu"])
def test_reports_of_few_people_say_little_about_ranges_and_quantiles(name: str) -> None:
    made, theta, groups = mechanism("hierarchy(1, 0, 99, step=1)"), (np.arange(100) == 7).astype(np.float64), 200
    of = estimates(made, theta, 5, groups, name)
    assert np.isinf(RangeShares((RangeShare(0, 9), RangeShare(20, 59))).measure(of).std_error).all()
    median = Quantile(q=0.5).measure(of)
    assert ((median.low <= 7) & (median.high >= 7)).sum() >= 156  # one in ten may miss: the chance of fewer is 1e-6 at most


def test_a_band_is_sorted_before_it_is_inverted() -> None:
    upper = np.array([[0.2, 0.6, 0.3, 0.4, 0.7, 0.45, 0.8, 0.9]])
    band = Band(np.arange(1, 9), 9, upper - 0.2, upper)
    low, high = band.crossing(0.5)
    assert low[0] == (np.sort(upper)[0] < 0.5).sum() == 4
    assert high[0] == (np.sort(upper - 0.2)[0] < 0.5).sum() == 6
    assert Band(band.cuts, 9, band.lower[0], band.upper[0]).around(0.5) == (2, 7)
    some = np.array([1, 4, 8])
    coarse = Band(some, 9, band.lower[:, some - 1], band.upper[:, some - 1]).crossing(0.5)
    assert coarse[0][0] == 4  # all up to the second cut
    assert coarse[1][0] == 7  # up to one before the last cut
    nothing = Band(np.arange(1, 9), 9, np.full((1, 8), -np.inf), np.full((1, 8), np.inf))
    assert [int(end[0]) for end in nothing.crossing(0.5)] == [0, 8]


def test_quantiles_of_the_fewest_values_reports_and_groups_have_intervals() -> None:
    for size, n in ((2, 1), (2, 50), (3, 7), (60, 1)):
        of = estimates(mechanism(f"hierarchy(1, 0, {size - 1}, step=1)"), shape(size), n, 2)
        measured = Quantile(q=(0.1, 0.5, 0.999)).measure(of)
        assert (measured.low >= 0).all()
        assert (measured.high <= size - 1).all()
        assert (measured.low <= measured.high).all()


@pytest.mark.parametrize("size", [4_000, 10_000])
def test_several_quantiles_and_ranges_are_those_one_by_one_and_group_by_group(size: int) -> None:
    """On a long line the band is computed at some values only, which must not depend on what else is asked for."""
    made, theta = mechanism(f"hierarchy(1, 0, {size - 1}, step=1)"), shape(size)
    law = operator_of(made).forward(theta)
    counts = RNG.multinomial(30_000, law / law.sum(), 2).astype(np.float64)
    of, *alone = (estimate_counts(made, some, registry().estimator("inv")) for some in (counts, counts[:1], counts[1:]))
    together = Quantile(q=(0.1, 0.5)).measure(of)
    for place, q in enumerate((0.1, 0.5)):
        one, several = Quantile(q=q).measure(of), together.at(place)
        groups = [Quantile(q=q).measure(group) for group in alone]
        for field in ("estimate", "low", "high"):
            assert getattr(several, field).tolist() == getattr(one, field).tolist()
            assert getattr(one, field).tolist() == [getattr(group, field)[0] for group in groups]
    ranges = (RangeShare(0.0, 77.0), RangeShare(500.0, 4_000.0))
    several = RangeShares(ranges).measure(of)
    for place, single in enumerate(ranges):
        assert np.allclose(several.at(place).estimate, single.measure(of).estimate)


def test_a_level_without_reports_gives_shares_without_certainty() -> None:
    made = mechanism("hierarchy(1, 0, 31, step=1)")
    channel = certify(made).channel
    assert isinstance(channel, Levels)
    counts = np.zeros((1, channel.outputs))
    counts[0, channel.starts[-2] :] = 50.0  # the highest level only
    of = estimate_counts(made, counts, registry().estimator("inv(misfit='allow')"))
    assert np.isfinite(of.fit.theta).all()
    assert np.allclose(of.fit.theta.sum(), 1.0)
    single = RangeShare(3, 3).measure(of)
    assert (single.low[0], single.high[0]) == (0.0, 1.0)


def test_a_long_solve_begins_at_consistent_shares_without_negative_ones() -> None:
    made, theta = mechanism("hierarchy(1, 0, 8191, step=1)"), shape(8192)
    op = operator_of(made)
    law = op.forward(theta)
    shares = RNG.multinomial(100_000, law / law.sum(), 2) / 100_000
    begin = op.beginning(shares)
    assert begin is not None
    assert (begin >= 0).all()
    assert np.allclose(begin.sum(axis=1), 1.0)
    assert np.abs(np.cumsum(begin - theta, axis=1)).max() < 0.2
    of = estimates(made, theta, 100_000, 1, "ibu(max_iterations=3)")
    share = RangeShare(0.0, 4_095.0).measure(of)
    assert np.abs(share.estimate[0] - theta[:4096].sum()) < 6 * share.std_error[0]


def test_a_range_beyond_all_values_is_empty() -> None:
    of = estimates(mechanism("hierarchy(1, 0, 99, step=1)"), shape(100), 5_000, 2)
    beyond = RangeShares((RangeShare(200, 300), RangeShare(-9, -1), RangeShare(99, 300))).measure(of)
    assert (beyond.estimate[:, :2] == 0).all()
    assert (beyond.high[:, :2] == 0).all()
    assert (beyond.std_error[:, 2] > 0).all()


# Values of every type, in SQL


DOMAINS = {
    "0, 99, step := 1": ("(i * 37) % 100", "BIGINT", 18.0),
    "0, 0.99, step := 0.01": ("((i % 100) / 100)::DECIMAL(10, 2)", "DECIMAL", 0.5),
    "0, 1, bins := 64": ("(i % 1000) / 1000.0", "DOUBLE", 0.5),
    "DATE '2024-01-01', DATE '2024-12-31'": ("DATE '2024-01-01' + (i % 366)::INTEGER", "DATE", date(2024, 7, 1)),
    "TIMESTAMP '2024-01-01', TIMESTAMP '2024-01-03', step := 'hour'": (
        "TIMESTAMP '2024-01-01' + INTERVAL 1 MINUTE * (i % 2880)",
        "TIMESTAMP",
        datetime(2024, 1, 2),
    ),
    "TIMESTAMP '2024-01-01', TIMESTAMP '2024-01-01 02:00', step := 'minute'": (
        "TIMESTAMP '2024-01-01' + INTERVAL 1 SECOND * (i % 7200)",
        "TIMESTAMP",
        datetime(2024, 1, 1, 1),
    ),
}


@pytest.mark.parametrize("parameters", DOMAINS)
def test_sql_perturbs_and_measures_values_of_every_type(parameters: str, con: duckdb.DuckDBPyConnection) -> None:
    value, _, middle = DOMAINS[parameters]
    con.execute(f"CREATE MACRO tree() AS ldp.hierarchy(4, {parameters})")
    con.execute(f"CREATE TABLE reports AS SELECT i % 2 AS g, ldp.perturb({value}, tree()) AS r FROM range(20000) t(i)")
    ((kind,),) = con.execute("SELECT DISTINCT typeof(r) FROM reports").fetchall()
    assert kind == 'STRUCT("level" UTINYINT, seed UINTEGER, y USMALLINT)'
    ((median, quartiles),) = con.execute(
        "SELECT ldp.median(r, tree()), ldp.quantile(r, tree(), [0.25, 0.5, 0.75], estimator := 'inv') FROM reports"
    ).fetchall()
    assert type(median["estimate"]) is type(middle)
    assert median["low"] <= median["estimate"] <= median["high"]
    assert [one["q"] for one in quartiles] == [0.25, 0.5, 0.75]
    assert quartiles[0]["estimate"] <= quartiles[1]["estimate"] <= quartiles[2]["estimate"]
    both = con.execute("SELECT ldp.range_share(r, tree(), NULL, ?) FROM reports GROUP BY g", [middle]).fetchall()
    assert all(one["low"] <= one["estimate"] <= one["high"] for (one,) in both)


def test_sql_gives_several_ranges_from_one_estimate(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE MACRO tree() AS ldp.hierarchy(2, 0, 99, step := 1)")
    con.execute("CREATE TABLE reports AS SELECT i % 3 AS g, ldp.perturb(i % 100, tree()) AS r FROM range(9000) t(i)")
    rows = con.execute("SELECT ldp.range_share(r, tree(), [0, 50], [49, 99]), ldp.range_share(r, tree(), 0, 49) FROM reports")
    ((several, single),) = rows.fetchall()
    assert several[0] == single
    assert several[0]["estimate"] + several[1]["estimate"] == pytest.approx(1.0)
    grouped = con.execute("SELECT g, ldp.quantile(r, tree(), [0.5]) FROM reports GROUP BY ALL ORDER BY g").fetchall()
    assert len(grouped) == 3
    counted = con.execute("SELECT ldp.range_share(ldp.counts(r), tree(), [0], [49]) FROM reports").fetchall()
    assert counted[0][0][0]["estimate"] == pytest.approx(single["estimate"])
    assert con.execute("SELECT ldp.quantile(r, tree(), [0.5], keep := g > 5) FROM reports").fetchall() == [(None,)]


def test_reports_counted_as_words_are_the_same_as_counts_of_structs(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE MACRO tree() AS ldp.hierarchy(2, 0, 99, step := 1)")
    con.execute("CREATE TABLE reports AS SELECT i % 3 AS g, ldp.perturb(i % 100, tree()) AS r FROM range(9000) t(i)")
    con.execute("INSERT INTO reports VALUES (0, NULL)")
    wide = "{'y': r.y::INTEGER, 'seed': r.seed::BIGINT, 'level': r.level::INTEGER}"  # another type has no words
    alike = f"SELECT ldp.inv(r, tree()) = ldp.inv(ldp.counts(r), tree()), ldp.inv({wide}, tree()) = ldp.inv(r, tree())"
    assert con.execute(f"{alike} FROM reports WHERE r IS NOT NULL GROUP BY g").fetchall() == [(True, True)] * 3
    kept = "SELECT ldp.mean(r, tree(), keep := g = 1) = ldp.mean(ldp.counts(r, keep := g = 1), tree()) FROM reports"
    assert con.execute(kept).fetchall() == [(True,)]
    assert con.execute("SELECT ldp.mean(r, tree()) FROM reports WHERE r IS NULL").fetchall() == [(None,)]


@pytest.mark.parametrize("report", ["{'level': 0, 'seed': NULL, 'y': 0}", "{'level': 99, 'seed': 0, 'y': 0}"])
def test_a_report_without_a_field_or_of_no_level_is_refused(report: str, con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE MACRO tree() AS ldp.hierarchy(2, 0, 99, step := 1)")
    con.execute('CREATE TABLE reports (r STRUCT("level" UTINYINT, seed UINTEGER, y USMALLINT))')
    con.execute(f"INSERT INTO reports SELECT ldp.perturb(i, tree()) FROM range(100) t(i) UNION ALL SELECT {report}")
    with pytest.raises(duckdb.Error, match="LDP401"):
        con.execute("SELECT ldp.mean(r, tree()) FROM reports")
    with pytest.raises(duckdb.Error, match="LDP401"):
        con.execute("SELECT ldp.mean(word, tree()) FROM (SELECT 7::UBIGINT AS word)")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("quantile(r, tree(), [])", "list"),
        ("quantile(r, tree(), [0.5, NULL])", "list"),
        ("quantile(r, tree(), [0.5, 1.5])", "between 0 and 1"),
        ("range_share(r, tree(), [], [])", "two ranges"),
        ("range_share(r, tree(), [1], [2, 3])", "as many"),
        ("range_share(r, tree(), NULL, [2])", "as many"),
        ("range_share(r, tree(), [1], 2)", "as many"),
        ("range_share(r, tree(), [3], [2])", "before it begins"),
        ("range_share(r, tree(), ['x'], ['y'])", "like the values"),
    ],
)
def test_lists_that_do_not_fit_are_refused_in_one_sentence(call: str, words: str, con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE MACRO tree() AS ldp.hierarchy(2, 0, 9, step := 1)")
    con.execute("CREATE TABLE reports AS SELECT ldp.perturb(i % 10, tree()) AS r FROM range(500) t(i)")
    with pytest.raises(duckdb.Error, match=words):
        con.execute(f"SELECT ldp.{call} FROM reports").fetchall()


@pytest.mark.parametrize(
    ("column", "error"),
    [
        (pa.array([date(2023, 12, 31)]), OutsideDomain),
        (pa.array([None], pa.date32()), MissingValue),
        (pa.array([7]), WrongType),
        (pa.array([datetime(2024, 1, 1)], pa.timestamp("us", tz="UTC")), WrongType),
    ],
)
def test_dates_outside_missing_or_of_another_type_are_refused(column: pa.Array, error: type[Exception]) -> None:
    with pytest.raises(error) as refused:
        ldpsql.perturb(column, mechanism("hierarchy(1, '2024-01-01', '2024-03-01')"))
    assert "2023" not in str(refused.value)


def test_dates_can_be_clipped_and_missing_ones_replaced() -> None:
    made = mechanism("hierarchy(8, '2024-01-01', '2024-01-03', outside='clip', nulls='as:2024-01-02')")
    codes = certify(made).codes(pa.array([date(2020, 1, 1), None, date(2030, 1, 1), date(2024, 1, 2)]))
    assert codes.tolist() == [0, 1, 2, 1]


def test_an_impossible_report_is_refused_and_a_raw_column_is_too() -> None:
    made = mechanism("hierarchy(1, 0, 99, step=1)")
    reports = ldpsql.perturb(pa.array(range(100)), made)
    fields = [reports.field(name) for name in ("level", "seed", "y")]
    wrong = pa.StructArray.from_arrays([pa.array([9] * 100, pa.uint8()), *fields[1:]], ["level", "seed", "y"])
    for column in (wrong, pa.array(range(100))):
        with pytest.raises(ldpsql.LdpError):
            ldpsql.estimate(column, made)


def test_a_map_of_levels_is_diagnosed_in_the_time_of_a_statement(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE cells AS SELECT (hash(i) % 4096)::BIGINT AS x FROM range(100000) t(i)")
    con.execute("CREATE TABLE seen AS FROM ldp.perturb_rows(cells, {x: ldp.grid_hierarchy(1, 64, 64)})")
    began = process_time()
    assert con.execute("SELECT (ldp.diagnose(x)).status FROM seen").fetchone() == ("certified",)
    assert process_time() - began < 20  # about 1; a whole table of pairs for each step took 70
