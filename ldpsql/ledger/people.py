"""The people of a release, as the ledger stores them: pseudonyms of users, and how many reports each gives."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.domains.arrays import column_of
from ldpsql.errors import AlikeUsers, InvalidParameter, MissingValue, WrongType
from ldpsql.ledger.digests import DIGEST, SIZE, ascending, keyed_digests

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
        pseudonyms = pseudonyms_of(counted.field("values"), salt)
        order = ascending(pseudonyms)
        return cls(pseudonyms[order], counted.field("counts").to_numpy()[order])

    def digest(self) -> str:
        """Return a fingerprint of the people and their numbers of reports."""
        digest = blake2b(self.pseudonyms.data, digest_size=SIZE)
        digest.update(self.reports.astype("<u8").data)
        return digest.hexdigest()


def pseudonyms_of(people: pa.Array, salt: bytes) -> NDArray[np.bytes_]:
    """Return the pseudonym of each person, who is bytes."""
    return keyed_digests(people, salt)


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
