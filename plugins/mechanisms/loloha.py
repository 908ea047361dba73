"""Longitudinal local hashing (LOLOHA).

Arcolezi, Pinzón, Palamidessi, Gambs, "Frequency estimation of evolving data under local differential privacy", EDBT 2023. The
second response is the largest that keeps one report below ``once``; the paper's own is smaller for more than two symbols.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator

from ldpsql.mechanisms import (
    Channel,
    DomainField,
    EpsilonField,
    HashReports,
    InvalidParameter,
    KeepOrSpread,
    Mechanism,
    PureLdp,
    RepeatedHash,
    WholeField,
    hash_symbols,
    hookimpl,
)

_MOST_SYMBOLS = 1 << 20


class Loloha(Mechanism):
    """Longitudinal local hashing: each person keeps a hash and a k-RR response to it, and every report responds to that again.

    Reports are STRUCT(seed, y). One report has epsilon ``once``. With `ldp.perturb_once` a person keeps the seed, and all
    reports of one value together have at most epsilon ``permanent``; those of c values at most min(c, symbols) times that,
    except that many reports show when the symbol changed. `ldp.perturb` draws a new seed for every report.

    >>> channel = Loloha(permanent=2, once=1, domain=range(20)).channel()
    >>> channel.response.size, round(float(channel.hit), 3)
    (4, 0.475)
    """

    name = "loloha"
    sql_reports = HashReports.marker
    permanent: EpsilonField = Field(description="epsilon of all reports of one value together, larger than once")
    once: EpsilonField = Field(description="epsilon of one report")
    domain: DomainField = Field(description="the values that may occur, in a fixed order; at most 16,777,216")
    symbols: Annotated[WholeField, Field(ge=2, le=_MOST_SYMBOLS)] | None = Field(
        None, description="the number of symbols; NULL: near e^once + 1, which has the smallest error; 2 costs least over time"
    )

    @model_validator(mode="after")
    def _smaller_once(self) -> Self:
        if self.once >= self.permanent:
            raise InvalidParameter("once must be smaller than permanent", "loloha(permanent := 2, once := 1, ...)")
        return self

    def claim(self) -> PureLdp:
        """Return the epsilon of one report."""
        return PureLdp(self.once)

    def size(self) -> int:
        """Return the number of symbols."""
        return self.symbols or hash_symbols(self.once.exp_below(), _MOST_SYMBOLS, orthogonal=False)

    def alphabet(self) -> HashReports:
        """Return seeds and symbols."""
        return HashReports(self.size())

    def channel(self) -> Channel:
        """Return the two responses to the hash."""
        first = KeepOrSpread.within(self.size(), self.permanent.exp_below())
        return RepeatedHash.within(len(self.domain), first, self.once.exp_below())


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer LOLOHA."""
    return [Loloha]
