"""The file of a ledger: a SQLite database in WAL mode, whose commits are on the disk before they count, and its seals.

Each operation opens its own connection, so a ledger can be used from any thread and after a fork. SQLite's own messages are
replaced here. What people have spent from an account is an array of pseudonyms and sums, in sealed buckets by the first bits
of a pseudonym. A charge reads and writes whole buckets of its people, and the seals of all buckets: arrays make a charge of a
million people fast, and buckets a charge of a single person.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ldpsql.errors import LedgerBusy, LedgerDamaged, LedgerError, LedgerMissing, LedgerUnwritable, LedgerVersion
from ldpsql.ledger.people import DIGEST
from ldpsql.system import synced

# The seals of a ledger: keyed hashes that reveal damage, and edits by other programs, before anything is charged.
#
#     head <- policies, accounts <- buckets of people
#     head <- last entry <- ... <- first entry; an entry is a release that was charged with its charges, drawn and about
#                                               to be published, that was published, or that was given back
#
# The seal of the head covers every policy and every account, the seal of an account its buckets of people, the seal of a
# bucket its people. Each entry is sealed together with the entry before it. So nothing can be changed, left out or put in
# without the key. The key is in the file, since it must be wherever the ledger is; anyone who may write the file can replace
# all of it.

State: TypeAlias = Literal["charged", "drawn", "published", "returned"]
KEY_SIZE = 32  # bytes
_SIZE = 16
_ENDS = {"published", "returned"}  # a release has one end at most
_RELEASE = "SELECT id, token, identity, at, dataset, part, destination, users, reports, published_at, source FROM release"
_CHARGE = "SELECT release, column_name, mechanism, claim, account, epsilon, delta FROM charge"


def damaged(what: str) -> LedgerDamaged:
    """Return the refusal of a ledger whose seals do not fit."""
    return LedgerDamaged(
        f"the ledger does not add up: {what} are not as they were written",
        "restore it from a backup, and release nothing before",
    )


def sealed(key: bytes, *content: Any) -> bytes:
    """Return the seal of values: numbers, strings, bytes, NULL, and lists of them; the types count, too."""
    return blake2b(ascii(content).encode("ascii"), key=key, digest_size=_SIZE).digest()


def sealed_bytes(key: bytes, name: bytes, content: bytes | memoryview) -> bytes:
    """Return the seal of named bytes: the buckets of an account, or the people of a bucket."""
    seal = blake2b(name + b" ", key=key, digest_size=_SIZE)
    seal.update(content)
    return seal.digest()


@dataclass
class Head:
    """The last link of the chain: the key, the latest time, the number of entries, and the seal of the last one."""

    key: bytes
    at: int
    entries: int
    link: bytes

    def seal(self, db: sqlite3.Connection) -> bytes:
        """Return the seal of the head with all policies and accounts.

        Raises:
            LedgerDamaged: if an account occurs twice, as in a damaged index.

        """
        policies = db.execute("SELECT id, at, body, salt FROM policy ORDER BY id").fetchall()
        accounts = db.execute(
            "SELECT id, unit, dataset, part, column_group, currency, seal FROM account NOT INDEXED ORDER BY id"
        ).fetchall()
        if len({account[1:6] for account in accounts}) < len(accounts):
            raise damaged("accounts")
        return sealed(self.key, "head", self.at, self.entries, self.link, policies, accounts)


def verified(db: sqlite3.Connection) -> Head:
    """Return the head, after a check of all policies and accounts."""
    rows = db.execute("SELECT id, key, at, entries, link, seal FROM head").fetchall()
    if len(rows) != 1 or rows[0][0] != 1 or not isinstance(rows[0][1], bytes) or len(rows[0][1]) != KEY_SIZE:
        raise damaged("its seals")
    head = Head(*rows[0][1:5])
    if head.seal(db) != rows[0][5]:
        raise damaged("policies or accounts")
    return head


def key_of(db: sqlite3.Connection) -> bytes:
    """Return the key of a ledger whose head was verified."""
    return db.execute("SELECT key FROM head").fetchone()[0]


def start(db: sqlite3.Connection, key: bytes, at: int) -> Head:
    """Begin the chain with a key."""
    head = Head(key, at, 0, b"")
    db.execute("INSERT INTO head VALUES (1, ?, ?, 0, x'', x'')", [key, at])
    return head


def enter(db: sqlite3.Connection, token: str, state: State) -> None:
    """Add an entry; `seal` links it at the end of the transaction, when the charges of the release are written."""
    db.execute(
        "INSERT INTO entry (release, state, link) SELECT id, ?, x'' FROM release NOT INDEXED WHERE token = ?", [state, token]
    )


def seal(db: sqlite3.Connection, head: Head) -> None:
    """Link the new entries, and seal the head, at the end of every transaction that writes."""
    new = db.execute("SELECT id, release, state FROM entry WHERE id > ? ORDER BY id", [head.entries]).fetchall()
    for number, release, state in new:
        row = db.execute(f"{_RELEASE} WHERE id = ?", [release]).fetchone()
        charges = db.execute(f"{_CHARGE} WHERE release = ? ORDER BY rowid", [release]).fetchall()
        head.entries, head.link = number, _seal_of_link(head, number, state, row, charges)
        head.at = max(head.at, row[3], row[9] or 0)
        db.execute("UPDATE entry SET link = ? WHERE id = ?", [head.link, number])
    (latest,) = db.execute("SELECT max(at) FROM policy").fetchone()
    head.at = max(head.at, latest)
    changed = [head.at, head.entries, head.link, head.seal(db)]
    db.execute("UPDATE head SET at = ?, entries = ?, link = ?, seal = ?", changed)


def _seal_of_link(head: Head, number: int, state: State, release: Sequence[Any], charges: list[tuple[Any, ...]]) -> bytes:
    """Return the seal of an entry that follows the link of the head."""
    contents = {"charged": [*release[:9], release[10], charges], "published": [*release[:2], release[9]]}
    return sealed(head.key, "entry", head.link, number, state, list(contents.get(state, release[:2])))


def check_release(db: sqlite3.Connection, number: int) -> None:
    """Check a release with its charges against the seals of its entries; `check_entries` also follows the chain."""
    row = db.execute(f"{_RELEASE} WHERE id = ?", [number]).fetchone()
    charges = db.execute(f"{_CHARGE} WHERE release = ? ORDER BY rowid", [number]).fetchall()
    linked = """SELECT entry.id, entry.state, entry.link, coalesce(before.link, x'')
                FROM entry LEFT JOIN entry AS before ON before.id = entry.id - 1 WHERE entry.release = ?"""
    key, states = key_of(db), set()
    for at, state, link, before in db.execute(linked, [number]):
        states.add(state)
        if state not in get_args(State) or link != _seal_of_link(Head(key, 0, 0, before), at, state, row, charges):
            raise damaged("releases")
    if "charged" not in states or ("published" in states) != (row[9] is not None) or states >= _ENDS:
        raise damaged("releases")


def check_entries(db: sqlite3.Connection) -> None:
    """Follow the whole chain, from the first entry to the head.

    Raises:
        LedgerDamaged: if a release, a charge or an entry was changed, removed or added.

    """
    last = verified(db)
    releases = {row[0]: row for row in db.execute(f"{_RELEASE} NOT INDEXED ORDER BY id")}
    charges = defaultdict(list)
    for charge in db.execute(f"{_CHARGE} ORDER BY rowid"):
        charges[charge[0]].append(charge)
    walk, seen = Head(last.key, last.at, 0, b""), set()
    for number, release, state, link in db.execute("SELECT id, release, state, link FROM entry ORDER BY id"):
        new = state in get_args(State) and (release, state) not in seen
        if release not in releases or not new or number != walk.entries + 1:
            raise damaged("releases")
        walk.link, walk.entries = _seal_of_link(walk, number, state, releases[release], charges.get(release, [])), number
        if link != walk.link:
            raise damaged("releases")
        seen.add((release, state))
    stated = {(number, "charged") for number in releases}
    stated |= {(number, "published") for number, row in releases.items() if row[9] is not None}
    stated |= {
        (number, state)
        for number, state in seen
        if state == "drawn" or (state == "returned" and (number, "published") not in seen)
    }
    if walk != last or seen != stated or not charges.keys() <= releases.keys():
        raise damaged("releases")


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


VERSION = 3
LAYOUT = """
    CREATE TABLE policy (
        id INTEGER PRIMARY KEY, at INTEGER NOT NULL, body TEXT NOT NULL, salt BLOB NOT NULL);
    CREATE TABLE release (
        id INTEGER PRIMARY KEY, token TEXT NOT NULL UNIQUE, identity TEXT NOT NULL, at INTEGER NOT NULL,
        dataset TEXT NOT NULL, part TEXT NOT NULL, destination TEXT NOT NULL,
        users INTEGER, reports INTEGER, published_at INTEGER, source TEXT NOT NULL);
    CREATE INDEX release_identity ON release (identity);
    CREATE TABLE charge (
        release INTEGER NOT NULL REFERENCES release (id), column_name TEXT NOT NULL, mechanism TEXT NOT NULL,
        claim TEXT NOT NULL, account INTEGER NOT NULL REFERENCES account (id),
        epsilon INTEGER NOT NULL, delta INTEGER NOT NULL);
    CREATE TABLE account (
        id INTEGER PRIMARY KEY, unit TEXT NOT NULL, dataset TEXT NOT NULL, part TEXT NOT NULL,
        column_group TEXT NOT NULL, currency TEXT NOT NULL, seal BLOB NOT NULL DEFAULT x'',
        UNIQUE (unit, dataset, part, column_group, currency));
    CREATE TABLE spent (
        account INTEGER NOT NULL REFERENCES account (id), bucket INTEGER NOT NULL, people BLOB NOT NULL,
        PRIMARY KEY (account, bucket));
    CREATE TABLE bucket (
        account INTEGER PRIMARY KEY REFERENCES account (id), seals BLOB NOT NULL);
    CREATE TABLE entry (
        id INTEGER PRIMARY KEY, release INTEGER NOT NULL REFERENCES release (id), state TEXT NOT NULL, link BLOB NOT NULL);
    CREATE TABLE head (
        id INTEGER PRIMARY KEY, key BLOB NOT NULL, at INTEGER NOT NULL, entries INTEGER NOT NULL, link BLOB NOT NULL,
        seal BLOB NOT NULL);
