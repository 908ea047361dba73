"""Protocols of other libraries whose reports are sets of values: the reports that `ldp.read` reads.

OUE, SUE and local hashing: Wang, Blocki, Li, Jha, USENIX Security 2017. Hadamard response: Acharya, Sun, Zhang, AISTATS 2019.
"""

from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field

from ldpsql.mechanisms import (
    TOTAL,
    CategoricalMechanism,
    Channel,
    Hadamard,
    IndependentBits,
    Mechanism,
    SetReports,
    WholeField,
    exp_below,
    hookimpl,
)


class Encoding(CategoricalMechanism):
    """A protocol of other libraries, with its exact probabilities, for reports that `ldp.read` reads: sets of values.

    'oue' and 'sue' are unary encodings; 'olh' reads local hashing to ``symbols`` symbols, each report as the set of values
    that have its hash; 'hadamard' is Hadamard response with one block. Reports are lists of 64-bit words, UBIGINT[]. It also
    draws reports, but `oue`, `rappor` and `olh` draw them more quickly.

    >>> channel = Encoding(epsilon=1, domain=["Lima", "Oslo", "Rome"], protocol="olh").channel()
    >>> round(float(channel.hit), 3), round(float(channel.miss), 3)
    (0.475, 0.25)
    """

    name = "encoding"
    sql_reports = SetReports.marker
    protocol: Literal["oue", "sue", "olh", "hadamard"] = Field(description="'oue', 'sue', 'olh' or 'hadamard'")
    symbols: Annotated[WholeField, Field(ge=2, le=1 << 20)] | None = Field(
        None, description="number of symbols of 'olh'; NULL: e^epsilon rounded, plus 1"
    )

    def alphabet(self) -> SetReports:
        """Return the sets of values."""
        return SetReports(len(self.domain))

    def channel(self) -> Channel:
        """Return Hadamard response, or bits: a report that supports any other value with probability ``other``."""
        grown = self.epsilon.exp_below()
        if self.protocol == "hadamard":
            return Hadamard.within(len(self.domain), grown)
        other = -int(-self._other() * TOTAL // 1)  # rounded up
        lifted = grown * other  # own (TOTAL - other) / (other (TOTAL - own)) = e^epsilon, solved for own and rounded down
        return IndependentBits(len(self.domain), int(lifted * TOTAL / (TOTAL - other + lifted)), other)

    def _other(self) -> Fraction:
        grown = self.epsilon.exp_below()
        if self.protocol == "olh":
            return Fraction(1, self.symbols or round(grown) + 1)
        return 1 / (1 + (grown if self.protocol == "oue" else exp_below(self.epsilon.value / 2)))


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer the protocols of other libraries."""
    return [Encoding]
