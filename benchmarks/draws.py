"""Draws in C next to the same draws in Python, on positions: processor time in turns, one thread, bits of either included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from unittest.mock import patch

import numpy as np

from benchmarks.figures import Figure, at_most, cpu_clock, in_turns
from ldpsql.bulk.shuffling import permutation
from ldpsql.channels import DenseChannel, IndependentBits, KeepOrSpread, PrivateHash, native
from ldpsql.channels.base import TOTAL

K, E = 100, Fraction(27182818284, 10**10)
_KRR = KeepOrSpread.within(K, E)
_MOST = {  # the bounds that the figures may not pass
    "k-RR": (_KRR, 1.0),
    "alias tables": (DenseChannel(_KRR.weights()), 1.0),
    "unary bits": (IndependentBits(K, TOTAL // 2, 0x44E << 53), 2.0),  # ChaCha20 takes longer than OpenSSL's AES
    "private hashes": (PrivateHash(K, KeepOrSpread.within(4, E)), 0.6),
}


def figures(quick: bool) -> list[Figure]:
    """Return the processor time of each kernel against Python; none if ldpsql was installed without a compiler."""
    if native.kernels() is None:
        return []
    values = np.resize(np.arange(K, dtype=np.int32), 200_000 if quick else 2_000_000)
    found = [
        at_most(f"{name}, C / Python", _ratio(lambda channel=channel: channel.draw(values)), most)  # type: ignore[misc]
        for name, (channel, most) in _MOST.items()
    ]
    return [*found, at_most("order of 131,072 rows, C / Python", _ratio(lambda: permutation(1 << 17)), 0.5)]


def check() -> Iterator[Figure]:
    """Yield the same figures of fewer draws."""
    yield from figures(quick=True)


def _ratio(draw: Callable[[], object]) -> float:
    def in_python() -> None:
        with patch.object(native, "kernels", lambda: None):
            draw()

    own, other = in_turns(draw, in_python, repeats=7, clock=cpu_clock)
    return own / other
