"""Wiener deconvolution of the inverted shares (IIW).

Fang, Chen, Liu, Gao, "Locally differentially private frequency estimation based on convolution framework", IEEE S&P 2023, as
described in Ye, Wang, Zhang, Feng, NDSS 2025, section III; the iteration is that of Hillery, Chin, "Iterative Wiener filters
for image restoration", IEEE Trans. Signal Processing 1991.
"""

from typing import Annotated

import numpy as np
from pydantic import Field

from ldpsql.estimators import Estimator, Fit, Floats, Likelihood, hookimpl, simplex_projection


class Iiw(Estimator):
    """Iterative Wiener filter: frequencies of the inverted shares that noise drowns are damped; the result is projected.

    The spectrum of the noise is that of the inversion itself. The limit of the iteration is computed directly: with power S of
    the inverted shares and N of their noise, each frequency is multiplied by max(0, 1 - N/S). With ``iterations``, as many are
    computed as published: with the noise of the mechanism alone, the same at every frequency, and without the projection, so
    that shares can be negative. Their sum stays one; as published, it is a little less.

    Right if neighbours in the domain are alike.

    >>> from ldpsql.inference.operators import KeepOrSpreadOperator
    >>> waves = KeepOrSpreadOperator(4, 0.4, 0.2)
    >>> Iiw().fit(Likelihood(waves, np.array([[30.0, 28.0, 21.0, 21.0]]))).theta.round(2).tolist()
    [[0.35, 0.32, 0.15, 0.18]]
    """

    name = "iiw"
    ordered = True
    iterations: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="steps of the published iteration; NULL: its limit, with the noise of each frequency"
    )

    def fit(self, likelihood: Likelihood) -> Fit:
        """Invert, filter and project every group."""
        v = likelihood.operator.invert(likelihood.shares)
        spectrum = np.fft.rfft(v, axis=-1)
        power = np.abs(spectrum) ** 2
        if self.iterations is not None:
            theta = simplex_projection(v)
            of_people = (1.0 - (theta**2).sum(axis=-1, keepdims=True)) / likelihood.n[:, None]
            kept = iterated(power, np.maximum(white_noise(likelihood, theta) - of_people, 0.0), self.iterations)
            kept[:, 0] = 1.0
            return Fit.inversion(np.fft.irfft(kept * spectrum, v.shape[-1], axis=-1))
        kept = np.maximum(0.0, 1.0 - noise_spectrum(likelihood, simplex_projection(v)) / np.maximum(power, 1e-300))
        kept[:, 0] = 1.0  # the sum of the shares
        return Fit.inversion(simplex_projection(np.fft.irfft(kept * spectrum, v.shape[-1], axis=-1)))


def iterated(power: Floats, noise: Floats, steps: int) -> Floats:
    """Return the factor of each frequency after so many steps: signal and noise are estimated in turns."""
    signal = power
    kept = signal / np.maximum(signal + noise, 1e-300)
    for _ in range(steps - 1):
        signal = kept**2 * power + kept * noise
        kept = signal / np.maximum(signal + noise, 1e-300)
    return kept


def noise_spectrum(likelihood: Likelihood, theta: Floats) -> Floats:
    """Return the expected power of the noise of the inverted shares at each frequency, shape (groups, frequencies).

    If reports are votes, or of several mechanisms, it is assumed to be white: the sum of the variances at every frequency.
    """
    op, n = likelihood.operator, likelihood.n[:, None]
    if op.votes or op.inverse is None:
        return np.broadcast_to(white_noise(likelihood, theta), (len(theta), theta.shape[-1] // 2 + 1))
    single = np.abs(np.fft.rfft(op.inverse, axis=-1)) ** 2
    return np.asarray((op.forward(theta) @ single - np.abs(np.fft.rfft(theta, axis=-1)) ** 2) / n)


def white_noise(likelihood: Likelihood, theta: Floats) -> Floats:
    """Return the sum of the variances of the inverted shares, shape (groups, 1)."""
    error = likelihood.operator.inverted_interval(likelihood.shares, likelihood.n, theta, 1.0)[0]
    return np.asarray((error**2).sum(axis=-1, keepdims=True))


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer the iterative Wiener filter."""
    return [Iiw]
