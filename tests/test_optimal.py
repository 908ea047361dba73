"""The mechanism `optimal` against the list of extreme points and against other mechanisms."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from ldpsql.errors import InvalidParameter
from ldpsql.functions import registry
from ldpsql.mechanisms import certify
from ldpsql.testing import enumerated

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


def test_a_prior_that_leaves_nothing_to_report_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="the same report for every value"):
        certify(registry().mechanism("optimal(1, ['a', 'b'], [100, 1])"))
