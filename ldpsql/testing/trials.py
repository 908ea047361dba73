"""A few mechanisms of a class, if its author names none."""

from __future__ import annotations

import hashlib
import warnings
from contextlib import suppress
from itertools import count

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.randomness import Words
from ldpsql.errors import PrivacyLeakWarning, UsageError
from ldpsql.mechanisms.base import Mechanism
from ldpsql.mechanisms.rows import JointMechanism, RowMechanism

# Arguments for parameters with usual names: three mechanisms to try if the plugin's author names none.
_TRIALS: tuple[dict[str, object], ...] = (
    {
        "epsilon": "0.5",
        "domain": ["no", "yes"],
        "keys": ["book", "film"],
        "prior": [1, 2],
        "low": 0,
        "high": 6,
        "columns": 2,
        "rows": 2,
    },
    {
        "epsilon": "1",
        "domain": list(range(6)),
        "keys": [1, 2, 3],
        "prior": [1] * 6,
        "points": [[i % 3, i // 3] for i in range(6)],
        "low": -3,
        "high": 20,
        "columns": 3,
        "rows": 2,
    },
    {
        "epsilon": "4",
        "domain": [0.5, 1.5, 2.5, 3.5],
        "keys": list("abcde"),
        "prior": [1] * 4,
        "points": [[0], [1], [2], [4]],
        "low": 0,
        "high": 100,
        "columns": 2,
        "rows": 5,
    },
)
_ROWS: tuple[dict[str, str], ...] = (
    {"city": "krr(1, ['Lima', 'Oslo', 'Rome'])", "adult": "krr(0.5, [false, true])"},
    {"age": "square_wave(1, 0, 100, bins=4)", "a b": "olh(2, [1, 2, 3])"},
    {
        "x": "krr(1, ['it''s', '{\\\\}'])",
        "y": "oue(1, ['a', 'b', 'c'])",
        "z": "matrix([1, 2], [['0.7', '0.3'], ['0.3', '0.7']])",
    },
)
_TABLES: tuple[tuple[str, dict[str, list[object]]], ...] = (
    ("1", {"city": ["Lima", "Oslo", "Rome"], "adult": [False, True]}),
    ("2", {"x": ["it's", "{\\\\}"], "a b": [1, 2, 3], "z": [0.5, 1.5]}),
)
_ALWAYS: dict[str, object] = {
    "delta": "0.001",
    "beta": "1",
    "bins": 16,
    "permanent": "2",
    "once": "1",
    "protocol": "hadamard",
    "blocks": 2,
    "size": 4,
}


def examples(mechanism: type[Mechanism]) -> list[Mechanism]:
    """Return a few mechanisms of a class to check it with; none if its parameters have unusual names.

    A class may refuse some of them: one for two values refuses six.
    """
    if issubclass(mechanism, JointMechanism):
        return [mechanism(epsilon=epsilon, columns=columns) for epsilon, columns in _TABLES]
    if issubclass(mechanism, RowMechanism):
        return [mechanism(columns=columns) for columns in _ROWS]
    needed = {p.name for p in mechanism.parameters() if p.required}
    mechanisms: list[Mechanism] = []
    for trial in ({**_ALWAYS, **trial} for trial in _TRIALS):
        for wanted in (needed, needed | {"columns"}):  # metric mechanisms take a grid as an option
            if wanted <= trial.keys() and wanted <= mechanism.model_fields.keys():
                with suppress(UsageError):
                    one = mechanism(**{name: trial[name] for name in wanted})
                    one.channel()
                    mechanisms.append(one)
                    break
    return mechanisms


# A source of words that repeats itself.


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