"""
_TABLES = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"


@cache
def _tables(layout: str) -> list[tuple[str, str, str]]:
    db = sqlite3.connect(":memory:")
    try:
        db.executescript(layout)
        return db.execute(_TABLES).fetchall()
    finally:
        db.close()


def begin(db: sqlite3.Connection, at: int) -> None:
    """Seal a file that holds only a policy."""
    seal(db, start(db, os.urandom(KEY_SIZE), at))


APPLICATION = 0x4C445053  # "LDPS"
_LOG = logging.getLogger("ldpsql")  # without a handler, Python writes warnings to stderr
_PATIENCE = 120.0  # seconds to wait for other writers


def create(path: Path, policy: str, at: int) -> None:
    """Make a new ledger with a policy, and log a warning; if another process makes one first, keep that one.

    The file gets its name when it is complete, so an empty file is never taken for a new ledger.
    """
    with _translated():
        try:
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # readable by its owner only
        except OSError:
            raise LedgerUnwritable("the ledger cannot be made", "its folder must exist and be writable") from None
        os.close(handle)
        try:
            _fill(name, policy, at)
            if _link(Path(name), path):
                _LOG.warning("began a new ledger, in which nothing is spent: %s", path)
        finally:
            for leftover in (name, f"{name}-wal", f"{name}-shm"):
                Path(leftover).unlink(missing_ok=True)


def _fill(name: str, policy: str, at: int) -> None:
    with closing(sqlite3.connect(name, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.executescript(f"BEGIN; {LAYOUT} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT")
        db.execute("INSERT INTO policy VALUES (1, ?, ?, ?)", [at, policy, os.urandom(32)])
        begin(db, at)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _link(made: Path, path: Path) -> bool:
    """Give a file its name, and return True; return False if a file of that name exists."""
    with made.open("rb") as file:
        os.fsync(file.fileno())
    try:
        os.link(made, path)
    except FileExistsError:
        return False
    synced(path.parent)
    return True


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a ledger and check that it is one, of this layout.

    Raises:
        LedgerMissing, LedgerDamaged, LedgerVersion, LedgerUnwritable, LedgerBusy: if it cannot be used.

    """
    if not path.is_file():
        raise LedgerMissing(
            "there is no ledger at the path that was given",
            "a policy begins one: epsilon_budget, in Python in Policy(...), else in [ledger] of ldpsql.toml",
        )
    _refuse_second_name(path)
    uri = path.absolute().as_uri() + "?mode=rw"  # never make a missing file
    with _translated(), closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_PATIENCE)) as db:
        db.execute("PRAGMA synchronous = FULL")
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION:
            raise LedgerDamaged("this file is not a ledger of ldpsql, or its beginning is lost", "restore it from a backup")
        if version != VERSION:
            newer = "upgrade ldpsql" if version > VERSION else "use the version of ldpsql that wrote it"
            raise LedgerVersion(f"the ledger has layout {version}, and this version of ldpsql reads layout {VERSION}", newer)
        if db.execute(_TABLES).fetchall() != _tables(LAYOUT):
            raise LedgerDamaged("the tables of the ledger are damaged", "restore it from a backup")
        yield db


