"""The mechanisms with the smallest expected loss: against others under ten priors and losses, and the time of large programmes.

The loss of another mechanism is that after the best answer to each of its reports. The optimum over the 2^K extreme points of
Kairouz, Oh and Viswanath (2016) is a programme of its own. The time is that of certified channels in whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from benchmarks.figures import Figure, at_most, cpu_clock, public_file, wanted
from ldpsql.functions import registry
from ldpsql.mechanisms import certify
from ldpsql.testing import enumerated

SIZE, EPSILON = 8, 1
COLUMNS, ROWS = 24, 16
EXACT = 1e-6  # of a loss, for the tolerance of two solvers
Floats = NDArray[np.float64]


def problems() -> Iterator[tuple[str, Floats, Floats]]:
    """Yield ten priors with a loss each: a name, the shares, and the loss of each report, row by value."""
    at = np.arange(SIZE)
    off = at[:, None] - at
    losses = {
        "wrong": off != 0,
        "distance": np.abs(off),
        "square": off**2,
        "one side": np.maximum(off, 0) + 0.25 * np.maximum(-off, 0),
        "far": np.abs(off) > 1,
    }
    middle = (at - (SIZE - 1) / 2) ** 2
    priors = {
        "even": 0 * at + 1,
        "falling": 1 / (at + 3),
        "middle": np.exp(-middle / 8),
        "ends": 1 + middle,
        "peak": 1 + (at == 2),
    }
    for place, (prior, weights) in enumerate(priors.items()):
        for loss in (list(losses) * 2)[place : place + 2]:
            yield f"{prior} prior, loss {loss}", weights / weights.sum(), losses[loss].astype(np.float64)


def others() -> Iterator[Floats]:
    """Yield P(report | value) of k-RR, OUE, subset selection and the geometric mechanism, all with the same epsilon."""
    for name in ("krr", "oue", "subset_selection"):
        yield enumerated(registry().mechanism(f"{name}({EPSILON}, {list(range(SIZE))})")).probabilities
    yield enumerated(registry().mechanism(f"truncated_geometric({EPSILON / (SIZE - 1):.12f}, 0, {SIZE - 1})")).probabilities


def compared() -> Iterator[Figure]:
    """Yield the loss against the best of the others, and how far it is from the optimum and from its bound."""
    ratios: dict[str, float] = {}
    far, gap = 0.0, 0.0
    columns = np.array(list(product([1.0, np.exp(EPSILON)], repeat=SIZE))).T
    for name, prior, loss in problems():
        costs = prior[:, None] * loss
        mechanism = certified("optimal", EPSILON, prior=prior.tolist(), loss=loss.tolist())
        lost, bound = mechanism.bounds()
        best = linprog((costs.T @ columns).min(axis=0), A_eq=columns, b_eq=np.ones(SIZE)).fun
        ratios[name] = lost / min(float((costs.T @ chances).min(axis=0).sum()) for chances in others())
        far, gap = max(far, abs(lost / best - 1)), max(gap, lost / bound - 1)
    for name, ratio in ratios.items():
        yield at_most(f"{SIZE} values, {name}: loss against the best of four others", ratio, 1 + EXACT)
    yield at_most(f"{SIZE} values: distance from the optimum over all extreme points", far, EXACT, "of the loss")
    yield at_most(f"{SIZE} values: distance from the certified bound", gap, EXACT, "of the loss")


def certified(name: str, epsilon: float, prior: list[float], **parameters: object) -> Any:
    """Return a mechanism for the values 0, 1, ... whose channel is certified."""
    spec = {"mechanism": name, "epsilon": f"{epsilon:g}", "domain": list(range(len(prior))), "prior": prior, **parameters}
    mechanism = registry().mechanism(spec)
    certify(mechanism)
    return mechanism


def figures(quick: bool) -> Iterator[Figure]:
    """Yield losses, then time and distance from the bound of large domains: unless quick, of 300 values and a map, too."""
    if wanted("others"):
        yield from compared()
    large: list[tuple[str, str, float, dict[str, Any], float]] = []
    for size, step in ((100, 0.1),) if quick else ((100, 0.1), (300, 0.05)):
        prior = [1 / (x + 3) for x in range(size)]
        losses = [[abs(x - y) for y in range(size)] for x in range(size)]
        large += [
            (f"optimal, {size} values", "optimal", EPSILON, {"prior": prior, "loss": losses}, EXACT),
            (f"optimal_metric, a line of {size} values", "optimal_metric", step, {"prior": prior, "columns": size}, 2e-4),
        ]
    if not quick and (file := public_file("gowalla_sf_grid_24x16.csv")):
        people = np.loadtxt(file, delimiter=",", skiprows=1)[:, 3] + 1
        options: dict[str, Any] = {"prior": people.tolist(), "columns": COLUMNS}
        large.append((f"optimal_metric, a map of {COLUMNS}x{ROWS} cells", "optimal_metric", 0.5, options, 0.01))
    for what, name, epsilon, options, most in large:
        if wanted(what):
            start = cpu_clock()
            lost, bound = certified(name, epsilon, **options).bounds()
            yield Figure(f"{what}: CPU", cpu_clock() - start, "s")
            yield at_most(f"{what}: distance from the certified bound", lost / bound - 1, most, "of the loss")


def check() -> Iterator[Figure]:
    """Yield the losses against those of other mechanisms."""
    yield from (figure for figure in compared() if "others" in figure.what)
