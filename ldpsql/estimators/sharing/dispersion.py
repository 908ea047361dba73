"""How far the shares of groups lie from a common mean: classes of spread, and the distribution of one share in each of them.

The share of a value among the n people of a group is Dirichlet with the common mean in each class. Groups that are samples of
populations with concentration a have shares of concentration 1 / (1/a + 1/n); groups that are more alike than samples, such
as the days of a timetable, have some multiple of n. A class is one a, or one multiple.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ldpsql.inference.operators import Floats

CONCENTRATIONS = np.geomspace(0.3, 1e5, 13)
MULTIPLES = np.array([1.0, 4.0, 16.0, 1e4])
CLASSES = len(CONCENTRATIONS) + len(MULTIPLES)
GRID = np.geomspace(0.1, 1e8, 37)  # concentrations at which priors are computed; those between them are interpolated
_SAMPLE = 1e7  # a concentration that is as good as infinite
_TINY, _HUGE = 1e-12, 1e300


def concentrations(n: Floats) -> Floats:
    """Return the concentration of the shares of groups of n people in each class, shape (groups, classes)."""
    unlike = 1.0 / (1.0 / CONCENTRATIONS + 1.0 / n[:, None])
    return np.hstack([unlike, MULTIPLES * n[:, None]])


def gamma_masses(mean: Floats, concentration: Floats, edges: Floats) -> Floats:
    """Return the masses of Gamma distributions between rising edges, shape (means, concentrations, edges + 1).

    A share of a Dirichlet distribution with many values is close to Gamma with the shape concentration * mean. The masses are
    read-only: groups that are estimated one by one, as those of OUE, need the same ones again and again.
    """
    return _gamma_masses(mean.tobytes(), concentration.tobytes(), edges.tobytes())


@lru_cache(maxsize=16)
def _gamma_masses(*octets: bytes) -> Floats:
    from scipy.special import gammainc  # noqa: PLC0415  # slow to import

    mean, concentration, edges = (np.frombuffer(each) for each in octets)
    shape = np.maximum(concentration[:, None] * mean[:, None, None], _TINY)
    below = gammainc(shape, np.minimum(concentration[:, None] * edges, _HUGE))
    masses = np.maximum(np.diff(below, axis=-1, prepend=0.0, append=1.0), 0.0)
    masses.flags.writeable = False
    return masses


def whole_masses(mean: Floats, n: int) -> Floats:
    """Return the probability of each number of n people, shape (means, classes, n + 1): beta-binomial, if groups are unlike."""
    from scipy.special import betaln, gammaln  # noqa: PLC0415  # slow to import

    k, mu = np.arange(n + 1), np.clip(mean, _TINY, 1.0 - 1e-9)[:, None, None]
    a = np.append(CONCENTRATIONS, _SAMPLE)[:, None]
    ways = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    unlike = np.exp(ways + betaln(k + a * mu, n - k + a * (1.0 - mu)) - betaln(a * mu, a * (1.0 - mu)))
    alike = gamma_masses(mean, MULTIPLES[1:] * n, (np.arange(n) + 0.5) / n)
    return np.concatenate([unlike, alike], axis=1)
