"""Score intervals: the values within z of their own standard errors of the estimate. They are right for few reports, too."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from ldpsql.channels import Floats


def deviations(confidence: float) -> float:
    """Return how many standard errors an interval of this confidence reaches to either side."""
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def of_each(confidence: float, count: int) -> float:
    """Return the confidence of each of ``count`` intervals that hold together with this one, by Bonferroni's inequality."""
    return 1.0 - (1.0 - confidence) / count


def half_width(error: Floats, bias: float, z: float) -> Floats:
    """Return how far an interval goes to either side of a normal estimate whose bias is at most ``bias``.

    The bias moves the estimate to one side only, so this is less than ``z * error + bias``.
    Source: Armstrong, Kolesar, "Optimal inference in a class of regression models", Econometrica 2018, section 2.3.
    """
    error = np.asarray(error)
    if not bias:
        return np.asarray(z * error)
    from scipy.special import ndtr  # noqa: PLC0415  # slow to import

    tails, normal = 2 * NormalDist().cdf(-z), NormalDist()
    apart = 2 * bias / np.maximum(error, bias / 100)  # beyond, the second tail has no weight
    d = np.full(error.shape, -normal.inv_cdf(tails))
    for _ in range(8):  # Newton's method rises to the root, as the derivative falls
        slope = (np.exp(-(d**2) / 2) + np.exp(-((d + apart) ** 2) / 2)) / np.sqrt(2 * np.pi)
        d += (ndtr(-d) + ndtr(-d - apart) - tails) / slope
    return np.asarray(bias + d * error)


def widening(error: Floats, bias: float, z: float) -> Floats:
    """Return by how much such a bias widens an interval on either side; the bias itself if the error is infinite."""
    finite = np.where(np.isfinite(error), error, 0.0)
    return half_width(finite, bias, z) - z * finite


def wilson(shares: Floats, n: Floats | float, z: float) -> tuple[Floats, Floats]:
    """Return the ends of Wilson's interval of shares of n independent reports each; n broadcasts against the shares.

    Source: Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927.
    """
    middle = shares + z**2 / (2 * n)
    reach = z * np.sqrt(np.maximum(shares * (1 - shares), 0.0) / n + (z / (2 * n)) ** 2)
    return (middle - reach) / (1 + z**2 / n), (middle + reach) / (1 + z**2 / n)


def of_votes(
    v: Floats, theta: Floats, votes: tuple[float, float], n: Floats | float, z: float
) -> tuple[Floats, Floats, Floats]:
    """Return standard errors, and the ends of Wilson's intervals, of shares v that were computed from votes.

    A report of the value x votes for x with the second of the chances ``votes``, for another value with the first. The errors
    are exact if theta is the truth.
    """
    low, high = votes
    ends = np.sort([(end - low) / (high - low) for end in wilson(low + (high - low) * v, n, z)], axis=0)
    return np.sqrt(vote_scatter(theta, votes) / n), ends[0], ends[1]


def vote_scatter(theta: Floats, votes: tuple[float, float]) -> Floats:
    """Return n times the variance of the shares computed from the votes of n reports, if theta is the truth."""
    low, high = votes
    chance = low + (high - low) * theta
    return np.asarray(chance * (1.0 - chance) / (high - low) ** 2)


def score_ends(centre: Floats, theta: Floats, second: Floats, own: Floats, shrink: float | Floats) -> tuple[Floats, Floats]:
    """Return the ends of the score interval of one group's shares: the t for which the centre lies z errors away.

    ``second`` is the second moment of what a report contributes to the centre, ``own`` the same among reports of the value
    itself, and ``shrink`` is z^2/n. If the share of x is t and the others keep their proportions, a contribution has
    expectation t and variance t own + (1 - t) other - t^2. For k-RR the ends are those of `wilson`.
    """
    other = (second - theta * own) / np.maximum(1.0 - theta, 1e-12)
    lead, half = 1.0 + shrink, centre + shrink * (own - other) / 2.0
    reach = np.sqrt(np.maximum(half**2 - lead * (centre**2 - shrink * other), 0.0))
    return (half - reach) / lead, (half + reach) / lead


