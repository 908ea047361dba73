"""PCKV-UE and PCKV-PM by the laws of their reports: counts of one key among many people.

Each key of a unary encoding is independent, so what the reports show of one key is a multinomial count.
"""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np

from ldpsql import Estimator, Likelihood, certify
from ldpsql.inference.operators import DenseOperator
from ldpsql.inference.operators.supports import one_key
from ldpsql.registry.registry import registry
from mixture_reduction.scripted import smoothed

BINS = 64
FITS = {"EM": "ibu(stop='paper', tolerance=0.001)", "MR": "em_mr", "EM after 5 steps": "ibu(stop=5)", "certified maximum": "ibu",
        "inversion": "inv"}  # fmt: skip


def sign_errors(values: np.ndarray, people: int, epsilon: float, runs: int, raw: bool = False) -> np.ndarray:
    """Return the squared error of the mean of a key by PCKV-UE or of its raw signs, for those of all ``people`` who have it."""
    right, other, share = exp(epsilon) / (exp(epsilon) + 1), 2 / (exp(epsilon) + 3), len(values) / people
    plus = (right + (2 * right - 1) * (values.mean() - 1) / 2) / 2  # of those who have the key
    law = share * np.array([plus, 0.5 - plus, 0.5]) + (1 - share) * np.array([other / 2, other / 2, 1 - other])
    up, down, _ = np.random.default_rng().multinomial(people, law, runs).T
    means = (up - down) * (0.5 - other) / 0.5 / (2 * right - 1) / (up + down - people * other)
    return (np.clip((up - down) / (up + down) if raw else means, -1, 1) - values.mean()) ** 2


def bin_errors(values: np.ndarray, people: int, epsilon: float, runs: int) -> dict[str, np.ndarray]:
    """Return the squared errors of the mean of a key by each method for the joint likelihood of share and values."""
    operator, centres = joint(epsilon), (2 * np.arange(BINS) + 1) / BINS - 1
    true = np.histogram(values, BINS, (-1, 1))[0] / people
    law = operator.forward(np.append(true, 1 - true.sum()))
    counts = np.random.default_rng().multinomial(people, law / law.sum(), runs).astype(float)
    reports = Likelihood(operator, counts)
    errors = {}
    for name, text in FITS.items():
        estimator: Estimator = registry().estimator(text)
        theta = estimator.fit(reports).theta[:, :BINS]
        means = np.clip(theta @ centres / np.maximum(theta.sum(axis=1), 1e-12), -1, 1)
        errors[name] = (means - values.mean()) ** 2
    return errors


def joint(epsilon: float) -> DenseOperator:
    """Return the joint likelihood of a key's share and values: its bins and people without the key, its numbers or none."""
    mechanism = registry().mechanism(
        {"mechanism": "pckv_pm_ue", "epsilon": f"{epsilon:g}", "keys": ["own", "other"], "bins": BINS}
    )
    return one_key(certify(mechanism).channel.response)


def spent(padding: int, epsilon: float, bins: int) -> tuple[float, float]:
    """Return the epsilon of the density of section V-C added up in bins, and that of pckv_pm, whose window is the same."""
    spec = {"mechanism": "pckv_pm", "epsilon": f"{epsilon:g}", "keys": ["own", "other"], "padding": padding, "bins": bins}
    certified = certify(registry().mechanism(spec))
    ratio = 1 + padding * (exp(epsilon) - 1)
    root = sqrt(ratio)
    rest = 1 / root  # of a report of the density that is uniform on its range; the others lie in the window
    top = rest / bins + (1 - rest) * certified.channel.response.window.probabilities().max()
    return log(1 + (top * bins / rest - 1) / padding), certified.epsilon


# --- the authors' script: one key, whose people report from a window about their value, and others anything ---

CUT, BEGIN = 250 / 1024, 1 / 8  # bins that begin without values; people who begin with the key


def window_law(epsilon: float, bins: int) -> np.ndarray:
    """Return P(report | value) by the window that the script sets by hand, shape (values, reports)."""
    root, kept = exp(epsilon / 2), exp(epsilon)
    half = (root + 9) / (10 * (root - 1))
    scale = half * kept / (half * kept - 1 - half)
    edges = np.linspace(-scale - half, scale + half, bins + 1)
    middle = scale * ((2 * np.arange(bins) + 1) / bins - 1)[:, None]
    inside = np.clip(np.minimum(edges[1:], middle + half) - np.maximum(edges[:-1], middle - half), 0, None)
    return np.asarray((np.diff(edges) + (kept - 1) * inside) / (2 * (half * kept + scale)))


def script_errors(
    values: np.ndarray, people: int, epsilon: float, runs: int, bins: int, begin: float = BEGIN, cut: float = CUT
) -> np.ndarray:
    """Return the squared errors of the mean of a key by the script's mechanism and EM, which begins with a share, and above a cut."""
    law = np.vstack([window_law(epsilon, bins), np.full(bins, 1 / bins)])
    true = np.append(np.histogram(values, bins, (-1, 1))[0], people - len(values)) / people
    counts = np.random.default_rng().multinomial(people, true @ law, runs).astype(float)
    start = np.append(np.where(np.arange(bins) < cut * bins, 1e-7, begin / bins), 1 - begin)
    theta = fitted_with_noise(law, counts, np.tile(start, (runs, 1)), 1e-4 * exp(epsilon))[:, :bins]
    return np.asarray((theta @ (2 * np.arange(bins) / bins - 1) / theta.sum(axis=1) - values.mean()) ** 2)


def fitted_with_noise(law: np.ndarray, counts: np.ndarray, theta: np.ndarray, tolerance: float) -> np.ndarray:
    """Return the shares of the bins and of people without the key, by EM that smooths those of the bins while it gains."""
    out, at = np.empty_like(theta), np.arange(len(theta))
    gain, level, expected = np.ones(len(theta)), np.zeros(len(theta)), theta @ law
    for step in range(10_000):
        theta = theta * ((counts / expected) @ law.T) / counts.sum(axis=1, keepdims=True)
        rising = gain > 3e-4
        theta[rising, :-1] = smoothed(theta[rising, :-1])
        theta[rising, -1] *= 1 + 3 * tolerance * (step > 5000)
        theta /= theta.sum(axis=1, keepdims=True)
        expected = theta @ law
        now = (counts * np.log(expected)).sum(axis=1)
        gain, level, going = now - level, now, (step <= 2000) | (np.abs(now - level) >= tolerance)
        if not going.all():
            out[at[~going]] = theta[~going]
            theta, counts, expected, gain, level, at = (each[going] for each in (theta, counts, expected, gain, level, at))
        if not len(at):
            return out
    out[at] = theta
    return out
