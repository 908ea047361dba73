"""Optimised local hashing (OLH).

Wang, Blocki, Li, Jha, "Locally differentially private protocols for frequency estimation", USENIX Security 2017; with
orthogonal seeds it is related to projective geometry response (Feldman, Nelson, Nguyen, Talwar, ICML 2022) and to fast local
hashing.
"""

from typing import Annotated, Literal

from pydantic import Field

from ldpsql.mechanisms import (
    CategoricalMechanism,
    Channel,
    HashReports,
    KeepOrSpread,
    ListedHashReports,
    Mechanism,
    OrthogonalHash,
    PrivateHash,
    WholeField,
    hash_symbols,
    hookimpl,
)

_MOST_SYMBOLS = 1 << 20


class Olh(CategoricalMechanism):
    """Optimised local hashing: a public random function maps the value to one of about e^epsilon + 1 symbols, k-RR on these.

    Reports are STRUCT(seed, y). With seeds 'orthogonal' there are a few hundred functions, under which every two values collide
    equally often: nothing is lost, and any number of reports becomes a few thousand counts. With 'private' each report has its
    own function. Estimates from orthogonal seeds transform the next power of ``symbols`` that is not below the number of
    values, most quickly if that is a power of 2: see the guide Many values.

    >>> mechanism = Olh(epsilon=1, domain=range(20))
    >>> len(mechanism.alphabet()), round(float(mechanism.channel().hit), 3)
    (84, 0.475)
    """

    name = "olh"
    sql_reports = HashReports.marker
    added = ("symbols",)
    seeds: Literal["orthogonal", "private"] = Field("orthogonal", description="'orthogonal' or 'private'")
    symbols: Annotated[WholeField, Field(ge=2, le=_MOST_SYMBOLS)] | None = Field(
        None, description="the number of symbols, a power of a prime for orthogonal seeds; NULL: the one near e^epsilon + 1"
    )

    def size(self) -> int:
        """Return the number of symbols, by default near e^epsilon + 1; a power of a prime for orthogonal seeds."""
        if self.symbols is not None:
            return self.symbols
        return hash_symbols(self.epsilon.exp_below(), len(self.domain), orthogonal=self.seeds == "orthogonal")

    def alphabet(self) -> HashReports | ListedHashReports:
        """Return seeds and symbols."""
        channel = self.channel()
        if isinstance(channel, OrthogonalHash):
            return ListedHashReports(self.size(), channel.seeds)
        return HashReports(self.size())

    def channel(self) -> Channel:
        """Return k-RR on the hash."""
        response = KeepOrSpread.within(self.size(), self.epsilon.exp_below())
        family = PrivateHash if self.seeds == "private" else OrthogonalHash
        return family(len(self.domain), response)


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer OLH."""
    return [Olh]
