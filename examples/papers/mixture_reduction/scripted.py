"""What the authors' scripts fit to numbers in place of algorithm 3, in our own words.

They smooth the shares after every step of EM. Their MR does so too, and merges windows near the ends of the range: one of half of the
bins, then shorter ones. It empties a window but for one bin, fits again with twice the tolerance, and at the end gives the bins of a
window equal shares. What a window may weigh is set by hand, for epsilon and the number of people.
"""

from __future__ import annotations

from math import exp, log

import numpy as np

from ldpsql import Likelihood

MANY = 100_000  # people, from which on other settings hold
ENDS, SHORTEST = (
    150 / 1024,
    64 / 1024,
)  # of all bins: how far from the ends another window may begin, and the length of the last
LIKE = 0.03  # what two windows may differ by, for the one at an end to be taken


def smoothed(theta: np.ndarray) -> np.ndarray:
    """Return shares averaged with those next to them, 1 : 2 : 1, and at the ends 2 : 1; shape (..., bins)."""
    neighbours = np.zeros_like(theta)
    neighbours[..., 1:] += theta[..., :-1]
    neighbours[..., :-1] += theta[..., 1:]
    return (neighbours + 2 * theta) / np.array([3, *[4] * (theta.shape[-1] - 2), 3])


def ems(law: np.ndarray, counts: np.ndarray, theta: np.ndarray, tolerance: float, steps: int) -> np.ndarray:
    """Return the shares by EM that smooths, until the log-likelihood moves by less than the tolerance."""
    last = 0.0
    for step in range(steps):
        before, theta = theta, smoothed(theta * (law @ (counts / (theta @ law))))
        theta /= theta.sum()
        level = float(counts @ np.log(theta @ law))
        if (step > 1 and abs(level - last) < tolerance) or np.abs(theta - before).sum() <= 1 / counts.sum():
            break
        last = level
    return theta


def lightest(theta: np.ndarray, taken: np.ndarray, length: int, like: float) -> tuple[int, float]:
    """Return where the lightest free window begins and what it weighs, or one at an end if that is about as light."""
    bins, ones, at = len(theta), np.ones(length), np.arange(len(theta) - length)
    free = np.convolve(taken, ones, "valid")[:-1] == 0
    free &= (at < length + ENDS * bins) | (at > bins - length - ENDS * bins)
    if not free.any():
        return 0, 1.0
    weights = np.where(free, np.convolve(theta, ones, "valid")[:-1], 1.0)
    (first, last), least = np.flatnonzero(free)[[0, -1]].tolist(), int(weights.argmin())
    if abs(weights[least] - weights[last]) < like and weights[first] > 2 * weights[last]:
        least = last
    elif abs(weights[least] - weights[first]) < like:
        least = first
    return least, float(weights[least])


def mixture(law: np.ndarray, counts: np.ndarray, tolerance: float, most: float, steps: int = 5000) -> np.ndarray:
    """Return the shares by the scripts' MR; ``most`` is what its first window may weigh, each further one half of that."""
    law, bins, many = law.copy(), len(law), counts.sum() > MANY
    theta, taken, merged = np.full(bins, 1 / bins), np.zeros(bins), list[tuple[int, int]]()
    length, rounds, like = bins // 2, 0.0, most / 2 if many else LIKE
    while True:
        rounds += 1
        if bins - taken.sum() > bins / 4:
            theta = ems(law, counts, theta, tolerance, steps)
        if rounds >= 4 or length < SHORTEST * bins:
            break
        tolerance, steps = 2 * tolerance, steps // 2
        start, weight = lightest(theta, taken, length, like / 2 ** (rounds - 1))
        if weight < most / 2 ** len(merged):
            window = slice(start + 1, start + 1 + length)  # one bin after the window that was weighed
            merged.append((start, length))
            theta[window], taken[window] = 0, 1
            theta[start + length // 2 + 1] = weight / (1.1 if many else 3)
            law[start + length // 2] = law[start : start + length].mean(axis=0)
            length //= 2
        else:
            length -= int(SHORTEST * bins)
            rounds -= 0.5 if merged else 1
    for start, length in merged:
        theta[start : start + length] = theta[start : start + length].mean()
    return np.asarray(theta / theta.sum())


def allowed(epsilon: float, people: int) -> float:
    """Return what the first window may weigh, by the script for the piecewise mechanism."""
    most = 0.4 / exp(epsilon / 2) / (log(people) - 1)
    if epsilon <= 0.5 and people < MANY:
        return most / (exp(epsilon) - 1)
    if epsilon >= 1 and people > MANY:
        return most / exp(epsilon / 2)
    return 2 * most if epsilon < 0.2 and people > MANY else most


def scripted(reports: Likelihood, epsilon: float) -> np.ndarray:
    """Return the estimates of the scripts' MR, shape (runs, bins)."""
    people = int(reports.counts[0].sum())
    tolerance = (1e-3 if people < MANY else 1e-4) * exp(epsilon)
    law = reports.operator.matrix()
    return np.array([mixture(law, counts, tolerance, allowed(epsilon, people)) for counts in reports.counts])
