"""Unary encodings, one bit per value: optimised (OUE), and symmetric (SUE), also known as basic one-time RAPPOR.

Wang, Blocki, Li, Jha, "Locally differentially private protocols for frequency estimation", USENIX Security 2017 (OUE).
Erlingsson, Pihur, Korolova, "RAPPOR: randomized aggregatable privacy-preserving ordinal response", CCS 2014.
"""

from ldpsql.mechanisms import (
    TOTAL,
    CategoricalMechanism,
    Channel,
    IndependentBits,
    Mechanism,
    SetReports,
    coarse_above,
    exp_below,
    hookimpl,
)


class _Unary(CategoricalMechanism):
    """A mechanism whose reports have one bit for each value."""

    sql_reports = SetReports.marker

    def alphabet(self) -> SetReports:
        """Return the sets of values."""
        return SetReports(len(self.domain))


class Oue(_Unary):
    """Optimised unary encoding: one bit per value; its own is set with probability 1/2, every other with 1/(1 + e^epsilon).

    Reports are lists of 64-bit words, UBIGINT[].

    >>> channel = Oue(epsilon=1, domain=["Lima", "Oslo", "Rome"]).channel()
    >>> round(float(channel.hit), 3), round(float(channel.miss), 3)
    (0.5, 0.269)
    """

    name = "oue"

    def channel(self) -> Channel:
        """Return the bits: (1/2)(1 - q) / (q (1 - 1/2)) = (1 - q)/q is at most e^epsilon if q is rounded up."""
        return IndependentBits(len(self.domain), TOTAL // 2, coarse_above(1 / (1 + self.epsilon.exp_below())))


class Rappor(_Unary):
    """Basic one-time RAPPOR: one bit per value, only its own set; each bit is flipped with probability 1/(1 + e^(epsilon/2)).

    Reports are lists of 64-bit words, UBIGINT[]. `oue` has the smaller error.

    >>> channel = Rappor(epsilon=1, domain=["Lima", "Oslo", "Rome"]).channel()
    >>> round(float(channel.hit), 3), round(float(channel.miss), 3)
    (0.622, 0.378)
    """

    name = "rappor"

    def channel(self) -> Channel:
        """Return the bits: two bits distinguish two values, so each gets half of epsilon."""
        flip = coarse_above(1 / (1 + exp_below(self.epsilon.value / 2)))
        return IndependentBits(len(self.domain), TOTAL - flip, flip)


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer OUE and RAPPOR."""
    return [Oue, Rappor]
