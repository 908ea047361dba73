"""Optimised local hashing (OLH).

Wang, Blocki, Li, Jha, "Locally differentially private protocols for frequency estimation", USENIX Security 2017; with
orthogonal seeds it is related to projective geometry response (Feldman, Nelson, Nguyen, Talwar, ICML 2022) and to fast local
hashing.
"""

from typing import Literal

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
    hash_symbols,
    hookimpl,
)


class Olh(CategoricalMechanism):
    """Optimised local hashing: a public random function maps the value to one of about e^epsilon + 1 symbols, k-RR on these.

    Reports are STRUCT(seed, y). With seeds 'orthogonal' there are a few hundred functions, under which every two values collide
    equally often: nothing is lost, and any number of reports becomes a few thousand counts. With 'private' each report has its
    own function.

    >>> mechanism = Olh(epsilon=1, domain=range(20))
    >>> len(mechanism.alphabet()), round(float(mechanism.channel().hit), 3)
    (84, 0.475)
    """

    name = "olh"
    sql_reports = HashReports.marker
    seeds: Literal["orthogonal", "private"] = Field("orthogonal", description="'orthogonal' or 'private'")

    def symbols(self) -> int:
        """Return g: near e^epsilon + 1; a power of a prime for orthogonal seeds."""
        return hash_symbols(self.epsilon.exp_below(), len(self.domain), orthogonal=self.seeds == "orthogonal")

    def alphabet(self) -> HashReports | ListedHashReports:
        """Return seeds and symbols."""
        channel = self.channel()
        if isinstance(channel, OrthogonalHash):
            return ListedHashReports(self.symbols(), channel.seeds)
        return HashReports(self.symbols())

    def channel(self) -> Channel:
        """Return k-RR on the hash."""
        response = KeepOrSpread.within(self.symbols(), self.epsilon.exp_below())
        family = PrivateHash if self.seeds == "private" else OrthogonalHash
        return family(len(self.domain), response)


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer OLH."""
    return [Olh]
