"""Compare the user ids that were charged with those that were drawn, so that nobody's report is published uncharged."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa

from ldpsql.domains.columns import plain
from ldpsql.engine.functions import guarded
from ldpsql.ledger.people import id_bytes

Digest: TypeAlias = tuple[int, int, int]
_SEEDS = (0x6C647073716C, 0x77697473)


@guarded
def digest(users: Any) -> Digest:
    """Return the number of user ids and two sums of their hashes, each of 64 bits; the order of the ids does not matter."""
    ids = _series(users)
    first, second = (int(ids.hash(seed).to_numpy().sum(dtype=np.uint64)) for seed in _SEEDS)
    return len(ids), first, second


def together(one: Digest, other: Digest) -> Digest:
    """Return the digest of the user ids of two digests together."""
    return one[0] + other[0], (one[1] + other[1]) % 2**64, (one[2] + other[2]) % 2**64


@guarded
def others(charged: Any, users: Any) -> int:
    """Return how many of the user ids are not among those that were charged, or occur more often."""
    before = pl.DataFrame({"id": _series(charged)}).group_by("id").len("charged")
    now = pl.DataFrame({"id": _series(users)}).group_by("id").len("now")
    return now.join(before, on="id", how="left").filter(pl.col("now") > pl.col("charged").fill_null(0)).height


def _series(users: Any) -> pl.Series:
    column = plain(users) if isinstance(users, pa.Array | pa.ChunkedArray) else users
    stored = isinstance(column, pa.ExtensionArray)  # of a kept column, such as a UUID
    return pl.Series(id_bytes(column.storage if stored else column), dtype=pl.Binary)
