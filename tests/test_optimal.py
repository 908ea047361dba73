"""The mechanisms with the smallest expected loss against the list of extreme points and against other mechanisms."""

from itertools import product
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from ldpsql.errors import InvalidParameter
from ldpsql.functions import registry
from ldpsql.mechanisms import certify
from ldpsql.testing import enumerated
from tests.seeds import generator

SIZE = 6
AT = np.arange(SIZE)
LOSSES = {
    "wrong": 1.0 - np.eye(SIZE),
    "distance": np.abs(AT[:, None] - AT).astype(np.float64),
    "square": (AT[:, None] - AT).astype(np.float64) ** 2,
    "one side": np.maximum(AT[:, None] - AT, 0) + 0.25 * np.maximum(AT - AT[:, None], 0),
    "far": (np.abs(AT[:, None] - AT) > 1).astype(np.float64),
}
PRIORS = {"even": [1, 1, 1, 1, 1, 1], "falling": [6, 5, 4, 3, 2, 2]}
EPSILONS = ("1", "2.5")
LISTED = list(range(SIZE))
OTHERS = (f"krr({{}}, {LISTED})", f"oue({{}}, {LISTED})", f"subset_selection({{}}, {LISTED})")


def optimal(epsilon: str, prior: str, loss: str) -> Any:
    """The mechanism under test."""
    parameters = {"epsilon": epsilon, "domain": LISTED, "prior": PRIORS[prior], "loss": LOSSES[loss].tolist()}
    return registry().mechanism({"mechanism": "optimal", **parameters})


def costs(prior: str, loss: str) -> NDArray[np.float64]:
    """The loss of each report times the share of the value."""
    shares = np.array(PRIORS[prior], dtype=np.float64)
    return np.asarray((shares / shares.sum())[:, None] * LOSSES[loss])


def after_the_best_answer(chances: NDArray[np.float64], cost: NDArray[np.float64]) -> float:
    """The expected loss if each report, a column of ``chances``, is replaced by the value with the smallest loss."""
    return float((cost.T @ chances).min(axis=0).sum())


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("prior", PRIORS)
def test_it_is_the_optimum_over_all_extreme_points_and_no_mechanism_is_better(prior: str, loss: str, epsilon: str) -> None:
    """Kairouz, Oh, Viswanath 2016, theorem 4: weights of the 2^K columns that hold 1 and e^epsilon only."""
    cost, grown = costs(prior, loss), np.exp(float(epsilon))
    columns = np.array(list(product([1.0, grown], repeat=SIZE))).T
    best = linprog((cost.T @ columns).min(axis=0), A_eq=columns, b_eq=np.ones(SIZE)).fun
    mechanism = optimal(epsilon, prior, loss)
    certify(mechanism)  # raises if the channel is above its claim
    lost, bound = mechanism.bounds()
    assert lost == pytest.approx(best, rel=1e-7)
    assert bound <= lost <= bound * (1 + 1e-8)
    for other in OTHERS:
        chances = enumerated(registry().mechanism(other.format(epsilon))).probabilities
        assert lost <= after_the_best_answer(chances, cost) * (1 + 1e-9)
    steps = registry().mechanism(f"truncated_geometric({float(epsilon) / (SIZE - 1)}, 0, {SIZE - 1})")
    assert lost <= after_the_best_answer(enumerated(steps).probabilities, cost) * (1 + 1e-9)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 7, 8])
def test_it_is_the_optimum_over_all_extreme_points_of_two_to_eight_values(size: int) -> None:
    """With any prior and losses; a channel with one report for all values is refused, and then no other has a smaller loss."""
    source = generator(f"optimal of {size} values")
    for _ in range(4):
        prior, loss = source.dirichlet(np.ones(size)), source.random((size, size)) * (1 - np.eye(size))
        epsilon, cost = f"{source.uniform(0.3, 4):.3f}", prior[:, None] * loss
        columns = np.array(list(product([1.0, np.exp(float(epsilon))], repeat=size))).T
        best = linprog((cost.T @ columns).min(axis=0), A_eq=columns, b_eq=np.ones(size)).fun
        parameters = {"epsilon": epsilon, "domain": list(range(size)), "prior": prior.tolist(), "loss": loss.tolist()}
        mechanism: Any = registry().mechanism({"mechanism": "optimal", **parameters})
        if best > cost.sum(axis=0).min() * (1 - 1e-9):
            with pytest.raises(InvalidParameter, match="the same report for every value"):
                certify(mechanism)
            continue
        certify(mechanism)
        lost, bound = mechanism.bounds()
        assert lost == pytest.approx(best, rel=1e-6)
        assert bound <= lost <= bound * (1 + 1e-7)


