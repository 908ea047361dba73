"""Basic one-time RAPPOR, also known as symmetric unary encoding (SUE).

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


class Rappor(CategoricalMechanism):
    """Basic one-time RAPPOR: one bit per value, only its own set; each bit is flipped with probability 1/(1 + e^(epsilon/2)).

    Reports are lists of 64-bit words, UBIGINT[]. `oue` has the smaller error.

    >>> channel = Rappor(epsilon=1, domain=["Lima", "Oslo", "Rome"]).channel()
    >>> round(float(channel.hit), 3), round(float(channel.miss), 3)
    (0.622, 0.378)
    """

    name = "rappor"
    sql_reports = SetReports.marker

    def alphabet(self) -> SetReports:
        """Return the sets of values."""
        return SetReports(len(self.domain))

    def channel(self) -> Channel:
        """Return the bits: two bits distinguish two values, so each gets half of epsilon."""
        flip = coarse_above(1 / (1 + exp_below(self.epsilon.value / 2)))
        return IndependentBits(len(self.domain), TOTAL - flip, flip)


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer RAPPOR."""
    return [Rappor]
