"""Hashed reports: a public hash function, drawn independently of the value, and randomised response on the hash.

Orthogonal arrays are functions over finite fields, whose elements are added and multiplied as arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import product
from math import ceil, isqrt, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ldpsql.caches import ByteCache
from ldpsql.channels import native
from ldpsql.channels.base import TOTAL, Codes, Drawn, SetChannel, Weights
from ldpsql.channels.keep_or_spread import KeepOrSpread
from ldpsql.channels.randomness import Words, random_words
from ldpsql.errors import InternalError, InvalidParameter

Elements = NDArray[np.int32]
_TABLE = 12  # bits of digits that are looked up together
_MANY = 1 << 16  # numbers that are not transformed at once
_WORSE, _OFTEN = 1.1, 4.0  # how much larger an error may be for a quicker estimate, and how much quicker that has to be


def prime_power(q: int) -> tuple[int, int] | None:
    """Return p and k with q = p^k, p prime; None if there are none.

    >>> prime_power(27), prime_power(12)
    ((3, 3), None)
    """
    p = next((p for p in range(2, isqrt(q) + 1) if q % p == 0), q)
    k = next(k for k in range(1, 65) if p**k >= q)
    return (p, k) if q > 1 and p**k == q else None


@dataclass(frozen=True)
class Field:
    """The field of p^k elements; an element is the number whose digits in base p are its coefficients."""

    p: int
    k: int
    powers: Elements  # powers of a primitive element, twice in a row; empty if k = 1
    logs: Elements

    @staticmethod
    @lru_cache(maxsize=16)  # tables of up to millions of elements
    def of(q: int) -> Field:
        """Return the field of q elements."""
        factors = prime_power(q)
        if factors is None:
            near = sorted((n for n in range(max(2, q // 2), 2 * q + 3) if prime_power(n)), key=lambda n: abs(n - q))[:2]
            raise InvalidParameter(
                "the number of elements of a finite field must be a power of a prime",
                f"the nearest are {near[0]} and {near[1]}",
            )
        p, k = factors
        if k == 1:
            return Field(p, k, np.empty(0, np.int32), np.empty(0, np.int32))
        # A monic polynomial is primitive if the powers of x run through all elements except 0.
        powers = next(run for low in product(range(p), repeat=k) if len(set(run := _powers(low, p))) == q - 1 and 0 not in run)
        logs = np.zeros(q, dtype=np.int32)
        logs[powers] = np.arange(q - 1)
        return Field(p, k, np.array(powers + powers, dtype=np.int32), logs)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.p**self.k

    def add(self, a: Elements, b: Elements) -> Elements:
        """Return the sums, coefficient by coefficient."""
        if self.k == 1:
            return (a + b) % self.p
        if self.p == 2:
            return a ^ b
        places = [self.p**i for i in range(self.k)]
        parts = [(a // place + b // place) % self.p * place for place in places]
        return np.sum(parts, axis=0, dtype=np.int32)

    def multiply(self, a: Elements, b: Elements) -> Elements:
        """Return the products, by logarithms unless the size is a prime."""
        if self.k == 1:
            return (a.astype(np.int64) * b % self.p).astype(np.int32)
        return np.where((a == 0) | (b == 0), 0, self.powers[self.logs[a] + self.logs[b]]).astype(np.int32)

    def dot(self, a: Elements, b: Elements) -> Elements:
        """Return the inner product along the last axis."""
        out = self.multiply(a[:, 0], b[:, 0])
        for i in range(1, a.shape[1]):
            out = self.add(out, self.multiply(a[:, i], b[:, i]))
        return out


def coordinatewise(numbers: NDArray[np.int64], image: Elements, coordinates: int) -> NDArray[np.int64]:
    """Return numbers with each digit replaced by its image; digits are in base ``len(image)``, several are looked up together.

    >>> coordinatewise(np.array([0, 1, 5]), np.array([0, 2, 1], dtype=np.int32), 2).tolist()
    [0, 2, 7]
    """
    q = len(image)
    together = max(1, _TABLE // q.bit_length())
    several = np.arange(q**together)
    table = np.sum([image[several // q**at % q].astype(np.int64) * q**at for at in range(together)], axis=0)
    out = np.zeros_like(numbers)
    for at in range(0, coordinates, together):
        out += table[numbers // q**at % q**together] * q**at
    return out


def _powers(low: tuple[int, ...], p: int) -> list[int]:
    """Return 1, x, x^2, .. (p^k - 1 of them) modulo the monic polynomial with these lower coefficients, lowest first."""
    k = len(low)
    at, out = [1] + [0] * (k - 1), []
    for _ in range(p**k - 1):
        out.append(sum(c * p**i for i, c in enumerate(at)))
        carry = at[-1]
        at = [(shifted - carry * c) % p for shifted, c in zip([0, *at[:-1]], low, strict=True)]
    return out


def hash_symbols(ratio: Fraction, size: int, *, orthogonal: bool = True) -> int:
    """Return the number of symbols that values are hashed to: near e^epsilon + 1, where the variance is least.

    Args:
        ratio: e^epsilon, or a bound below it.
        size: how many values there are.
        orthogonal: whether it must be a power of a prime, as for orthogonal arrays.

    """
    best = round(ratio) + 1
    if 3 * best > size + 1:  # k-RR on all values has the smaller error, and needs no hash: best > (size - 2)/3 + 1
        best = size
    if not orthogonal:
        return max(2, best)
    if best >= size:
        return next(g for g in range(size, 2 * size) if prime_power(g))
    return next(g for away in range(best) for g in (best - away, best + away) if prime_power(g))


class Quicker(NamedTuple):
    """Symbols with which estimates transform ``fewer`` times as few numbers, at ``larger`` times the error."""

    symbols: int
    fewer: float
    larger: float


def quicker_symbols(ratio: Fraction, size: int, symbols: int) -> Quicker | None:
    """Return the symbols with the shortest transform among those whose error is at most a tenth larger.

    None if ``symbols`` need few numbers, or at most `_OFTEN` times as many.

    Args:
        ratio: e^epsilon, or a bound below it.
        size: how many values there are.
        symbols: the symbols to compare with.

    """
    if space(symbols, size) < _MANY:
        return None
    good = [one for one in _compared(_least_symbols(size), ratio, size, symbols) if one.fewer > _OFTEN]
    return max(good, key=lambda one: one.fewer, default=None)


def symbols_within(ratio: Fraction, size: int, symbols: int, most: int) -> Quicker | None:
    """Return the symbols with the least error whose transform is of at most ``most`` numbers; see `quicker_symbols`.

    None if that error is more than a tenth larger.
    """
    roots = {int(most ** (1 / m)) for m in range(1, most.bit_length())}
    others = {next(g for g in range(root, 1, -1) if prime_power(g)) for root in roots}
    good = [one for one in _compared(others | _least_symbols(size), ratio, size, symbols) if space(one.symbols, size) <= most]
    return min(good, key=lambda one: one.larger, default=None)


def _least_symbols(size: int) -> set[int]:
    """Return the least symbols of each dimension whose space has room for so many values."""
    roots = {max(2, ceil(size ** (1 / m))) for m in range(1, size.bit_length() + 1)}
    return {next(g for g in range(root, 2 * root) if prime_power(g)) for root in roots}


def _compared(others: set[int], ratio: Fraction, size: int, symbols: int) -> list[Quicker]:
    points, error = space(symbols, size), _error(symbols, ratio)
    choices = [Quicker(g, points / space(g, size), _error(g, ratio) / error) for g in others]
    return [one for one in choices if one.larger <= _WORSE]


def space(symbols: int, size: int) -> int:
    """Return the first power of ``symbols`` that is not below the number of values."""
    return next(symbols**m for m in range(1, 65) if symbols**m >= size)


def _error(symbols: int, ratio: Fraction) -> float:
    """Return the standard error of an absent value's share, up to the root of the number of reports."""
    hit, miss = float(ratio / (ratio + symbols - 1)), 1 / symbols
    return sqrt(miss * (1 - miss)) / (hit - miss)


