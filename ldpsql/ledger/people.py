"""The people of a release, as the ledger stores them: pseudonyms of users, and how many reports each gives."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ldpsql.domains.arrays import column_of
from ldpsql.errors import InvalidParameter, MissingValue, WrongType

_SIZE = 16  # bytes of a pseudonym
EVERYBODY = b""  # stands for each row of a dataset whose rows are its people


@dataclass(frozen=True)
class People:
    """Pseudonyms in ascending order, and the number of reports of each in a column."""

    pseudonyms: list[bytes]
    reports: list[int]

    @classmethod
    def each_row(cls) -> People:
        """Return the one entry that stands for every row: rows are different people, so the cost of one is the cost of each."""
        return cls([EVERYBODY], [1])

    @classmethod
    def of(cls, users: Any, salt: bytes) -> People:
        """Return the pseudonyms of the user ids of all rows; an id that occurs twice gives two reports.

        Raises:
            MissingValue, WrongType: if an id is NULL or not a string, bytes or a whole number.

        """
        counted = pc.value_counts(id_bytes(users))
        ids, reports = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
        if not ids:
            raise InvalidParameter("this release has no people", "pass the user id of each row")
        joined = b"".join(blake2b(user, key=salt, digest_size=_SIZE).digest() for user in ids)
        halves = np.frombuffer(joined, dtype=">u8").reshape(-1, 2)
        order = np.lexsort((halves[:, 1], halves[:, 0]))
        joined = halves[order].tobytes()
        pseudonyms = [joined[start : start + _SIZE] for start in range(0, len(joined), _SIZE)]
        return cls(pseudonyms, np.array(reports)[order].tolist())

    def digest(self) -> str:
        """Return a fingerprint of the people and their numbers of reports."""
        reports = np.array(self.reports, dtype="<u8").tobytes()
        return blake2b(b"".join(self.pseudonyms) + reports, digest_size=16).hexdigest()


def id_bytes(users: Any) -> pa.Array:
    """Return user ids as bytes. The number 7 and the string '7' are one user, which can only charge too much."""
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
