"""Random data of the tests: another seed in each run, which is printed, and which the environment can give."""

from __future__ import annotations

import os
import random
from secrets import randbits
from types import ModuleType
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

VARIABLE = "LDPSQL_TEST_SEED"
SEED = int(os.environ.setdefault(VARIABLE, str(randbits(32))))  # in the environment, so that every worker has the same


def generator(name: str) -> np.random.Generator:
    """Return the generator of random data with this name: the same data for the same name and seed."""
    return np.random.default_rng([SEED, crc32(name.encode())])


def words(count: int) -> NDArray[np.uint64]:
    """Return random words that no seed draws again, as samplers take them."""
    return np.frombuffer(os.urandom(8 * count), np.uint64)


def start_again(module: ModuleType, name: str) -> None:
    """Let `random` and the generator `RNG` of a module begin at the seed of one test, so that it sees the same data alone."""
    random.seed(f"{SEED} {name}")
    own = getattr(module, "RNG", None)
    if isinstance(own, np.random.Generator):
        own.bit_generator.state = generator(name).bit_generator.state
