"""PCKV-UE, and PCKV-PM as the paper describes it, simulated by their laws: counts of one key among many people.

Each key of a unary encoding is independent, so what the reports show of one key is a multinomial count. Appendix D names two
epsilons without saying how they share the budget; as in PCKV-UE the value has all of it here. With s = e^(epsilon/2), the
piecewise mechanism's window is s times as likely as uniform noise, and the rest 1/s times. A key that is kept with 1/2 and shown
without reason with b = 1/(s + 1) then makes no pair e^epsilon times as likely as another: s (1 - b)/b = e^epsilon.
"""

from __future__ import annotations

from math import exp

import numpy as np

from ldpsql import Estimator, Likelihood
from ldpsql.inference.operators import DenseOperator
from ldpsql.registry.registry import registry

BINS = 64


def sign_errors(values: np.ndarray, people: int, epsilon: float, runs: int) -> np.ndarray:
    """Return the squared error of the mean of a key by PCKV-UE, for the people who have it among all ``people``."""
    right, other, share = exp(epsilon) / (exp(epsilon) + 1), 2 / (exp(epsilon) + 3), len(values) / people
    plus = (right + (2 * right - 1) * (values.mean() - 1) / 2) / 2  # of those who have the key
    law = share * np.array([plus, 0.5 - plus, 0.5]) + (1 - share) * np.array([other / 2, other / 2, 1 - other])
    up, down, _ = np.random.default_rng().multinomial(people, law, runs).T
    means = (up - down) * (0.5 - other) / 0.5 / (2 * right - 1) / (up + down - people * other)
    return (np.clip(means, -1, 1) - values.mean()) ** 2


def bin_errors(values: np.ndarray, people: int, epsilon: float, runs: int) -> dict[str, np.ndarray]:
    """Return the squared errors of the mean of a key by EM and MR of the joint likelihood of share and values."""
    table, centres = joint(epsilon), (2 * np.arange(BINS) + 1) / BINS - 1
    true = np.histogram(values, BINS, (-1, 1))[0] / people
    law = np.append(true, 1 - true.sum()) @ table.T
    counts = np.random.default_rng().multinomial(people, law / law.sum(), runs).astype(float)
    reports = Likelihood(DenseOperator(table.T), counts)
    errors = {}
    for name, text in (("EM", "ibu(stop='paper', tolerance=0.001)"), ("MR", "em_mr"), ("certified maximum", "ibu")):
        estimator: Estimator = registry().estimator(text)
        theta = estimator.fit(reports).theta[:, :BINS]
        means = theta @ centres / np.maximum(theta.sum(axis=1), 1e-12)
        errors[name] = (means - values.mean()) ** 2
    return errors


def joint(epsilon: float) -> np.ndarray:
    """Return the chance of each report, a bin or none, for each bin of a value and for people without the key."""
    s = exp(epsilon / 2)
    reach, other = (s + 1) / (s - 1), 1 / (s + 1)
    at = (2 * np.arange(BINS) + 1) / BINS - 1
    left = (reach + 1) / 2 * at - (reach - 1) / 2
    edges = np.linspace(-reach, reach, BINS + 1)
    inside = np.minimum(edges[1:, None], left + reach - 1) - np.maximum(edges[:-1, None], left)
    part = np.maximum(inside, 0) * BINS / (2 * reach)
    shown = (part * s + (1 - part) / s) / BINS
    with_key = np.vstack([shown / shown.sum(axis=0) / 2, np.full(BINS, 0.5)])
    without = np.append(np.full(BINS, other / BINS), 1 - other)
    return np.column_stack([with_key, without])