def _refuse_second_name(path: Path) -> None:
    """Refuse a file with two names: SQLite logs by the name, so each of them would have a budget of its own."""
    if path.stat().st_nlink == 1:
        return
    for made in path.resolve().parent.glob(f".{path.resolve().name}.*"):  # left by a process that was killed
        if made.samefile(path):
            made.unlink(missing_ok=True)
    if path.stat().st_nlink > 1:
        raise LedgerUnwritable(
            "the ledger is one file under two names, and charges under one name are not seen under the other",
            "remove the other name, a hard link; ls -i shows it. A copy is a ledger of its own",
        )


@contextmanager
def snapshot(db: sqlite3.Connection) -> Iterator[Head]:
    """Read one state of the ledger, whatever others write meanwhile, and check its head.

    Raises:
        LedgerDamaged: if policies or accounts are not as they were written.

    """
    with _transaction(db, "DEFERRED"):
        yield verified(db)


@contextmanager
def writing(db: sqlite3.Connection) -> Iterator[None]:
    """Run a transaction that excludes other writers; it is sealed and on the disk when the block ends.

    Raises:
        LedgerDamaged: before anything is written, if policies or accounts are not as they were written.

    """
    with _transaction(db, "IMMEDIATE"):
        head = verified(db)
        yield
        seal(db, head)


