"""Optimised local hashing (OLH).

Wang, Blocki, Li, Jha, "Locally differentially private protocols for frequency estimation", USENIX Security 2017; with
orthogonal seeds it is kin to projective geometry response (Feldman, Nelson, Nguyen, Talwar, ICML 2022) and to fast local
hashing.
"""

from typing import Annotated

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
    hookimpl,
    prime_power,
)


class Olh(CategoricalMechanism):
    """Optimised local hashing: a public random function maps the value to one of about e^epsilon + 1 symbols, k-RR on these.

    Reports are STRUCT(seed, y). With seeds 'orthogonal', a few hundred functions under which every two values collide equally
    often: nothing is lost, and any number of reports becomes a few thousand counts. With 'private', every report has its own.

    >>> mechanism = Olh(epsilon=1, domain=range(20))
    >>> len(mechanism.alphabet()), round(float(mechanism.channel().hit), 3)
    (84, 0.475)
    """

    name = "olh"
    sql_reports = HashReports.marker
    seeds: Annotated[str, Field(pattern="^(orthogonal|private)$")] = Field(
        "orthogonal", description="'orthogonal' or 'private'"
    )

    def symbols(self) -> int:
        """Return g: near e^epsilon + 1; a power of a prime for orthogonal seeds."""
        wanted, size = round(self.epsilon.exp_below()) + 1, len(self.domain)
        if 3 * wanted > size + 1:  # k-RR on all values has the smaller error, and needs no hash: wanted > (size - 2)/3 + 1
            wanted = size
        if self.seeds == "private":
            return max(2, wanted)
        near = [g for g in range(max(2, wanted - wanted // 2), 2 * wanted + 1) if prime_power(g)] if wanted < size else []
        return (
            min(near, key=lambda g: (abs(g - wanted), g)) if near else next(g for g in range(size, 2 * size) if prime_power(g))
        )

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
