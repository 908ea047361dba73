"""What people have spent from an account: an array of pseudonyms and sums, in sealed buckets by the first bits of a pseudonym.

A charge reads and writes whole buckets of its people, and the seals of all buckets. Arrays make a charge of a million people
fast, and buckets a charge of a single person.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldpsql.ledger.digests import DIGEST
from ldpsql.ledger.seals import damaged, key_of, sealed_bytes

_SUMS = ("epsilon", "delta", "epsilon_ever", "delta_ever")  # in the window, and since the ledger began
PERSON = np.dtype([("person", DIGEST), ("since", "<i8"), *((name, "<i8") for name in _SUMS)])
CHARGED = np.dtype([("person", DIGEST), ("reports", "<i8")])  # the people of a release, and their reports
_BUCKET = np.dtype([("bucket", "<u2"), ("seal", "V16")])


def buckets_of(persons: NDArray[np.bytes_]) -> NDArray[np.int64]:
    """Return the bucket of each pseudonym: its first twelve bits."""
    leading = np.ascontiguousarray(persons).view(">u2").reshape(len(persons), persons.itemsize // 2)[:, 0]
    return leading.astype(np.int64) >> 4


def load(
    db: sqlite3.Connection, account: int, persons: NDArray[np.bytes_] | None = None, kind: np.dtype[Any] = PERSON
) -> NDArray[Any]:
    """Return what people have spent from an account, in ascending order of their pseudonyms.

    Args:
        db: the ledger, whose head was verified.
        account: the number of the account.
        persons: return everybody in the buckets of these people; all if None.
        kind: what the account holds: `PERSON`, `CHARGED`, or `DIGEST` if it holds fingerprints instead of people.

    Raises:
        LedgerDamaged: if what is read is not what was written.

    """
    key, buckets = key_of(db), _buckets(db, account)
    if persons is not None:
        buckets = buckets[np.isin(buckets["bucket"], buckets_of(persons))]
    elif db.execute("SELECT count(*) FROM spent WHERE account = ?", [account]).fetchone() != (len(buckets),):
        raise damaged("people")
    people = b"".join(_people(db, key, account, dict(buckets.tolist())))
    if len(people) % kind.itemsize:
        raise damaged("people")
    return np.frombuffer(people, dtype=kind)


def _buckets(db: sqlite3.Connection, account: int) -> NDArray[np.void]:
    """Return the buckets of an account with their seals, in ascending order."""
    (seal,) = db.execute("SELECT seal FROM account WHERE id = ?", [account]).fetchone()
    (buckets,) = db.execute("SELECT seals FROM bucket WHERE account = ?", [account]).fetchone() or (b"",)
    if not isinstance(buckets, bytes) or seal != _seal_of(key_of(db), account, buckets):
        raise damaged("people")
    return np.frombuffer(buckets, dtype=_BUCKET)


def _seal_of(key: bytes, account: int, buckets: bytes) -> bytes:
    return sealed_bytes(key, b"account %d" % account, buckets) if buckets else b""


def _people(db: sqlite3.Connection, key: bytes, account: int, seals: dict[int, bytes]) -> list[bytes]:
    """Return the people of each bucket; all buckets come from one query, which takes a tenth of the time of one for each."""
    wanted = "SELECT bucket, people FROM spent WHERE account = ? AND bucket IN (SELECT value FROM json_each(?)) ORDER BY bucket"
    rows = db.execute(wanted, [account, json.dumps([*seals])]).fetchall()
    whole = len(rows) == len(seals) and all(isinstance(people, bytes) for _, people in rows)
    if not whole or any(_seal_of_people(key, account, *row) != seals.get(row[0]) for row in rows):
        raise damaged("people")
    return [people for _, people in rows]


def _seal_of_people(key: bytes, account: int, bucket: int, people: bytes | memoryview) -> bytes:
    return sealed_bytes(key, b"people %d %d" % (account, bucket), people)


def store(db: sqlite3.Connection, account: int, people: NDArray[Any]) -> None:
    """Write what `load` returns: everybody in each bucket, in ascending order of their pseudonyms, or all fingerprints."""
    key, bucket = key_of(db), buckets_of(people if people.dtype == DIGEST else people["person"])
    starts = np.flatnonzero(np.diff(bucket, prepend=-1)).tolist()
    size, octets = people.itemsize, np.ascontiguousarray(people).view(np.uint8).data
    rows = [
        (account, int(bucket[start]), octets[start * size : end * size])
        for start, end in zip(starts, [*starts[1:], len(people)], strict=True)
    ]
    db.executemany("INSERT OR REPLACE INTO spent VALUES (?, ?, ?)", rows)
    written = np.array([(row[1], _seal_of_people(key, *row)) for row in rows], dtype=_BUCKET)
    buckets = _replaced(_buckets(db, account), written).tobytes()
    db.execute("INSERT OR REPLACE INTO bucket VALUES (?, ?)", [account, buckets])
    db.execute("UPDATE account SET seal = ? WHERE id = ?", [_seal_of(key, account, buckets), account])


def _replaced(buckets: NDArray[np.void], written: NDArray[np.void]) -> NDArray[np.void]:
    """Return all buckets in ascending order, with the new seals of those that were written."""
    together = np.concatenate([buckets[~np.isin(buckets["bucket"], written["bucket"])], written])
    return together[np.argsort(together["bucket"])]
