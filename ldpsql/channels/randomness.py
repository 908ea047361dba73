"""Random bits, only from a cryptographic generator: that of `native/random.c`, or OpenSSL's (`ssl.RAND_bytes`) without it.

Every draw of every mechanism takes its bits from `random_words`, or from the same generator inside the kernels. Both are safe
across threads and forks, and have no seed: tests that must control a sampler pass another `Words`.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import native

Words: TypeAlias = Callable[[int], NDArray[np.uint64]]

_BLOCK = 1 << 17  # words: OpenSSL is fastest below 1 MiB per call


def random_words(count: int) -> NDArray[np.uint64]:
    """Return ``count`` independent uniform 64-bit words."""
    drawn = native.random_words(count)
    if drawn is not None:
        return drawn
    if count <= _BLOCK:
        return np.frombuffer(ssl.RAND_bytes(8 * count), dtype=np.uint64)
    out = np.empty(count, dtype=np.uint64)
    for start in range(0, count, _BLOCK):
        stop = min(start + _BLOCK, count)
        out[start:stop] = np.frombuffer(ssl.RAND_bytes(8 * (stop - start)), dtype=np.uint64)
    return out