def cut(
    low: Floats, high: Floats, reach: Floats, least: Floats | float = 0.0, most: Floats | float = 1.0
) -> tuple[Floats, Floats]:
    """Return the ends of intervals cut to [least, most]; ``reach`` is how far they go to either side, or infinite.

    Unlucky noise may move a whole interval beyond the bounds. Cut to a point it would seem certain, so half of its reach stays
    within them: as much as of an interval around a number that is half a reach outside.
    """
    kept = np.maximum(high - low, 2 * np.where(np.isfinite(reach), reach, 0.0)) / 4
    return np.clip(np.minimum(low, most - kept), least, most), np.clip(np.maximum(high, least + kept), least, most)


def exact_ends(v: Floats, n: float, votes: tuple[float, float], confidence: float) -> tuple[Floats, Floats]:
    """Return the ends of the exact intervals of shares v computed from the votes of n reports, shape (values,).

    The number of votes for a value is binomial, with a chance between the two ``votes``. Equal numbers are computed once.
    Source: Clopper, Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial", Biometrika
    1934.
    """
    from scipy.special import betaincinv  # noqa: PLC0415  # slow to import

    chance, lift = votes[0], votes[1] - votes[0]
    seen, back = np.unique(np.clip(np.rint((chance + lift * v) * n), 0.0, n), return_inverse=True)
    tail = (1.0 - confidence) / 2.0
    least = np.where(seen > 0, betaincinv(np.maximum(seen, 1.0), n - seen + 1.0, tail), 0.0)
    most = np.where(seen < n, betaincinv(seen + 1.0, np.maximum(n - seen, 1.0), 1.0 - tail), 1.0)
    low, high = np.sort([(least - chance) / lift, (most - chance) / lift], axis=0)
    return low[back], high[back]


# Goodness of fit: bounds of the probability that honest reports look like this. They hold at every sample size.
#
# All are logarithms of upper bounds of a p-value: they never refuse honest reports more often than they state. They find crude
# manipulation, wrong parameters and raw columns; manipulation that imitates the mechanism passes them.


def log_fit_p_value(statistic: Floats, outputs: int) -> Floats:
    """Return an upper bound of ln P(G^2 >= statistic) for counts of ``outputs`` cells under their best or their true law.

    Half of G^2 at the maximum is at most n KL(shares, truth), whose tail is that of a Gamma variable (Agrawal, "Finite-sample
    concentration of the multinomial in relative entropy", IEEE Trans. Inf. Theory 2020, theorem I.2). For several samples the
    number of cells is their sum.
    """
    t, free = np.minimum(statistic / 2.0, 1e300), outputs - 1  # infinite if the law excludes an observed report
    with np.errstate(divide="ignore"):
        bound: Floats = -t + free * (1.0 + np.log(np.maximum(t, free) / free))
    return np.where(t <= free, 0.0, bound)


def known_law(counts: Floats, law: Floats) -> tuple[float, float]:
    """Return G^2 of counts against a fully known law, and the logarithm of its p-value's bound.

    Cells with less than one expected report are pooled, which depends on the number of reports only: the bound stays a bound.
    """
    n = counts.sum()
    rare = law * n < 1.0
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(law[~rare], max(law[rare].sum(), 1e-300)) * n
    seen = observed > 0
    statistic = max(0.0, 2.0 * float(observed[seen] @ np.log(observed[seen] / expected[seen])))
    return statistic, float(log_fit_p_value(np.array(statistic), max(2, len(observed))))


def log_p_within(shares: Floats, n: float, low: float, high: float) -> float:
    """Return the logarithm of the bound of the p-value that all of these shares have expectations between low and high.

    Each share is of n independent reports. Source: Chernoff's bound exp(-n KL) for either end, times the number of shares.
    """
    worst = max(float(_divergence(shares[shares < low], low).max(initial=0.0)), 0.0)
    worst = max(float(_divergence(shares[shares > high], high).max(initial=0.0)), worst)
    return min(0.0, np.log(len(shares)) - n * worst)


def _divergence(shares: Floats, chance: float) -> Floats:
    """Return KL(share, chance) of coins."""
    with np.errstate(divide="ignore", invalid="ignore"):
        heads = np.where(shares > 0, shares * np.log(shares / chance), 0.0)
        tails = np.where(shares < 1, (1 - shares) * np.log((1 - shares) / (1 - chance)), 0.0)
    return np.asarray(heads + tails)
