"""The people of a release as a ledger stores them: keyed digests of user ids in ascending order, and numbers of reports.

The user ids that were charged are compared with those that were drawn, so that nobody's report is published uncharged.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.domains.columns import column_of, plain
from ldpsql.engine.functions import guarded
from ldpsql.errors import AlikeUsers, InvalidParameter, MissingValue, WrongType

SIZE = 16  # bytes
DIGEST = np.dtype(f"S{SIZE}")
_BLOCK = 1 << 12  # messages at a time, which stay in the cache


def keyed_digests(messages: pa.Array, key: bytes) -> NDArray[np.bytes_]:
    """Return the BLAKE2b digest of each message, which is bytes, under a key."""
    steps, begun = range(0, len(messages), _BLOCK), blake2b(key=key, digest_size=SIZE)

    def digests(at: int) -> bytes:
        some = []
        for message in messages[at : at + _BLOCK].to_pylist():
            one = begun.copy()  # takes half the time of reading the key again
            one.update(message)
            some.append(one.digest())
        return b"".join(some)

    return np.frombuffer(b"".join(map(digests, steps)), dtype=DIGEST)


def ascending(digests: NDArray[np.bytes_]) -> NDArray[np.intp]:
    """Return the positions of digests in ascending order; those of equal digests in any order."""
    low = np.uint64((1 << len(digests).bit_length()) - 1)  # numbers are sorted in half the time of their positions
    numbered = np.sort(_leading(digests) & ~low | np.arange(len(digests), dtype=np.uint64))
    order = (numbered & low).astype(np.intp)
    alike = numbered[1:] ^ numbered[:-1] <= low
    tied = np.flatnonzero(np.append(alike, False) | np.append(False, alike))
    order[tied] = order[tied][np.argsort(digests[order[tied]])]  # those that begin alike stay next to each other
    return order


def distinct(digests: NDArray[np.bytes_]) -> tuple[NDArray[np.bytes_], NDArray[np.intp], NDArray[np.intp]]:
    """Return the different digests in ascending order, the position of one of each, and how many there are of each."""
    order = ascending(digests)
    ordered = digests[order]
    starts = np.flatnonzero(np.concatenate([np.ones(len(ordered[:1]), dtype=np.bool_), ordered[1:] != ordered[:-1]]))
    return ordered[starts], order[starts], np.diff(starts, append=len(ordered))


def among(kept: NDArray[np.bytes_], asked: NDArray[np.bytes_]) -> NDArray[np.bool_]:
    """Return which digests are among those that are kept; both are in ascending order."""
    return ~placed(kept, asked)[1]


def all_among(kept: NDArray[np.bytes_], asked: NDArray[np.bytes_]) -> bool:
    """Return whether all digests, in any order, are among those that are kept, which are in ascending order."""
    return bool(among(kept, asked[ascending(asked)]).all())


def placed(kept: NDArray[np.bytes_], asked: NDArray[np.bytes_]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return what `places` does, and which digests are not among those that are kept."""
    if not len(kept):
        return np.zeros(len(asked), dtype=np.intp), np.ones(len(asked), dtype=np.bool_)
    at = places(kept, asked)
    return at, kept[np.minimum(at, len(kept) - 1)] != asked


def places(kept: NDArray[np.bytes_], asked: NDArray[np.bytes_]) -> NDArray[np.intp]:
    """Return where digests belong among those that are kept, which are different; both are in ascending order."""
    leading = _leading(kept)
    if not len(kept) or (leading[1:] == leading[:-1]).any():
        return np.searchsorted(kept, asked)
    first = np.searchsorted(leading, _leading(asked))  # of those that begin alike, there is one at most
    before = kept[np.minimum(first, len(kept) - 1)] < asked
    return first + (before & (first < len(kept)))


def _leading(digests: NDArray[np.bytes_]) -> NDArray[np.uint64]:
    """Return the first half of each digest as a number."""
    return np.ascontiguousarray(digests).view(">u8")[::2].astype(np.uint64)


EVERYBODY = b""  # stands for each row of a dataset whose rows are its people


@dataclass(frozen=True)
class People:
    """Pseudonyms in ascending order, and the number of reports of each in a column."""

    pseudonyms: NDArray[np.bytes_]
    reports: NDArray[np.int64]

    @classmethod
    def each_row(cls) -> People:
        """Return the one entry that stands for every row: rows are different people, so the cost of one is the cost of each."""
        return cls(np.array([EVERYBODY], dtype=DIGEST), np.array([1]))

    @classmethod
    def of(cls, users: Any, salt: bytes) -> People:
        """Return the pseudonyms of the user ids of all rows; an id that occurs twice gives two reports.

        Raises:
            MissingValue, WrongType: if an id is NULL or not a string, bytes or a whole number.
            InvalidParameter: if there is no row.

        """
        counted = pc.value_counts(id_bytes(users))
        if not len(counted):
            raise InvalidParameter("this release has no people", "pass the user id of each row")
        warn_of_alike(counted.field("values"))
        pseudonyms = keyed_digests(counted.field("values"), salt)
        order = ascending(pseudonyms)
        return cls(pseudonyms[order], counted.field("counts").to_numpy()[order])

    def digest(self) -> str:
        """Return a fingerprint of the people and their numbers of reports."""
        digest = blake2b(self.pseudonyms.data, digest_size=SIZE)
        digest.update(self.reports.astype("<u8").data)
        return digest.hexdigest()


def warn_of_alike(ids: pa.Array) -> None:
    """Warn if some of the user ids, all different and as bytes, are the same after NFC and without space around them."""
    try:
        texts = ids.cast(pa.large_string())
    except pa.ArrowInvalid:  # bytes that are no text
        return
    trimmed = pc.utf8_trim_whitespace(texts)
    plain_text = pc.all(pc.string_is_ascii(trimmed)).as_py()
    written = trimmed if plain_text else pc.utf8_trim_whitespace(pc.utf8_normalize(trimmed, form="NFC"))
    alike = 0 if written.equals(texts) else len(texts) - len(written.unique())
    if alike:
        warnings.warn(
            f"{alike} user ids differ from another one only in space around them or in the form of Unicode, and are charged as "
            "other people: write each person's id in one way",
            AlikeUsers,
            stacklevel=2,
        )


def id_bytes(users: Any) -> pa.Array:
    """Return user ids as bytes. The number 7 and the string '7' are one user, which can only charge too much; '07' is another.

    Raises:
        MissingValue, WrongType: if an id is NULL or not a string, bytes or a whole number.

    """
    column = column_of(users)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        raise MissingValue("a user id is NULL", "every row needs a user id, or it cannot be charged")
    kind = column.type
    whole = pa.types.is_integer(kind) or (
        pa.types.is_decimal(kind) and kind.scale == 0
    )  # DuckDB's HUGEINT is a decimal in Arrow
    if whole or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.large_string()).cast(pa.large_binary())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.large_binary())
    raise WrongType("user ids must be strings, bytes or whole numbers", "cast the column of user ids")


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