def test_a_prior_that_leaves_nothing_to_report_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="the same report for every value"):
        certify(registry().mechanism("optimal(1, ['a', 'b'], [100, 1])"))


# --- mutual information at an expected loss ---


def informed(epsilon: str, distortion: float, name: str = "optimal", **options: Any) -> Any:
    """The channel with the least information, for the distances of six values and falling shares."""
    spec = {"mechanism": name, "epsilon": epsilon, "domain": LISTED, "prior": PRIORS["falling"], **options}
    return registry().mechanism({**spec, "loss": LOSSES["distance"].tolist(), "distortion": distortion})


def information(chances: NDArray[np.float64], shares: NDArray[np.float64]) -> float:
    """Mutual information in nats."""
    return float((shares[:, None] * chances * np.log(chances / (shares @ chances))).sum())


@pytest.mark.parametrize("slope", [1.0, 1.5, 2.0])
def test_the_least_information_is_on_the_rate_distortion_curve_if_epsilon_does_not_bind(slope: float) -> None:
    """Blahut's iteration gives points of the curve: loss and information at a slope."""
    shares, weight = np.array(PRIORS["falling"]) / 22, np.exp(-slope * LOSSES["distance"])
    reports = np.full(SIZE, 1 / SIZE)
    for _ in range(3000):
        chances = np.maximum(weight * reports, 1e-300)
        chances /= chances.sum(axis=1, keepdims=True)
        reports = shares @ chances
    loss = float((costs("falling", "distance") * chances).sum())
    mechanism = informed("16", loss)
    certify(mechanism)  # raises if the channel is above its claim
    least, bound = mechanism.bounds()
    assert bound <= information(chances, shares) * (1 + 1e-9)
    assert least == pytest.approx(information(chances, shares), rel=1e-4)
    assert (costs("falling", "distance") * mechanism.channel().probabilities()).sum() <= loss


@pytest.mark.parametrize(
    ("mechanism", "far"),
    [(informed("1.5", 1.1), 1 - np.eye(SIZE)), (informed("0.7", 0.9, "optimal_metric", columns=SIZE), LOSSES["distance"])],
    ids=["epsilon", "metric"],
)
def test_no_channel_of_this_privacy_and_loss_has_less_information(mechanism: Any, far: NDArray[np.float64]) -> None:
    """Mixing the channel with any other one of this privacy and loss, found by linear programmes, never lowers it."""
    shares, cost = np.array(PRIORS["falling"]) / 22, costs("falling", "distance")
    certify(mechanism)
    chances = enumerated(mechanism).probabilities
    least, bound = mechanism.bounds()
    assert least * (1 - 2e-3) < bound <= least == pytest.approx(information(np.maximum(chances, 1e-300), shares))
    epsilon = float(mechanism.epsilon)
    rows = [
        np.kron(np.eye(SIZE)[x] - np.exp(epsilon * far[x, other]) * np.eye(SIZE)[other], report)
        for x, other in product(range(SIZE), repeat=2) if x != other for report in np.eye(SIZE)
    ]  # fmt: skip
    even = 0.999 * chances + 0.001 / SIZE  # the slope is finite also for rare reports
    slope = shares[:, None] * np.log(even / (shares @ even))
    down = linprog(
        slope.ravel(), A_ub=[*rows, cost.ravel()], b_ub=[0.0] * len(rows) + [mechanism.distortion],
        A_eq=np.kron(np.eye(SIZE), np.ones(SIZE)), b_eq=np.ones(SIZE),
    )  # fmt: skip
    other = down.x.reshape(SIZE, SIZE)
    for part in (1e-3, 0.01, 0.1, 1.0):
        mixed = np.maximum((1 - part) * chances + part * other, 1e-300)
        assert information(mixed, shares) >= least * (1 - 1e-4)


