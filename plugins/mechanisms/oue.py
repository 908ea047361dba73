"""Optimised unary encoding (OUE).

Wang, Blocki, Li, Jha, "Locally differentially private protocols for frequency estimation", USENIX Security 2017.
"""

from ldpsql.mechanisms import (
    TOTAL,
    CategoricalMechanism,
    Channel,
    IndependentBits,
    Mechanism,
    SetReports,
    coarse_above,
    hookimpl,
)


class Oue(CategoricalMechanism):
    """Optimised unary encoding: one bit per value; its own is set with probability 1/2, every other with 1/(1 + e^epsilon).

    Reports are lists of 64-bit words, UBIGINT[].

    >>> channel = Oue(epsilon=1, domain=["Lima", "Oslo", "Rome"]).channel()
    >>> round(float(channel.hit), 3), round(float(channel.miss), 3)
    (0.5, 0.269)
    """

    name = "oue"
    sql_reports = SetReports.marker

    def alphabet(self) -> SetReports:
        """Return the sets of values."""
        return SetReports(len(self.domain))

    def channel(self) -> Channel:
        """Return the bits: (1/2)(1 - q) / (q (1 - 1/2)) = (1 - q)/q is at most e^epsilon if q is rounded up."""
        return IndependentBits(len(self.domain), TOTAL // 2, coarse_above(1 / (1 + self.epsilon.exp_below())))


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer OUE."""
    return [Oue]
