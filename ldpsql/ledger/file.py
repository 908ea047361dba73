"""The file of a ledger: a SQLite database in WAL mode; each commit is on the disk before it counts.

Each operation opens its own connection, so a ledger can be used from any thread and after a fork. SQLite's own messages are
replaced here.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ldpsql.errors import LedgerBusy, LedgerDamaged, LedgerError, LedgerMissing, LedgerUnwritable, LedgerVersion
from ldpsql.ledger.layout import LAYOUT, VERSION, begin, check_layout, upgrade
from ldpsql.ledger.seals import Head, seal, verified
from ldpsql.system import synced

APPLICATION = 0x4C445053  # "LDPS"
_LOG = logging.getLogger("ldpsql")  # without a handler, Python writes warnings to stderr
_PATIENCE = 120.0  # seconds to wait for other writers


def create(path: Path, policy: str, at: int) -> None:
    """Make a new ledger with a policy, and log a warning; if another process makes one first, keep that one.

    The file gets its name when it is complete, so an empty file is never taken for a new ledger.

    Raises:
        LedgerUnwritable: if its folder does not exist or cannot be written.

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
    with _translated(), closing(_connect(path)) as db:
        db.execute("PRAGMA synchronous = FULL")
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION:
            raise LedgerDamaged("this file is not a ledger of ldpsql, or its beginning is lost", "restore it from a backup")
        if version == 1:
            _upgrade(db)
        elif version != VERSION:
            newer = "upgrade ldpsql" if version > VERSION else "use the version of ldpsql that wrote it"
            raise LedgerVersion(f"the ledger has layout {version}, and this version of ldpsql reads layout {VERSION}", newer)
        check_layout(db)
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


def _upgrade(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA temp_store = MEMORY")  # pseudonyms go into no other file
    with _transaction(db, "IMMEDIATE"):
        if db.execute("PRAGMA user_version").fetchone() == (1,):  # no other process did it meanwhile
            upgrade(db)


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


def _connect(path: Path) -> sqlite3.Connection:
    uri = path.absolute().as_uri() + "?mode=rw"  # never make a missing file
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_PATIENCE)


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
