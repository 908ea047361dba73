"""A source of words that repeats itself."""

from __future__ import annotations

import hashlib
import warnings
from itertools import count

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.randomness import Words
from ldpsql.errors import PrivacyLeakWarning


def insecure_words_for_tests(seed: int) -> Words:
    """Return a source of words that repeats itself: for tests that need it, and for nothing else.

    Anyone who knows the seed can undo the noise. So it warns, and only samplers that are called directly accept it.
    """
    warnings.warn("a seeded source protects nobody: use it in tests only", PrivacyLeakWarning, stacklevel=2)
    blocks = count()

    def words(number: int) -> NDArray[np.uint64]:
        stream = hashlib.shake_256(f"{seed}/{next(blocks)}".encode())
        return np.frombuffer(stream.digest(8 * number), dtype=np.uint64)

    return words