@pytest.mark.parametrize(
    ("distortion", "words"), [(1.6, "the same report for every value"), (0.1, "so small an expected loss")]
)
def test_an_expected_loss_that_needs_no_report_or_that_none_has_is_refused(distortion: float, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        certify(informed("1", distortion))


# --- optimal_metric ---


@pytest.mark.parametrize("distortion", [None, 0.5])
def test_values_too_far_for_the_solver_are_refused(distortion: float | None) -> None:
    spec = {"mechanism": "optimal_metric", "epsilon": "4", "domain": LISTED, "prior": PRIORS["falling"], "columns": SIZE}
    with pytest.raises(InvalidParameter, match="largest distance of at most 16"):
        certify(registry().mechanism(spec | {"distortion": distortion}))


LINE = np.abs(AT[:, None] - AT).astype(np.float64)
MAP = np.hypot(AT[:, None] // 3 - AT // 3, AT[:, None] % 3 - AT % 3)
SPACES: dict[str, tuple[dict[str, Any], NDArray[np.float64]]] = {
    "line": ({"columns": SIZE}, LINE),
    "map": ({"columns": 3}, MAP),
    "both kinds of privacy": ({"distances": np.minimum(LINE, 2).tolist()}, np.minimum(LINE, 2)),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("space", SPACES)
def test_no_channel_with_metric_privacy_has_a_smaller_loss(space: str, prior: str, loss: str) -> None:
    """The programme again with a row for all pairs of values, and other mechanisms after the best answer to each report."""
    (options, far), cost = SPACES[space], costs(prior, loss)
    same = {"epsilon": 1, "domain": LISTED, **options}
    own = {"mechanism": "optimal_metric", "prior": PRIORS[prior], "loss": LOSSES[loss].tolist(), **same}
    mechanism: Any = registry().mechanism(own)
    certify(mechanism)  # raises if the channel is above its claim
    lost, bound = mechanism.bounds()
    assert bound <= lost <= bound * (1 + 1e-4)
    rows = [
        np.kron(np.eye(SIZE)[x] - np.exp(far[x, other]) * np.eye(SIZE)[other], report)
        for x, other in product(range(SIZE), repeat=2) if x != other for report in np.eye(SIZE)
    ]  # fmt: skip
    best = linprog(
        cost.ravel(), A_ub=rows, b_ub=np.zeros(len(rows)), A_eq=np.kron(np.eye(SIZE), np.ones(SIZE)), b_eq=np.ones(SIZE)
    )
    assert lost == pytest.approx(best.fun, rel=1e-4)
    others = [registry().mechanism({"mechanism": "exponential", **same})]
    others += [registry().mechanism(f"truncated_geometric(1, 0, {SIZE - 1})")] if space == "line" else []
    for other in others:
        assert lost <= after_the_best_answer(enumerated(other).probabilities, cost) * (1 + 1e-4)


@pytest.mark.parametrize(
    ("size", "columns", "epsilon", "gap"), [(60, 60, "0.2", 5e-4), (36, 6, "0.3", 0.01), (36, 6, "1", 0.01)]
)
def test_a_certified_channel_of_many_values_is_near_the_bound(size: int, columns: int, epsilon: str, gap: float) -> None:
    """A line, whose programme is solved as it stands, and maps, on which channels next to the solution are mixed."""
    prior = [1 + 50 * (x % 7 == 3) for x in range(size)]
    spec = {"mechanism": "optimal_metric", "epsilon": epsilon, "domain": list(range(size)), "prior": prior, "columns": columns}
    mechanism: Any = registry().mechanism(spec)
    certify(mechanism)  # raises if the channel is above its claim
    lost, bound = mechanism.bounds()
    assert bound <= lost <= bound * (1 + gap)
    exponential = registry().mechanism(f"exponential({epsilon}, {list(range(size))}, columns := {columns})")
    cost = np.array(prior)[:, None] / sum(prior) * mechanism.metric().matrix()
    assert lost < after_the_best_answer(enumerated(exponential).probabilities, cost)


@pytest.mark.slow
def test_the_tolerance_of_the_solver_does_not_grow_from_each_value_of_a_line_to_the_next() -> None:
    prior = [1 / (x + 3) for x in range(200)]
    spec = {"mechanism": "optimal_metric", "epsilon": "0.0754", "domain": list(range(200)), "prior": prior, "columns": 200}
    mechanism: Any = registry().mechanism(spec)
    lost, bound = mechanism.bounds()
    assert bound <= lost <= bound * (1 + 2e-4)


def test_steps_that_only_move_the_rounding_of_the_bound_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an uneven prior the bound stays 4e-5 below the loss, however many steps follow the first thirty."""
    solved = Mock(wraps=np.linalg.solve)  # twice a step
    monkeypatch.setattr(np.linalg, "solve", solved)
    prior = [1 + 50 * (x % 7 == 3) for x in range(60)]
    mechanism: Any = registry().mechanism(
        {"mechanism": "optimal_metric", "epsilon": "0.21", "domain": list(range(60)), "prior": prior, "columns": 60}
    )
    lost, bound = mechanism.bounds()
    assert bound <= lost <= bound * (1 + 5e-4)
    assert 0 < solved.call_count < 120


def test_distances_that_stop_growing_keep_their_epsilon_between_any_two_values() -> None:
    far = np.minimum(LINE, 2).tolist()
    given = {"epsilon": 1, "domain": LISTED, "prior": [1] * SIZE, "distances": far}
    chances = enumerated(registry().mechanism({"mechanism": "optimal_metric", **given})).probabilities
    used = chances[:, chances.any(axis=0)]
    assert (used.max(axis=0) / used.min(axis=0)).max() <= np.exp(2)


# --- optimal_mean ---

BINS = 4
SHAPES = {"even": [1, 1, 1, 1], "low": [8, 4, 2, 1], "one value": [0, 1, 0, 0], "two ends": [1, 0, 0, 1]}
ROUNDED = ("stochastic_rounding", "piecewise", "hybrid")


def squares(mechanism: Any, shape: str) -> tuple[float, float]:
    """Return the expected squared distance of the readings of reports to the value, and the largest bias, per interval."""
    chances, prior = mechanism.channel().probabilities(), np.array(SHAPES[shape], dtype=np.float64)
    centres, readings = (np.arange(BINS) + 0.5) / BINS, mechanism.readings()
    each = (chances * (readings - centres[:, None]) ** 2).sum(axis=1)
    return float(prior @ each / prior.sum()), float(np.abs(chances @ readings - centres).max())


@pytest.mark.parametrize("epsilon", ["0.5", "1", "4"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_reports_of_a_mean_are_unbiased_and_no_unbiased_channel_is_nearer(shape: str, epsilon: str) -> None:
    """The optimum again from all columns that hold 1 and e^epsilon only, times 65 numbers."""
    mechanism: Any = registry().mechanism({"mechanism": "optimal_mean", "epsilon": epsilon, "low": 0, "high": 1, "bins": BINS,
                                           "prior": SHAPES[shape]})  # fmt: skip
    lost, bias = squares(mechanism, shape)
    assert bias < 1e-6
    bounds = mechanism.bounds()
    assert bounds == pytest.approx((lost, lost), rel=2e-4)
    assert bounds[1] <= lost
    columns = np.array(list(product([1.0, np.exp(float(epsilon))], repeat=BINS)))
    grid = 0.5 + np.linspace(-1, 1, 65) / np.tanh(float(epsilon) / 2)
    numbers, each = np.tile(grid, len(columns)), np.repeat(columns, len(grid), axis=0)
    centres, prior = (np.arange(BINS) + 0.5) / BINS, np.array(SHAPES[shape]) / sum(SHAPES[shape])
    loss = (prior * each * (numbers[:, None] - centres) ** 2).sum(axis=1)
    best = linprog(loss, A_eq=np.hstack([each, each * numbers[:, None]]).T, b_eq=np.concatenate([np.ones(BINS), centres]))
    assert lost == pytest.approx(best.fun, rel=1e-4)
    for other in ROUNDED:
        assert lost <= squares(registry().mechanism(f"{other}({epsilon}, 0, 1, bins={BINS})"), shape)[0] * (1 + 1e-3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("optimal_mean(1, 0, 1, [1, 1, 1], bins := 2)", "one number for each value"),
        ("optimal_mean(17, 0, 1, [1, 1], bins := 2)", "at most 16"),
        ("optimal_mean(1, 0, 1, [0, 0], bins := 2)", "not all zero"),
        ("optimal_metric(1, [0, 1], [1, 1, 1], columns := 2)", "one number for each value"),
        ("optimal_metric(9, [0, 1, 2], [1, 1, 1], columns := 3)", "at most 16"),
        ("optimal_metric(1, [0, 1], [1, 1])", "either columns"),
        ("optimal_metric(1, [0, 1], [99, 1], columns := 2)", "the same report for every value"),
        (f"optimal_metric(0.1, range(900), {list(range(900))}, columns := 30)", "use fewer values"),
    ],
)
def test_a_prior_or_an_epsilon_without_a_programme_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        certify(registry().mechanism(text))
