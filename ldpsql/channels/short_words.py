"""Draws of equal parts and a rest that read the first bits of a random word, and further bits only if those do not decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.base import TOTAL
from ldpsql.channels.randomness import Words

Short: TypeAlias = NDArray[Any]  # of uint16 or uint32
# How many bits are read first, and the most numbers of which these nearly always decide.
_WIDTHS = ((16, 1 << 10), (32, 1 << 24))


@dataclass(frozen=True)
class ShortWords:
    """Draw 0 .. last: all but the last with weight ``each`` out of 2**64, the last with the rest.

    Short words of ``width`` bits are drawn with the first bits of these weights. Those from `decided` on do not decide:
    together with the further bits of a word they have ``last`` equal parts, the further bits of ``each``, then what the last
    lacks.
    """

    last: int
    each: int
    width: int

    @classmethod
    def of(cls, last: int, each: int) -> ShortWords | None:
        """Return the draws with the fewest bits; None if only whole words decide."""
        return next((cls(last, each, width) for width, most in _WIDTHS if last < most and each >> 64 - width), None)

    @property
    def _further(self) -> int:
        return 64 - self.width

    @property
    def decided(self) -> int:
        """How many of the 2**width short words decide."""
        return self.last * (self.each >> self._further) + (TOTAL - self.last * self.each >> self._further)

    def draw(self, count: int, words: Words) -> Short:
        """Draw numbers; a word has several short ones."""
        kind, decided = np.dtype(f"u{self.width // 8}").type, self.decided
        short: Short = words(-(-count * self.width // 64)).view(kind)[:count]
        drawn: Short = short // kind(self.each >> self._further)
        np.minimum(drawn, np.full(count, self.last, kind), out=drawn)  # a fourth of the time of a comparison with one number
        if decided < 1 << self.width and len(rows := np.flatnonzero(short >= kind(decided))):
            drawn[rows] = self._decide(short[rows] - kind(decided), words)
        return drawn

    def _decide(self, first: Short, words: Words) -> Short:
        """Draw numbers from further words for short ones that do not decide, counted from the first such one."""
        whole = first.astype(np.uint64) << np.uint64(self._further) | words(len(first)) >> np.uint64(self.width)
        return np.asarray(np.minimum(whole // np.uint64(self.each & (1 << self._further) - 1), np.uint64(self.last)))
