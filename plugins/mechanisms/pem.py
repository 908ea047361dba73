"""PEM, the prefix extending method: frequent strings without a list of strings.

Wang, Li, Jha, "Locally differentially private heavy hitter identification", IEEE TDSC 2021 (online 2019).
"""

from typing import Annotated

from pydantic import Field

from ldpsql.mechanisms import (
    MOST_VECTORS,
    UTF8,
    EpsilonField,
    InvalidParameter,
    KeepOrSpread,
    Mechanism,
    Prefixes,
    PrefixReports,
    Strings,
    WholeField,
    dimension,
    hookimpl,
    is_prime,
)

_LARGEST = 4093  # symbols
_FLAT = 1.02  # a variance this close to the least is as good, and fewer symbols make the search quicker


class Pem(Mechanism):
    """PEM: a random length, a public hash of the prefix of that length to about e^epsilon + 1 symbols, k-RR on these.

    For strings that nobody can list beforehand: `ldp.heavy_hitters` finds the frequent ones. Reports are
    STRUCT(level, seed, y). The length is drawn independently of the string, so all of epsilon goes to the hash.

    >>> channel = Pem(epsilon=4, max_bytes=12, characters="abcdefghijklmnopqrstuvwxyz").channel()
    >>> channel.ends, channel.response.size, round(float(channel.hit), 3)
    ([3, 6, 9, 12], 43, 0.565)
    """

    name = "pem"
    sql_reports = PrefixReports.marker
    sql_domain = "CAST([] AS VARCHAR[])"
    epsilon: EpsilonField = Field(description="privacy parameter: no string makes a report more than e^epsilon times likelier")
    max_bytes: Annotated[WholeField, Field(ge=1, le=255)] = Field(16, description="largest number of bytes of a string")
    characters: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="the characters that may occur: the fewer, the smaller the errors; NULL: any text"
    )
    levels: Annotated[WholeField, Field(ge=1, le=255)] | None = Field(
        None, description="number of prefix lengths; NULL: as few as can be searched, which makes the errors smallest"
    )

    def values(self) -> Strings:
        """Return the strings."""
        return Strings(self.max_bytes, UTF8 if self.characters is None else bytes(sorted(set(self.characters.encode()))))

    def layout(self) -> tuple[int, ...]:
        """Return (): strings have no neighbours."""
        return ()

    def alphabet(self) -> PrefixReports:
        """Return the reports of the channel."""
        channel = self.channel()
        return PrefixReports(channel.levels, channel.response.size)

    def symbols(self) -> int:
        """Return the smallest prime number of symbols whose variance is close to the least."""
        grown = float(self.epsilon.exp_below()) - 1
        primes = [g for g in range(2, min(2 * round(grown) + 8, _LARGEST) + 1) if is_prime(g)]
        variances = [(grown + g) ** 2 / (g - 1) for g in primes]
        return next(g for g, variance in zip(primes, variances, strict=True) if variance <= _FLAT * min(variances))

    def channel(self) -> Prefixes:
        """Return the prefixes, their hashes, and k-RR on these.

        Raises:
            InvalidParameter: if there are too few levels to search, or more than bytes.

        """
        letters, symbols = len(self.values().alphabet), self.symbols()
        step = next(s for s in range(self.max_bytes, 0, -1) if symbols ** dimension(symbols, letters, s) <= MOST_VECTORS)
        least = -(-self.max_bytes // step)
        if self.levels is not None and not least <= self.levels <= self.max_bytes:
            raise InvalidParameter(f"pem needs from {least} to {self.max_bytes} levels for these strings", "leave levels out")
        response = KeepOrSpread.within(symbols, self.epsilon.exp_below())
        return Prefixes(self.max_bytes, letters, self.levels or least, response)


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer PEM."""
    return [Pem]
