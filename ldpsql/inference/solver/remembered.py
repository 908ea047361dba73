"""A cache of maxima, so that the functions of an estimate, and of a query, do not solve the same likelihood again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from ldpsql.caches import ByteCache
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Floats
from ldpsql.inference.outcome import Fit, Status
from ldpsql.inference.solver.limits import Limits

_ENDED = (Status.CERTIFIED, Status.ROUNDED)
_OVERHEAD = 600  # bytes of an entry without its shares


@dataclass(frozen=True)
class Solved:
    """The maximum of one group, shape (values,), and how the solve ended, which was allowed ``most`` steps."""

    theta: Floats
    steps: int
    status: Status
    most: int

    def serves(self, most: int) -> bool:
        """Return whether a solve of at most this many steps would end the same way."""
        return self.most == most or (self.status in _ENDED and self.steps < most)


_SOLVED: ByteCache[bytes, Solved] = ByteCache(64 << 20, lambda _, solved: solved.theta.nbytes + _OVERHEAD)


def keys_of(likelihood: Likelihood, tolerance: float, start: Floats | None) -> list[bytes]:
    """Return for each group a digest of everything its maximum depends on."""
    common = blake2b(likelihood.operator.key + np.float64(tolerance).tobytes(), digest_size=16)
    parts = [likelihood.counts] if start is None else [likelihood.counts, start]
    rows = np.ascontiguousarray(np.concatenate(parts, axis=1), dtype=np.float64)
    keys = []
    for row in rows:
        digest = common.copy()
        digest.update(row)
        keys.append(digest.digest())
    return keys


def remembered(keys: Sequence[bytes], most: int) -> list[Solved | None]:
    """Return the remembered maximum of each group, None if there is none for this number of steps."""
    solved = [_SOLVED.get(key) for key in keys]
    return [one if one is not None and one.serves(most) else None for one in solved]


def remember(keys: Sequence[bytes], fit: Fit, limits: Limits) -> list[Solved]:
    """Return the maxima of a fit, and remember them unless the deadline has passed.

    After the deadline, even a maximum whose gap is small enough may differ from the one that more time would give: if there are
    many maxima, it may not be their centre.
    """
    out, whole = [], not limits.late
    for key, theta, steps, status in zip(keys, fit.theta, fit.iterations, fit.status, strict=True):
        solved = Solved(theta.copy(), int(steps), status, limits.most)
        if whole:
            _SOLVED.put(key, solved)
        out.append(solved)
    return out


def joined(solved: Sequence[Solved]) -> Fit:
    """Return the maxima of all groups as one outcome."""
    theta = np.stack([one.theta for one in solved])
    return Fit(theta, np.array([one.steps for one in solved], dtype=np.int64), tuple(one.status for one in solved))
