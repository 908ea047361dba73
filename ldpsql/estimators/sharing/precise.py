"""Priors of shares that a group's own reports determine well: too narrow for a grid that all groups have in common.

Each of these shares has candidates of its own: a few around the inverted share, as far apart as half of its error, and a few
around the common mean.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ldpsql.estimators.sharing.votes import Votes
from ldpsql.inference.operators import Floats

WELL = 6.0  # errors that a share is above zero
_AROUND = np.arange(-5.0, 5.1, 0.5)
_NEAR = np.array([-1.0, -0.5, -0.2, -0.05, 0.05, 0.2, 0.5, 1.0])
_TINY = 1e-12


def well_determined(votes: Votes, value: int) -> NDArray[np.bool_]:
    """Return in which groups the reports determine the share of a value well."""
    share, error = votes.inverted(value)
    return np.asarray(share > WELL * error)


def own_candidates(votes: Votes, value: int, mean: float) -> Floats:
    """Return the candidates of the share of a value in each group, rising: (groups, candidates)."""
    share, error = (part[:, None] for part in votes.inverted(value))
    both = np.hstack([share + error * _AROUND, mean + error * _NEAR])
    return np.sort(np.clip(both, _TINY, 1.0), axis=1)


def own_masses(mean: float, concentration: Floats, candidates: Floats) -> Floats:
    """Return the prior masses of the candidates of each group in each class, (groups, classes, candidates).

    The cube root of a Gamma variable is close to normal. Source: Wilson, Hilferty, "The distribution of chi-square", PNAS 1931.
    """
    from scipy.special import ndtr  # noqa: PLC0415  # slow to import

    shape = np.maximum(concentration * mean, _TINY)[..., None]
    edges = (candidates[:, None, 1:] + candidates[:, None, :-1]) / 2.0
    below = ndtr((np.cbrt(edges / mean) - 1.0 + 1.0 / (9.0 * shape)) * 3.0 * np.sqrt(shape))
    return np.asarray(np.diff(below, axis=-1, prepend=0.0, append=1.0))