# Public hashes: of words, and of values under a seed.

_CACHED = 1 << 13  # words at a time
_STEPS = tuple(np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_SHIFTS, _HALF = tuple(np.uint64(number) for number in (30, 27, 31)), np.uint64(32)


def splitmix(words: Weights) -> Weights:
    """Return a 64-bit hash of each word: the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014)."""
    z = words + _STEPS[0]
    z = (z ^ (z >> _SHIFTS[0])) * _STEPS[1]
    z = (z ^ (z >> _SHIFTS[1])) * _STEPS[2]
    return z ^ (z >> _SHIFTS[2])


def hashed(seeds: Weights, values: Codes, symbols: int) -> Codes:
    """Return the hash of a value under a seed, 0 .. symbols-1; arguments broadcast. It must never change: reports depend on it.

    >>> hashed(np.arange(4, dtype=np.uint64), np.arange(4, dtype=np.int32), 1000).tolist()
    [652, 914, 587, 736]
    """
    word = splitmix(splitmix(seeds) ^ values.astype(np.uint64))
    return ((word >> np.uint64(32)) * np.uint64(symbols) >> np.uint64(32)).astype(np.int32)


def hashing_to(seeds: Weights, y: Weights, size: int, symbols: int) -> NDArray[np.bool_]:
    """Return which of the values 0 .. size-1 hash to y under each seed, shape (seeds, size): ``hashed(...) == y``, but quicker.

    Some rows at a time are computed in place, in the cache. A word hashes to y if its upper half lies in one range.

    >>> hashing_to(np.arange(2, dtype=np.uint64), np.array([0, 1], dtype=np.uint64), 4, 2).astype(int).tolist()
    [[0, 1, 0, 0], [0, 1, 1, 1]]
    """
    first, end = (_least(y.astype(np.uint64) + np.uint64(more), symbols)[:, None] for more in (0, 1))
    begun, width = splitmix(seeds.astype(np.uint64))[:, None], end - first
    out, rows = np.empty((len(seeds), size), dtype=np.bool_), max(1, _CACHED // size)
    values, words, shifts = np.arange(size, dtype=np.uint64), *np.empty((2, rows, size), dtype=np.uint64)
    for start in range(0, len(seeds), rows):
        part = slice(start, start + rows)
        word = words[: len(begun[part])]
        np.bitwise_xor(values, begun[part], out=word)
        _mix(word, shifts[: len(word)])
        word >>= _HALF
        word -= first[part]  # below the range it becomes very large
        np.less(word, width[part], out=out[part])
    return out


def _least(y: Weights, symbols: int) -> Weights:
    """Return the least upper half of a word that hashes to y: y * 2^32 / symbols, rounded up."""
    return ((y << _HALF) + np.uint64(symbols - 1)) // np.uint64(symbols)


def _mix(word: Weights, shifted: Weights) -> None:
    """Hash each word in place, as `splitmix` does; ``shifted`` is overwritten."""
    word += _STEPS[0]
    for shift, factor in zip(_SHIFTS, _STEPS[1:], strict=False):
        word ^= np.right_shift(word, shift, out=shifted)
        word *= factor
    word ^= np.right_shift(word, _SHIFTS[-1], out=shifted)


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

    @property
    def numbers(self) -> tuple[int, int]:
        """What C draws with: the number of symbols, and the weight of each other one."""
        return self.response.size, self.response.spread

    def supports(self, drawn: Drawn) -> NDArray[np.bool_]:
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
        drawn = native.hashes(values, self.size, self.numbers) if words is random_words else None
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
        return _shuffled(self.response.size**self.dimension, self.size)

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
        values = np.arange(self.size) if values is None else values
        seeds, y = np.divmod(drawn.astype(np.int64), self.response.size)
        distinct, place = np.unique(seeds, return_inverse=True)
        hashes = self._hash(np.repeat(distinct, len(values)), np.tile(values, len(distinct)))
        return np.asarray(hashes.reshape(-1, len(values))[place.ravel()] == y[:, None])

    def supporting(self, drawn: Drawn, value: int) -> NDArray[np.bool_]:
        """Return which reports support a value."""
        seeds, y = np.divmod(drawn.astype(np.int64), self.response.size)
        return np.asarray(self._hash(seeds, np.full(len(seeds), value)) == y)

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """What C draws with: the number of symbols, the weight of each other one, the number of seeds, the weight of each."""
        return self.response.size, self.response.spread, self.seeds, self._step

    @property
    def hashes(self) -> NDArray[np.uint8] | None:
        """The table that C draws with: the hashes of all values under all functions; None if they are too many."""
        return self._table if self._table is not None and self._table.dtype == np.uint8 else None

    def draw(self, values: Codes, words: Words = random_words) -> Codes:
        """Draw a function, then respond with the hash: two words each."""
        drawn = None
        if words is random_words and self.hashes is not None:
            drawn = native.hashes(values, self.size, self.numbers, self.hashes)
        return self._draw(values, words) if drawn is None else drawn

    def _draw(self, values: Codes, words: Words) -> Codes:
        steps = words(len(values)) // np.uint64(self._step)
        seeds = np.minimum(steps, np.uint64(self.seeds - 1)).astype(np.int32)
        return seeds * np.int32(self.response.size) + self.response.draw(self._hash(seeds, values), words)


def _shuffled(count: int, first: int) -> NDArray[np.int64]:
    """Return the first ones of the numbers below `count` in a fixed random order; only few numbers are kept in memory."""
    return _ORDERS.remembered((count, first), _ordered) if first <= _MOST_KEPT else _ordered((count, first))


def _ordered(numbers: tuple[int, int]) -> NDArray[np.int64]:
    count, first = numbers
    words = splitmix(np.arange(count, dtype=np.uint64))  # no two are equal
    if first == count:
        return np.argsort(words)
    some = np.argpartition(words, first)[:first]
    return some[np.argsort(words[some])]


_ORDERS: ByteCache[tuple[int, int], NDArray[np.int64]] = ByteCache(16 << 20)  # levels of trees, at each epsilon, have the same


def _digits(numbers: NDArray[np.int64], base: int, count: int) -> Codes:
    """Return the digits of whole numbers, the highest first."""
    places = base ** np.arange(count - 1, -1, -1, dtype=np.int64)
    return (numbers[:, None] // places % base).astype(np.int32)


# A hash with two responses: one that a person keeps, and one that is drawn again for every report.


@dataclass(frozen=True)
class RepeatedHash(PrivateHash):
    """Report a seed and ``again`` of ``response`` of the hash of the value; one report alone is k-RR on the hash.

    Raises:
        InvalidParameter: unless both responses are k-RR over the same symbols.

    """

    again: KeepOrSpread

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.again) is not KeepOrSpread or self.again.size != self.response.size:
            raise InvalidParameter("both responses must be keep-or-spread over the same symbols")

    @classmethod
    def within(cls, size: int, first: KeepOrSpread, ratio: Fraction) -> RepeatedHash:
        """Return the channel whose single reports have at most a ratio, made with the largest second response.

        Raises:
            InvalidParameter: if ``ratio`` is not smaller than that of the first response.

        """
        # With a = first's keep/spread and r = again's, one report has (a r + g - 1)/(a + r + g - 2) <= ratio: solve for r.
        a, g = Fraction(first.keep, first.spread), first.size
        if ratio >= a:
            raise InvalidParameter("the epsilon of one report must be smaller than the permanent one", "once < permanent")
        return cls(size, first, KeepOrSpread.within(g, (ratio * (a + g - 2) - g + 1) / (a - ratio)))

    @property
    def _kept(self) -> int:
        """Weight, out of 2**128, with which the report is the hash: both keep it, or the second one returns to it."""
        first, again = self.response, self.again
        return first.keep * again.keep + (first.size - 1) * first.spread * again.spread

    @property
    def _other(self) -> int:
        """Weight, out of 2**128, with which the report is a given other symbol."""
        return (TOTAL**2 - self._kept) // (self.response.size - 1)  # exact: the others are alike

    @property
    def ratio(self) -> Fraction:
        """The seed does not depend on the value, so only the two responses count."""
        return Fraction(self._kept, self._other)

    @property
    def hit(self) -> Fraction:
        """Probability that the report is the hash."""
        return Fraction(self._kept, TOTAL**2)

    def draw(self, values: Codes, words: Words = random_words) -> Weights:
        """Draw a seed and both responses: three words each."""
        seeds = words(len(values))
        return self.repeated(seeds, self.response.draw(hashed(seeds, values, self.response.size), words), words)

    def repeated(self, seeds: Weights, kept: Codes, words: Words = random_words) -> Weights:
        """Draw a report of people who keep a seed and the response to its hash."""
        return np.stack([seeds, self.again.draw(kept, words).astype(np.uint64)], axis=1)
