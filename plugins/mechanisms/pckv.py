"""PCKV with the better of its two responses.

Gu, Li, Cheng, Xiong, Cao, "PCKV: locally differentially private correlated key-value data collection with optimized utility",
USENIX Security 2020, section 5.4.
"""

from fractions import Fraction
from typing import Annotated

from pydantic import Field

from ldpsql.mechanisms import (
    KeepOrSpread,
    KeyLaw,
    Mechanism,
    SetReports,
    SignedBits,
    SignMechanism,
    SymbolReports,
    WholeField,
    hookimpl,
)


class Pckv(SignMechanism):
    """PCKV with unary encoding or generalised randomised response, whichever has the smaller variance.

    The variances compared are those of frequencies, if each key is in ``set_size`` of as many sets as there are keys.
    Randomised response wins with few keys, a large epsilon or long padding. Reports are UBIGINT[] in both cases: bits, or the
    number of one symbol.

    >>> chosen = [type(Pckv(epsilon=1, keys=range(n)).response()).__name__ for n in (4, 400)]
    >>> chosen
    ['KeepOrSpread', 'SignedBits']
    """

    name = "pckv"
    sql_reports = SetReports.marker
    set_size: Annotated[WholeField, Field(ge=1)] | None = Field(
        None, description="how many pairs a user typically has; by default as many as the padding"
    )

    def alphabet(self) -> SetReports | SymbolReports:
        """Return the sets of symbols, or their numbers."""
        symbols = 2 * self.symbol_keys(2)
        return SymbolReports(symbols) if isinstance(self.response(), KeepOrSpread) else SetReports(symbols)

    def response(self) -> KeepOrSpread | SignedBits:
        """Return the response with the smaller variance."""
        total = self.symbol_keys(2)
        grr = KeepOrSpread.within(2 * total, self.ratio(2))
        ue = SignedBits.within(total, self.epsilon.exp_below())
        return grr if self._variance(grr.key_law()) <= self._variance(ue.key_law()) else ue

    def _variance(self, law: KeyLaw) -> Fraction:
        """Return the variance of a frequency, up to a factor that both responses share (section 5.4, theorem 3)."""
        size = self.set_size or self.padding
        drawn = Fraction(min(size, self.padding), self.padding * len(self.keys))
        supported = law.other + drawn * law.lift
        return supported * (1 - supported) / law.lift**2


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer PCKV."""
    return [Pckv]