@contextmanager
def _transaction(db: sqlite3.Connection, kind: str) -> Iterator[None]:
    db.execute(f"BEGIN {kind}")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


@contextmanager
def _translated() -> Iterator[None]:
    """Turn errors of SQLite and of the file system into ours."""
    try:
        yield
    except sqlite3.Error as error:
        refusal = _refusal(getattr(error, "sqlite_errorname", ""))
    except OSError:
        refusal = LedgerUnwritable("the ledger cannot be written", "look at the disk and the permissions of its folder")
    except UnicodeDecodeError:  # of a name in a damaged file
        refusal = _refusal("SQLITE_CORRUPT")
    else:
        return
    refusal.__context__ = None
    raise refusal from None


def _refusal(name: str) -> LedgerError:
    kind = name.removeprefix("SQLITE_").split("_")[0]
    if kind in ("BUSY", "LOCKED"):
        return LedgerBusy("another process kept the ledger for too long", "try again")
    if kind == "FULL":
        return LedgerUnwritable("the disk of the ledger is full", "make room; nothing was released")
    if kind in ("READONLY", "CANTOPEN", "PERM", "IOERR", "AUTH"):
        return LedgerUnwritable("the ledger cannot be written", "look at the disk and the permissions of file and folder")
    if kind in ("CORRUPT", "NOTADB"):
        return LedgerDamaged("the ledger is damaged", "restore it from a backup; ldpsql budget check says more")
    return LedgerDamaged("the ledger cannot be used", "ldpsql budget check says more")
