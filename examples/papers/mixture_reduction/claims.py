"""Verdicts on ratios of errors: a claim is compared with the ratio and its standard error."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np
from reproduction import Finding

SURE = 2.0  # standard errors
GAINS = "EM / long EM or the maximum is what stopping early gains, and only what MR is below that is gained by merging"


def at_most(figure: str, claim: str, ratios: Sequence[float], most: float, why: str = "", text: str = "") -> Finding:
    """Return whether ratios of errors, one for each run, are on average at most ``most``."""
    runs = np.asarray(ratios, dtype=np.float64)
    return bounded(figure, claim, (float(runs.mean()), float(runs.std(ddof=1)) / sqrt(len(runs))), most, why, text)


def ratio_of_means(above: np.ndarray, below: np.ndarray) -> tuple[float, float]:
    """Return the ratio of the means of two errors over their runs, and its standard error."""
    ratio = float(above.mean() / below.mean())
    relative = sum((runs.std(ddof=1) / runs.mean()) ** 2 / len(runs) for runs in (above, below))
    return ratio, ratio * sqrt(relative)


def bounded(figure: str, claim: str, ratio: tuple[float, float], most: float, why: str = "", text: str = "") -> Finding:
    """Return whether a ratio with its standard error is at most ``most``.

    The claim is one of a gain, so a ratio that two standard errors cannot tell from 1 decides nothing.
    """
    mean, error = ratio[0], SURE * ratio[1]
    shown = f"{text}{'; ' if text else ''}on average {mean:.2f} +- {error:.2f}"
    if mean - error > most or mean - error > 1:
        return Finding(figure, claim, shown, "differs", why)
    if mean + error >= 1:
        return Finding(figure, claim, shown, "cannot decide", "two standard errors reach 1")
    return Finding(figure, claim, shown, "agrees")


def near(figure: str, published: float, runs: np.ndarray, published_runs: int, within: float, why: str = "") -> Finding:
    """Return whether the published mean of an error is within so many standard deviations of a mean like that of our runs.

    Errors of one method at two scales have one shape, close to that of a gamma distribution, so a mean a third of ours also has a
    third of its spread. The ratio of two such means has an F distribution, and Paulson's cube roots make it a normal one.
    """
    mean, spread = float(runs.mean()), float(runs.std(ddof=1))
    theirs, own = ((spread / mean) ** 2 / 9 / n for n in (published_runs, len(runs)))
    root = float(np.cbrt(published / mean))
    away = (root * (1 - own) - (1 - theirs)) / sqrt(root**2 * own + theirs)
    text = f"{mean:.2e} +- {spread / sqrt(len(runs)):.0e} in {len(runs)} runs: {away:+.1f} standard deviations"
    return Finding.checked(figure, f"{published:.2e} in {published_runs} runs", text, abs(away) <= within, why)
