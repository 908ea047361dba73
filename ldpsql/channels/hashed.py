"""Hashed reports: a public hash function, drawn independently of the value, and randomised response on the hash."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import native
from ldpsql.channels.base import TOTAL, Codes, Drawn, SetChannel, Weights
from ldpsql.channels.galois import Field, symbols_within
from ldpsql.channels.keep_or_spread import KeepOrSpread
from ldpsql.channels.randomness import Words, random_words
from ldpsql.channels.splitmix import hashed, hashing_to, splitmix
from ldpsql.errors import InternalError, InvalidParameter

_MOST_POINTS = 1 << 25  # of the space in which values are placed: a gigabyte while they are shuffled
_MOST_KEPT = 1 << 20  # points whose order is kept
_BLOCK = 1 << 22  # most cells of a table of hashes
_DIGITS = 64  # most vectors of some coordinates, of which all pairs are multiplied beforehand


@dataclass(frozen=True)
class HashChannel(SetChannel):
    """A report is a seed and y, the response to the hash of the value under the seed; its set holds the values that hash to y.

    Raises:
        InvalidParameter: unless there are at least two values and the response is k-RR.

    """

    in_step = True
    size: int
    response: KeepOrSpread

    def __post_init__(self) -> None:
        if type(self.size) is not int or self.size < 2 or type(self.response) is not KeepOrSpread:
            raise InvalidParameter("a hash needs at least two values and a keep-or-spread response")

    @property
    def inputs(self) -> int:
        """Number of values."""
        return self.size

    @property
    def ratio(self) -> Fraction:
        """The seed does not depend on the value, so only the response counts."""
        return Fraction(self.response.keep, self.response.spread)

    @property
    def hit(self) -> Fraction:
        """Probability that the hash is kept."""
        return Fraction(self.response.keep, TOTAL)


class PrivateHash(HashChannel):
    """Every report draws its own 64-bit seed: (seed, y)."""

    @property
    def miss(self) -> Fraction:
        """Probability that another value hashes to the report, over all seeds."""
        return Fraction(1, self.response.size)

    def witness(self) -> int:
        """Return the first seed under which values 0 and 1 have different hashes, and the hash of 0, as one number."""
        seed = next(s for s in range(TOTAL) if len(set(self._hash(np.array([[s]], dtype=np.uint64))[0, :2])) == 2)
        return seed * self.response.size + int(self._hash(np.array([[seed]], dtype=np.uint64))[0, 0])

    def _hash(self, seeds: Weights) -> Codes:
        return hashed(seeds, np.arange(self.size, dtype=np.int32), self.response.size)

    def supports(self, drawn: Drawn) -> NDArray[np.bool_]:
        """Return which values hash to y under the seed."""
        return hashing_to(drawn[:, 0], drawn[:, 1], self.size, self.response.size)

    def octets(self, drawn: Drawn) -> NDArray[np.uint8]:
        """Return the sets as bits, from the kernel if there is one."""
        sets = native.hash_sets(drawn[:, 0], drawn[:, 1], self.size, self.response.size)
        return super().octets(drawn) if sets is None else sets

    def possible(self, drawn: Drawn) -> NDArray[np.bool_]:
        """Return which have a y that the response can give."""
        return drawn[:, 1] < self.response.size

    def draw(self, values: Codes, words: Words = random_words) -> Weights:
        """Draw a seed, then respond with the hash: two words each."""
        drawn = (
            native.private_hash(values, self.size, self.response.size, self.response.spread) if words is random_words else None
        )
        if drawn is not None:
            return drawn
        seeds = words(len(values))
        responses = self.response.draw(hashed(seeds, values, self.response.size), words)
        return np.stack([seeds, responses.astype(np.uint64)], axis=1)


@dataclass(frozen=True)
class OrthogonalHash(HashChannel):
    """The seed names one of the functions of an orthogonal array, under which every pair of values collides equally often.

    Functions are h_a(x) = <a, x> over the field of ``response.size`` elements, a in the projective space, x among the first
    points of the vector space. A report is the position seed * symbols + y.
    Related to projective geometry response: Feldman, Nelson, Nguyen, Talwar, ICML 2022.

    Raises:
        InvalidParameter: if the number of symbols is not a power of a prime, or so large that the table of points would be.

    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.response.size**self.dimension > _MOST_POINTS:
            other = symbols_within(self.ratio, self.size, self.response.size, _MOST_POINTS)
            raise InvalidParameter(
                f"{self.size:,} values have too many orthogonal seeds at this epsilon",
                f"use symbols := {other.symbols}, with errors that are {max(0.0, other.larger - 1):.0%} larger"
                if other
                else "use krr, whose error is then the smallest, or seeds := 'private'",
            )
        Field.of(self.response.size)

    @cached_property
    def dimension(self) -> int:
        """Number of coordinates that the values need."""
        return next(m for m in range(1, 65) if self.response.size**m >= self.size)

    @cached_property
    def points(self) -> Codes:
        """The coordinates of every value, shape (size, dimension), in a fixed shuffled order, so that no pattern remains."""
        return _digits(self.point_numbers, self.response.size, self.dimension)

    @property
    def point_numbers(self) -> NDArray[np.int64]:
        """The coordinates of every value as the digits of a number in base ``response.size``."""
        return _shuffled(self.response.size**self.dimension)[: self.size]

    @cached_property
    def functions(self) -> Codes:
        """The coordinates of every function, shape (seeds, dimension): the first nonzero one is 1."""
        return _digits(self.function_numbers, self.response.size, self.dimension)

    @property
    def function_numbers(self) -> NDArray[np.int64]:
        """The coordinates of every function as the digits of a number in base ``response.size``."""
        g = self.response.size
        return np.concatenate([np.arange(g**k) + g**k for k in range(self.dimension)])

    @property
    def seeds(self) -> int:
        """Number of functions, (g^m - 1)/(g - 1)."""
        g = self.response.size
        return (g**self.dimension - 1) // (g - 1)

    @property
    def _step(self) -> int:
        """Weight of every function except the last, which has the rest."""
        return min(TOTAL // self.seeds, TOTAL - 1)

    @property
    def outputs(self) -> int:
        """Number of reports."""
        return self.seeds * self.response.size

    @property
    def miss(self) -> Fraction:
        """Probability that another given value hashes to the report."""
        together = Fraction(self.seeds - self.response.size ** (self.dimension - 1), self.seeds)
        return together * self.hit + (1 - together) * Fraction(self.response.spread, TOTAL)

    def probability(self, value: int, report: int) -> Fraction:
        """Return P(report | value), exactly."""
        seed, y = divmod(report, self.response.size)
        chance = self._step if seed < self.seeds - 1 else TOTAL - (self.seeds - 1) * self._step
        kept = int(self._hash(np.array([seed]), np.array([value]))[0]) == y
        return Fraction(chance * (self.response.keep if kept else self.response.spread), TOTAL**2)

    def witness(self) -> int:
        """Return the first function under which values 0 and 1 have different hashes, and the hash of 0, as one number."""
        g, m = self.response.size, self.dimension
        order = splitmix(np.arange(g**m, dtype=np.uint64))
        first = np.argpartition(order, 1)[:2]
        points = _digits(first[np.argsort(order[first])], g, m)  # as in `points`, but without sorting all of them
        for line in range(m):  # one of the functions that begin with a single 1 and have zeros behind it
            function = _digits(np.array([g**line]), g, m)
            zero, one = (int(Field.of(g).dot(function, point[None])[0]) for point in points)
            if zero != one:
                return (g**line - 1) // (g - 1) * g + zero
        raise InternalError("two points are the same", "please report the mechanism")

    def _hash(self, seeds: NDArray[np.int64] | Codes, values: NDArray[np.int64] | Codes) -> Codes:
        if self._table is not None:
            return self._table.take(seeds * self.size + values).astype(np.int32)
        return self._computed(seeds, values)

    def _computed(self, seeds: NDArray[np.int64] | Codes, values: NDArray[np.int64] | Codes) -> Codes:
        if self._together == 1:
            return Field.of(self.response.size).dot(self.functions[seeds], self.points[values])
        of_functions, of_points, products = self._coded
        cells = (of_functions.take(seeds, axis=0) + of_points.take(values, axis=0)).view(np.uint16)
        out = products.take(cells[:, 0])
        for more in range(1, -(-self.dimension // self._together)):
            out = Field.of(self.response.size).add(out, products.take(cells[:, more]))
        return out

    @cached_property
    def _together(self) -> int:
        """How many coordinates are multiplied by one look-up."""
        return max(k for k in range(1, 7) if k == 1 or self.response.size**k <= _DIGITS)

    @cached_property
    def _coded(self) -> tuple[NDArray[np.unsignedinteger], NDArray[np.unsignedinteger], Codes]:
        """Functions and values with some coordinates to a digit, and the inner products of all pairs of digits.

        Several digits of 16 bits make a word, so one look-up reads them and one sum adds them: no sum of two has more bits.
        """
        g, together = self.response.size, self._together
        base, count = g**together, -(-self.dimension // together)
        width = 2 if count == 2 else 1 if count == 1 else 4
        padding = -(-count // width) * width * together - self.dimension
        places = g ** np.arange(together - 1, -1, -1)
        digits = [
            np.pad(part, ((0, 0), (0, padding))).reshape(len(part), -1, together) @ places
            for part in (self.functions, self.points)
        ]
        of_functions, of_points = (
            (part * scale).astype(np.uint16).view(f"u{2 * width}") for part, scale in zip(digits, (base, 1), strict=True)
        )
        every = _digits(np.arange(base), g, together)
        products = Field.of(g).dot(np.repeat(every, base, axis=0), np.tile(every, (base, 1)))
        return of_functions, of_points, products

    @cached_property
    def _table(self) -> NDArray[np.unsignedinteger] | None:
        """The hashes of all values under all functions, one after the other; None if they are too many."""
        if self.seeds * self.size > _BLOCK:
            return None
        seeds, values = np.divmod(np.arange(self.seeds * self.size), self.size)
        return self._computed(seeds, values).astype(np.min_scalar_type(self.response.size - 1))

    def supports(self, drawn: Drawn, values: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
        """Return which values, by default of all values, hash to y under the function."""
        values = np.arange(self.size) if values is None else values
        seeds, y = np.divmod(drawn.astype(np.int64), self.response.size)
        distinct, place = np.unique(seeds, return_inverse=True)
        hashes = self._hash(np.repeat(distinct, len(values)), np.tile(values, len(distinct)))
        return np.asarray(hashes.reshape(-1, len(values))[place.ravel()] == y[:, None])

    def supporting(self, drawn: Drawn, value: int) -> NDArray[np.bool_]:
        """Return which reports support a value."""
        seeds, y = np.divmod(drawn.astype(np.int64), self.response.size)
        return np.asarray(self._hash(seeds, np.full(len(seeds), value)) == y)

    def draw(self, values: Codes, words: Words = random_words) -> Codes:
        """Draw a function, then respond with the hash: two words each."""
        steps = words(len(values)) // np.uint64(self._step)
        seeds = np.minimum(steps, np.uint64(self.seeds - 1)).astype(np.int32)
        return seeds * np.int32(self.response.size) + self.response.draw(self._hash(seeds, values), words)


@lru_cache(maxsize=1)  # levels of a tree ask for the same numbers one after the other
def _few_shuffled(count: int) -> NDArray[np.int64]:
    """Return the numbers below `count` in a fixed random order."""
    return np.argsort(splitmix(np.arange(count, dtype=np.uint64)))  # no two are equal


def _shuffled(count: int) -> NDArray[np.int64]:
    """Return the numbers below `count` in the order of `_few_shuffled`; only few numbers are kept in memory."""
    return _few_shuffled(count) if count <= _MOST_KEPT else _few_shuffled.__wrapped__(count)


def _digits(numbers: NDArray[np.int64], base: int, count: int) -> Codes:
    """Return the digits of whole numbers, the highest first."""
    places = base ** np.arange(count - 1, -1, -1, dtype=np.int64)
    return (numbers[:, None] // places % base).astype(np.int32)
