"""Every mechanism keeps its claim over all parameters, and is the channel of its paper."""

from __future__ import annotations

import csv
from fractions import Fraction
from math import e, exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ldpsql import Channel, DenseChannel, Epsilon, Mechanism, NotPrivate, certify
from ldpsql.channels import TableChannel
from ldpsql.errors import InvalidParameter
from ldpsql.functions import registry
from ldpsql.mechanisms import (
    TOTAL,
    ApproximateLdp,
    Convolution,
    Grid,
    IndependentBits,
    Line,
    MetricLdp,
    PureLdp,
    coarse_above,
    exp_below,
    from_doubles,
    information_of,
)
from ldpsql.privacy.certificate import exact_delta
from ldpsql.privacy.claims import root_below
from ldpsql.testing import certificate, check_mechanism
from tests.laws.subjects import ESTIMATES_ONLY

EPSILONS = ["0.1", "0.5", "1", "2", "4", "8", "16", "32"]
GRIDS = {2: (2, 2), 10: (5, 2), 100: (10, 10), 400: (20, 20), 1000: (40, 25)}
PROTOCOLS = ("oue", "sue", "olh", "hadamard")
DATA = Path(__file__).parents[1].parent / "shared" / "data"


def made(name: str, epsilon: object, size: int) -> Mechanism:
    """An instance of a built-in mechanism with about ``size`` values."""
    columns, rows = GRIDS[size]
    listed = [f"v{i}" for i in range(size)]
    parameters: dict[str, dict[str, Any]] = {
        "truncated_geometric": {"low": 0, "high": size - 1},
        "geometric": {"low": 0, "high": size - 1, "margin": 7},
        "planar_geometric": {"columns": columns, "rows": rows},
        "planar_laplace": {"columns": columns, "rows": rows},
        "exponential": {"domain": listed, "columns": columns if size > 2 else 2},
        "olh_private": {"domain": listed, "seeds": "private"},
        **{f"{protocol}_encoding": {"domain": listed, "protocol": protocol} for protocol in PROTOCOLS},
        "hadamard_response": {"domain": listed, "blocks": 8, "size": 1 << (-(-size // 8)).bit_length()},
        "gaussian_points": {"domain": listed, "points": POINTS[:size], "delta": "0.00001"},
        "gaussian": {"low": -1, "high": 1, "bins": min(size, 128), "delta": "0.00001"},
    }
    interval = {"low": -1, "high": 1, "bins": size}
    intervals = {"laplace", "stochastic_rounding", "piecewise", "square_wave", "hybrid"}
    options = parameters.get(name, interval if name in intervals else {"domain": listed})
    return registry().mechanism({"mechanism": plain(name), "epsilon": epsilon, **options})


def plain(name: str) -> str:
    """The name of the mechanism."""
    return "encoding" if name.endswith("_encoding") else name.removesuffix("_private")


PURE = ["krr", "rappor", "oue", "subset_selection", "olh", "olh_private", *(f"{protocol}_encoding" for protocol in PROTOCOLS)]
PURE += ["hadamard_response", "laplace", "stochastic_rounding", "piecewise", "square_wave", "hybrid"]
POINTS: list[list[float]] = [[x, y, z / 2] for x in range(5) for y in range(5) for z in range(4)]  # in three dimensions
METRIC = ["truncated_geometric", "geometric", "planar_geometric", "planar_laplace", "exponential"]


def test_every_built_in_mechanism_is_tested_here() -> None:
    tested = {plain(name) for name in [*PURE, *METRIC]} | {"gaussian", "gaussian_points", "blahut_arimoto", "matrix"}
    assert set(registry().mechanisms) <= tested | ESTIMATES_ONLY | {
        "pckv",
        "pckv_grr",
        "pckv_pm",
        "pckv_pm_ue",
        "pckv_ue",
        "pem",
        "hierarchy",
        "grid_hierarchy",
        "row",
        "one_of",
        "optimal",
        "optimal_mean",
        "optimal_metric",
        "joint_krr",
        "joint_olh",
        "loloha",
    }  # see test_key_value, test_optimal, test_heavy_hitters, test_hierarchy, test_rectangles, test_rows, test_loloha


def in_turn(names: list[str], sizes: tuple[int, ...]) -> list[tuple[str, int, str]]:
    """Return each mechanism with each epsilon, the sizes in turn: each size meets each mechanism, and each epsilon."""
    return [(name, sizes[(i + j) % len(sizes)], epsilon) for i, name in enumerate(names) for j, epsilon in enumerate(EPSILONS)]


@pytest.mark.parametrize(("name", "size", "epsilon"), in_turn(PURE, (2, 10, 100, 1000)))
def test_realised_epsilon_is_never_above_the_claim(name: str, size: int, epsilon: str) -> None:
    mechanism = made(name, epsilon, size)
    channel = mechanism.channel()
    proof = certificate(channel, mechanism.claim())
    witness = channel.widest()
    assert witness is not None
    assert witness.ratio <= Epsilon.parse(epsilon).exp_below()
    assert proof.epsilon <= float(epsilon) * (1 + 1e-15)


@pytest.mark.parametrize(("name", "size", "epsilon"), in_turn(METRIC, (2, 10, 100, 400)))
def test_realised_epsilon_per_unit_is_never_above_the_claim(name: str, size: int, epsilon: str) -> None:
    mechanism = made(name, epsilon, size)
    proof = certificate(mechanism.channel(), mechanism.claim())
    assert proof.ratio is not None
    assert isinstance(proof.claim, MetricLdp)
    assert proof.ratio <= proof.claim.limit(proof.value, proof.other)
    assert proof.epsilon <= float(epsilon) * (1 + 1e-15)


@pytest.mark.parametrize("name", ["gaussian", "gaussian_points"])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_gaussian_mechanism_keeps_its_delta_and_wastes_little(name: str, epsilon: str) -> None:
    proof = certify(made(name, epsilon, 100)).certificate
    assert isinstance(proof.claim, ApproximateLdp)
    assert proof.delta <= proof.claim.delta
    if float(epsilon) <= 16:
        assert proof.delta > proof.claim.delta * Fraction(98, 100)


@pytest.mark.parametrize("epsilon", ["0.000001", "0.0000000001"])
def test_gaussian_points_keep_a_tiny_epsilon_and_delta(epsilon: str) -> None:
    proof = certify(made("gaussian_points", epsilon, 10).changed(delta="0.0000000001")).certificate
    assert isinstance(proof.claim, ApproximateLdp)
    assert proof.claim.delta * Fraction(9, 10) < proof.delta <= proof.claim.delta


def test_gaussian_points_fall_with_the_square_of_their_distance_in_all_dimensions() -> None:
    """Chances relative to the value's own are e^(-d^2 / (2 s^2)), before and after all points are moved and scaled."""
    squares = np.array([[sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) for y in POINTS] for x in POINTS])
    rows = table(made("gaussian_points", "1", 100))
    fallen = -np.log(rows / rows.diagonal()[:, None])
    precision = fallen[0, 1] / squares[0, 1]
    assert fallen == pytest.approx(precision * squares, rel=1e-6, abs=1e-9)
    moved = [[7 + 3 * x, 3 * y, 3 * z - 1] for x, y, z in POINTS]
    assert table(made("gaussian_points", "1", 100).changed(points=moved)) == pytest.approx(rows, rel=1e-6)
    one = made("gaussian_points", "1", 100)
    far = [[x * 1e200, y * 1e200, z * 1e200] for x, y, z in POINTS]
    assert table(made("gaussian_points", "1", 100).changed(points=far)) == pytest.approx(rows, rel=1e-6)
    refused: tuple[Any, ...] = (
        [[0, 1]] * 100,
        [[0, i] for i in range(99)],
        [[0] * (1 + i % 2) for i in range(100)],
        [0] * 100,
        [[]] * 100,
    )
    for points in refused:
        with pytest.raises(InvalidParameter):
            one.changed(points=points).channel()


def test_blahut_arimoto_conforms() -> None:
    text = "blahut_arimoto(1, ['a', 'b', 'c', 'd'], [1, 2, 3, 0], columns=2, side='0.5', nulls='as:a')"
    check_mechanism(registry().mechanism(text))
    distances = "[[0, 1, '1.5'], [1, 0, 2], ['1.5', 2, 0]]"
    check_mechanism(registry().mechanism(f"blahut_arimoto(1, [3, 5, 7], [1, 2, 3], distances={distances}, tolerance=0.001)"))


# --- the channels of the papers, by formulas of their own ---


def table(mechanism: Mechanism) -> np.ndarray:
    channel = mechanism.channel()
    assert isinstance(channel, TableChannel)
    return channel.probabilities()


def test_truncated_geometric_is_its_closed_form() -> None:
    a, rows = exp(-0.5), table(registry().mechanism("truncated_geometric(0.5, 3, 12)"))
    for x in range(10):
        for z in range(10):
            scale = 1 / (1 + a) if z in (0, 9) else (1 - a) / (1 + a)
            assert rows[x, z] == pytest.approx(scale * a ** abs(z - x), rel=1e-12)


def test_geometric_is_the_geometric_distribution_inside_its_margin() -> None:
    a, rows = exp(-1), table(registry().mechanism("geometric(1, 0, 4, margin=3)"))
    assert rows.shape == (5, 11)
    assert rows[2, 1:-1] == pytest.approx([(1 - a) / (1 + a) * a ** abs(z - 5) for z in range(1, 10)], rel=1e-12)
    assert rows[2, 0] == pytest.approx(a**5 / (1 + a), rel=1e-12)


@pytest.mark.parametrize(("name", "points", "rel"), [("planar_geometric", 1, 1e-9), ("planar_laplace", 9, 2e-3)])
def test_planar_noise_is_summed_over_the_whole_plane(name: str, points: int, rel: float) -> None:
    rows = table(registry().mechanism(f"{name}(2, 3, 2, side='0.5')"))
    far = np.arange(-60, 61)
    step = (np.arange(points) - (points - 1) / 2) / points
    for x in range(6):
        row, column = divmod(x, 3)
        masses = np.zeros(6)
        for j in far:
            across = np.hypot((j - row + step)[:, None, None], (far[:, None] - column + step).reshape(1, len(far), points))
            mass = np.exp(-2 * 0.5 * across).sum(axis=(0, 2))
            nearest = np.clip(j, 0, 1) * 3 + np.clip(far, 0, 2)
            masses += np.bincount(nearest, weights=mass, minlength=6)
        assert rows[x] == pytest.approx(masses / masses.sum(), rel=rel)


def test_exponential_is_its_formula_for_any_metric() -> None:
    rows = table(registry().mechanism("exponential(2, ['a', 'b', 'c'], distances=[[0, 1, 3], [1, 0, 2], [3, 2, 0]])"))
    near = np.exp(-np.array([[0, 1, 3], [1, 0, 2], [3, 2, 0]]))
    assert rows == pytest.approx(near / near.sum(axis=1, keepdims=True), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_piecewise_is_unbiased_with_the_variance_of_the_paper(epsilon: float) -> None:
    bins = 1024
    rows = table(registry().mechanism(f"piecewise({epsilon}, -1, 1, bins={bins})"))
    x = (2 * np.arange(bins) + 1) / bins - 1
    z = exp(epsilon / 2)
    reach = (z + 1) / (z - 1)
    centres = reach * x
    width = 2 * reach / bins  # a bin that the window covers in part counts at its centre: an error of the order of width^2
    assert rows @ centres == pytest.approx(x, abs=width**2)
    variance = rows @ centres**2 - x**2
    assert variance == pytest.approx(x**2 / (z - 1) + (z + 3) / (3 * (z - 1) ** 2), rel=1e-4)


@pytest.mark.parametrize("epsilon", [0.0001, 0.5, 1.0, 3.0])
def test_square_wave_has_its_density_and_width(epsilon: float) -> None:
    bins = 1024
    rows = table(registry().mechanism(f"square_wave({epsilon}, 0, 1, bins={bins})"))
    grown = exp(epsilon)
    b = (epsilon * grown - grown + 1) / (2 * grown * (grown - 1 - epsilon)) if epsilon > 0.01 else 0.5 - epsilon / 6
    p = grown / (2 * b * grown + 1)
    width = (1 + 2 * b) / bins
    assert rows.max() == pytest.approx(p * width, rel=1e-8)
    assert rows.min() == pytest.approx(p / grown * width, rel=1e-8)
    mean = rows @ ((np.arange(bins) + 0.5) * width - b)  # of the window around x, and of the rest of [-b, 1+b]
    x = (np.arange(bins) + 0.5) / bins
    low = p / grown
    assert mean == pytest.approx(low * (0.5 * (1 + 2 * b)) + (p - low) * 2 * b * x, abs=width**2)


def test_stochastic_rounding_is_unbiased() -> None:
    rows = table(registry().mechanism("stochastic_rounding(1, -1, 1, bins=8)"))
    c = (e + 1) / (e - 1)
    assert c * (rows[:, 1] - rows[:, 0]) == pytest.approx((2 * np.arange(8) + 1) / 8 - 1, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "hit", "miss"),
    [
        ("rappor(2, range(50))", e / (e + 1), 1 / (e + 1)),
        ("oue(2, range(50))", 0.5, 1 / (e**2 + 1)),
        ("olh(2, range(50), 'private')", e**2 / (e**2 + 7), 1 / 8),
        ("subset_selection(2, range(50))", 6 * e**2 / (6 * e**2 + 44), None),
    ],
)
def test_set_mechanisms_support_as_often_as_the_papers_say(text: str, hit: float, miss: float | None) -> None:
    channel: Any = registry().mechanism(text.replace("range(50)", str(list(range(50))))).channel()
    assert float(channel.hit) == pytest.approx(hit, rel=1e-3)
    assert float(channel.miss) == pytest.approx((6 - hit) / 49 if miss is None else miss, rel=1e-3)


# --- Blahut-Arimoto ---

TIGHT = {"0.2": 0.3986617268975, "0.4": 0.7883813903959, "0.6": 1.1750263394595, "0.8": 1.5677798334719, "1": 1.9816354129564}


@pytest.mark.parametrize("beta", TIGHT)
def test_blahut_arimoto_has_the_tight_epsilon_of_the_reproduction(beta: str) -> None:
    file = DATA / "gowalla_sf_privic_grid.csv"
    if not file.exists():
        pytest.skip(f"needs {file.name} of the shared data")
    with file.open() as lines:
        prior = [int(row["n_as_used"]) for row in csv.DictReader(lines)]
    parameters = {"beta": beta, "domain": list(range(384)), "prior": prior, "columns": 24, "iterations": 10}
    mechanism: Any = registry().mechanism({"mechanism": "blahut_arimoto", **parameters})
    assert mechanism.tight() == pytest.approx(TIGHT[beta], abs=1e-10)
    proof = certify(mechanism).certificate
    assert proof.epsilon <= mechanism.tight() + 1e-9
    assert float(proof.claim.epsilon) <= mechanism.tight() + 1e-9


def test_blahut_arimoto_comes_down_to_the_rate_distortion_curve() -> None:
    text = "blahut_arimoto(1, [0, 1, 2, 3], [4, 3, 2, 1], columns=2, iterations={})"
    revealed = [information_of(registry().mechanism(text.format(n)), np.array([4.0, 3, 2, 1]), 1) for n in (1, 10, 1000)]
    gaps = [one.mutual_information - (one.least_information or 0) for one in revealed]
    assert gaps[0] > gaps[1] > gaps[2] >= -1e-9
    assert gaps[2] < 1e-6


# --- certificates ---


def test_a_metric_certificate_is_refused_by_the_last_unit_of_a_weight() -> None:
    """Doubles cannot see one part in 2^60, whole numbers do."""
    metric, epsilon = Grid(2, 1, Fraction(1)), Epsilon.parse(1)
    limit = exp_below(epsilon.value)
    low = -(-TOTAL * limit.denominator // (limit.numerator + limit.denominator))  # rounded up: kept
    keep = np.array([[TOTAL - low, low], [low, TOTAL - low]], dtype=np.uint64)
    certificate(DenseChannel(keep), MetricLdp(epsilon, metric))
    over = np.array([[TOTAL - low + 1, low - 1], [low, TOTAL - low]], dtype=np.uint64)
    with pytest.raises(NotPrivate):
        certificate(DenseChannel(over), MetricLdp(epsilon, metric))
    with pytest.raises(NotPrivate):
        certificate(DenseChannel(over), MetricLdp(epsilon, Line(2)))
    with pytest.raises(NotPrivate):
        certificate(DenseChannel(over), PureLdp(epsilon))


def test_square_roots_are_bounded_from_below() -> None:
    for n in range(2, 2000):
        root = root_below(n)
        assert root**2 <= n < (root + Fraction(1, 10**29)) ** 2


def test_the_exact_delta_is_the_sum_over_all_reports() -> None:
    words = np.array([[5, 3, 8], [1, 9, 6], [7, 7, 2]], dtype=np.uint64) * np.uint64(2**59)
    words[:, 0] += np.uint64(TOTAL - 1) - words.sum(axis=1) + np.uint64(1)
    grown = Fraction(3, 2)
    rows = [[Fraction(w, TOTAL) for w in row] for row in words.tolist()]
    best = max(
        sum((max(Fraction(0), a - grown * b) for a, b in zip(p, q, strict=True)), Fraction(0)) for p in rows for q in rows
    )
    assert exact_delta(words, grown)[0] == best


def test_a_channel_with_more_delta_than_claimed_is_refused() -> None:
    channel = Convolution.shaped([exp(-z * z / 50) for z in range(20)], 20)
    delta = certificate(channel, ApproximateLdp(Epsilon.parse(1), Fraction(999, 1000))).delta
    certificate(channel, ApproximateLdp(Epsilon.parse(1), delta))
    with pytest.raises(NotPrivate, match="above the claimed"):
        certificate(channel, ApproximateLdp(Epsilon.parse(1), delta - Fraction(1, 2**100)))


def test_noise_too_small_for_a_metric_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="too small"):
        certify(registry().mechanism("planar_geometric('0.0001', 10, 10, side='0.01')"))
    with pytest.raises(InvalidParameter, match="too small"):
        certify(registry().mechanism("piecewise('0.000000000001', 0, 1)"))


# --- planted bugs of published implementations: each is a channel, and none is certified ---


def olh_that_keeps_with_one_half(epsilon: float) -> Channel:
    g = 3
    return from_doubles(np.full((g, g), 0.25) + 0.25 * np.eye(g), Fraction(epsilon))


def sue_with_epsilon_per_bit(epsilon: float) -> Channel:
    flip = coarse_above(1 / (1 + Fraction(exp(epsilon))))
    return IndependentBits(4, TOTAL - flip, flip)


def unary_encoding_that_forgets_to_reset_a_bit(epsilon: float) -> Channel:
    q = 1 / (exp(epsilon) + 1)
    own = 0.5 + 0.5 * q  # the own bit is drawn twice and kept if set once
    return IndependentBits(4, int(own * TOTAL), int(q * TOTAL))


def rappor_threshold_rounded_down(epsilon: float) -> Channel:
    flip = int(256 / (1 + exp(epsilon / 2))) << 56
    return IndependentBits(4, TOTAL - flip, flip)


def geometric_renormalised_instead_of_clamped(epsilon: float) -> Channel:
    at = np.arange(10)
    return from_doubles(np.exp(-epsilon / 9 * np.abs(at[:, None] - at)), Fraction(epsilon) / 9)


def laplace_with_half_the_sensitivity(epsilon: float) -> Channel:
    return Convolution.geometric(exp_below(Fraction(epsilon) / 9 * 2), 10)


def stochastic_rounding_beyond_the_interval(epsilon: float) -> Channel:
    at = np.array([-1.1, 0.0, 1.1]) * np.tanh(epsilon / 2) / 2
    return from_doubles(np.stack([0.5 - at, 0.5 + at], axis=1), Fraction(epsilon))


def noise_table_without_a_tail_bucket(epsilon: float) -> Channel:
    weights = np.exp(-epsilon / 9 * np.abs(np.arange(-9, 10)))
    noise = (weights / weights.sum() * (TOTAL - 2**20)).astype(np.uint64)
    noise[9] += np.uint64(TOTAL - sum(noise.tolist()))
    return Convolution(noise, 10)


def remainder_put_into_one_cell(epsilon: float) -> Channel:
    low = int(1000 / (exp(epsilon) + 3)) * (TOTAL // 1000)
    weights = np.full((4, 4), low, dtype=np.uint64)
    np.fill_diagonal(weights, TOTAL - 3 * low)
    return DenseChannel(weights)


BUGS = [
    (olh_that_keeps_with_one_half, 0.25),
    (sue_with_epsilon_per_bit, 1),
    (unary_encoding_that_forgets_to_reset_a_bit, 1),
    (rappor_threshold_rounded_down, 1),
    (laplace_with_half_the_sensitivity, 1),
    (stochastic_rounding_beyond_the_interval, 1),
    (remainder_put_into_one_cell, 1),
]


@pytest.mark.parametrize(("bug", "epsilon"), BUGS)
def test_a_planted_bug_is_not_certified(bug: Any, epsilon: float) -> None:
    with pytest.raises(NotPrivate):
        certificate(bug(epsilon), PureLdp(Epsilon.parse(epsilon)))


@pytest.mark.parametrize("bug", [geometric_renormalised_instead_of_clamped, noise_table_without_a_tail_bucket])
def test_a_planted_bug_of_a_metric_mechanism_is_not_certified(bug: Any) -> None:
    with pytest.raises(NotPrivate):
        certificate(bug(2.0), MetricLdp(Epsilon.parse("0.222222222222"), Line(10)))


def test_a_report_that_rules_a_value_out_is_not_certified_for_a_metric() -> None:
    """The plain floating-point Laplace mechanism does this with a quarter of its reports."""
    half = TOTAL // 2
    channel = DenseChannel(np.array([[half, half, 0], [half, half - 1, 1]], dtype=np.uint64))
    for claim in (
        PureLdp(Epsilon.parse(32)),
        MetricLdp(Epsilon.parse(32), Line(2)),
        MetricLdp(Epsilon.parse(32), Grid(2, 1, Fraction(1))),
    ):
        with pytest.raises(NotPrivate, match="rules a value out"):
            certificate(channel, claim)
