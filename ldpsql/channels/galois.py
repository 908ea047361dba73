"""Finite fields, as needed for orthogonal arrays: addition and multiplication of arrays of elements."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import ceil, isqrt, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ldpsql.errors import InvalidParameter

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
    good = [one for one in _compared(_least(size), ratio, size, symbols) if one.fewer > _OFTEN]
    return max(good, key=lambda one: one.fewer, default=None)


def symbols_within(ratio: Fraction, size: int, symbols: int, most: int) -> Quicker | None:
    """Return the symbols with the least error whose transform is of at most ``most`` numbers; see `quicker_symbols`.

    None if that error is more than a tenth larger.
    """
    roots = {int(most ** (1 / m)) for m in range(1, most.bit_length())}
    others = {next(g for g in range(root, 1, -1) if prime_power(g)) for root in roots}
    good = [one for one in _compared(others | _least(size), ratio, size, symbols) if space(one.symbols, size) <= most]
    return min(good, key=lambda one: one.larger, default=None)


def _least(size: int) -> set[int]:
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
