"""What the laws are checked on: a mechanism of each class over few values, and its reports with their exact probabilities."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from ldpsql import KeyValueMechanism, Mechanism
from ldpsql.functions import registry
from ldpsql.testing import Enumeration, enumerated

SMALL = {
    "blahut_arimoto": "blahut_arimoto(3, [0, 1, 2, 3], [4, 3, 2, 1], columns=2)",
    "encoding": "encoding(1, ['a', 'b', 'c'], 'hadamard')",
    "exponential": "exponential(1, [0, 1, 2, 3], columns=2)",
    "gaussian": "gaussian(2, 0, 4, '0.001', bins=4)",
    "gaussian_points": "gaussian_points(2, '0.001', ['a', 'b', 'c'], [[0, 0], [1, 0], [0, 1]])",
    "geometric": "geometric(1, 0, 2, margin=3)",
    "grid_hierarchy": "grid_hierarchy(1, 4, 2, levels=2)",
    "hadamard_response": "hadamard_response(1, ['a', 'b', 'c'], 2, 4)",
    "hierarchy": "hierarchy(1, 0, 8, bins=8, fanout=2, levels=3)",
    "hybrid": "hybrid(1, 0, 4, bins=4)",
    "joint_krr": "joint_krr(1, {'city': ['Lima', 'Oslo'], 'adult': [false, true]})",
    "joint_olh": "joint_olh(1, {'city': ['Lima', 'Oslo'], 'adult': [false, true]})",
    "krr": "krr(1, ['a', 'b', 'c'])",
    "laplace": "laplace(1, 0, 4, bins=4)",
    "loloha": "loloha(2, 1, ['a', 'b', 'c'], symbols=2)",
    "matrix": "matrix(['a', 'b', 'c'], [['0.5', '0.3', '0.2'], ['0.2', '0.5', '0.3'], ['0.4', '0.1', '0.5']])",
    "olh": "olh(1, ['a', 'b', 'c'])",
    "one_of": "one_of(city=krr(1, ['Lima', 'Oslo', 'Rome']), adult=krr(1, [false, true]))",
    "oue": "oue(1, ['a', 'b', 'c'])",
    "pckv": "pckv(1, ['x', 'y'])",
    "pckv_grr": "pckv_grr(1, ['x', 'y'], padding=2)",
    "pckv_pm": "pckv_pm(1, ['x', 'y'], bins=8)",
    "pckv_pm_ue": "pckv_pm_ue(1, ['x', 'y'], bins=3)",
    "pckv_ue": "pckv_ue(1, ['x', 'y'])",
    "pem": "pem(1)",
    "piecewise": "piecewise(1, 0, 4, bins=4)",
    "planar_geometric": "planar_geometric(1, 2, 2)",
    "planar_laplace": "planar_laplace(1, 2, 2)",
    "rappor": "rappor(1, ['a', 'b', 'c'])",
    "row": "row(city=krr(1, ['Lima', 'Oslo', 'Rome']), adult=oue(1, [false, true]))",
    "square_wave": "square_wave(1, 0, 4, bins=4)",
    "stochastic_rounding": "stochastic_rounding(1, 0, 2, bins=2)",
    "subset_selection": "subset_selection(1, ['a', 'b', 'c', 'd'])",
    "truncated_geometric": "truncated_geometric(1, 0, 3)",
    "optimal": "optimal(2, [0, 1, 2, 3], [4, 3, 3, 3])",
    "optimal_mean": "optimal_mean(1, 0, 4, [4, 3, 2, 1], bins=4)",
    "optimal_metric": "optimal_metric(3, [0, 1, 2, 3], [4, 3, 3, 3], columns=2)",
}
MORE = {
    "olh, private seeds": "olh(2, ['a', 'b', 'c'], seeds='private', symbols=3)",
    "olh, two symbols": "olh(3, ['a', 'b'], seeds='private', symbols=2)",
    "oue, two values": "oue(2, ['a', 'b'])",
    "krr, two values": "krr('0.5', ['a', 'b'])",
    "hierarchy of hashes": "hierarchy(1, 0, 16, bins=16, fanout=4, levels=2)",
}
ESTIMATES_ONLY = {"not_private"}  # nothing is drawn with these
LISTED = [name for name in {**SMALL, **MORE} if name != "pem"]  # strings are not listed
ESTIMATORS = sorted(registry().estimators)

Floats = NDArray[np.float64]


@cache
def mechanism(name: str) -> Mechanism:
    """Return the mechanism of this name in `SMALL` or `MORE`."""
    return registry().mechanism({**SMALL, **MORE}[name])


@cache
def reports(name: str) -> Enumeration:
    """Return its reports with their probabilities."""
    return enumerated(mechanism(name))


def of_pairs(name: str) -> bool:
    """Return whether it perturbs sets of key-value pairs."""
    return isinstance(mechanism(name), KeyValueMechanism)


def truth(values: int) -> Floats:
    """Return shares inside the simplex, no two of them equal."""
    return np.arange(2, values + 2) / np.arange(2, values + 2).sum()
