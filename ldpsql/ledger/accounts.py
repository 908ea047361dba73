"""What people have spent from an account: an array of pseudonyms and sums, in sealed buckets by the first bits of a pseudonym.

A charge reads and writes the buckets of its people as a whole. Arrays make a charge of a million people quick, and buckets one
of a single person.
"""

from __future__ import annotations

import sqlite3

import numpy as np
from numpy.typing import NDArray

from ldpsql.ledger.seals import damaged, key_of, sealed, sealed_bytes

_SUMS = ("epsilon", "delta", "epsilon_ever", "delta_ever")  # in the window, and since the ledger began
PERSON = np.dtype([("person", "S16"), ("since", "<i8"), *((name, "<i8") for name in _SUMS)])


def buckets_of(persons: NDArray[np.bytes_]) -> NDArray[np.int64]:
    """Return the bucket of each pseudonym: its first twelve bits."""
    octets = np.ascontiguousarray(persons).view(np.uint8).reshape(len(persons), -1).astype(np.int64)[:, :2]
    return octets[:, 0] << 4 | octets[:, 1] >> 4


def load(db: sqlite3.Connection, account: int, persons: NDArray[np.bytes_] | None = None) -> NDArray[np.void]:
    """Return what people have spent from an account, in ascending order of their pseudonyms.

    Args:
        db: the ledger, whose head was verified.
        account: the number of the account.
        persons: people in whose buckets everybody is returned; all if None.

    Raises:
        LedgerDamaged: if what is read is not what was written.

    """
    key = key_of(db)
    (whole,) = db.execute("SELECT seal FROM account WHERE id = ?", [account]).fetchone()
    seals = _seals(db, account)
    if whole != _seal_of(key, account, seals):
        raise damaged("people")
    wanted = None if persons is None else set(np.unique(buckets_of(persons)).tolist())
    read = [_people(db, key, account, row) for row in seals if wanted is None or row[0] in wanted]
    return np.frombuffer(b"".join(read), dtype=PERSON)


def _seals(db: sqlite3.Connection, account: int) -> list[tuple[int, bytes]]:
    return db.execute("SELECT bucket, seal FROM bucket WHERE account = ? ORDER BY bucket", [account]).fetchall()


def _seal_of(key: bytes, account: int, seals: list[tuple[int, bytes]]) -> bytes:
    return sealed(key, "account", account, seals) if seals else b""


def _people(db: sqlite3.Connection, key: bytes, account: int, sealing: tuple[int, bytes]) -> bytes:
    bucket, seal = sealing
    row = db.execute("SELECT people FROM spent WHERE account = ? AND bucket = ?", [account, bucket]).fetchone()
    if row is None or not isinstance(row[0], bytes) or sealed_bytes(key, account, bucket, row[0]) != seal:
        raise damaged("people")
    return row[0]


def store(db: sqlite3.Connection, account: int, people: NDArray[np.void]) -> None:
    """Write what people have spent, everybody of each bucket, in ascending order of their pseudonyms."""
    key, buckets = key_of(db), buckets_of(people["person"])
    starts = np.flatnonzero(np.diff(buckets, prepend=-1)).tolist()
    rows = []
    for start, end in zip(starts, [*starts[1:], len(people)], strict=True):
        bucket, content = int(buckets[start]), people[start:end].tobytes()
        rows.append((account, bucket, content))
    db.executemany("INSERT OR REPLACE INTO spent VALUES (?, ?, ?)", rows)
    seals = ((account, bucket, sealed_bytes(key, account, bucket, content)) for _, bucket, content in rows)
    db.executemany("INSERT OR REPLACE INTO bucket VALUES (?, ?, ?)", seals)
    db.execute("UPDATE account SET seal = ? WHERE id = ?", [_seal_of(key, account, _seals(db, account)), account])
