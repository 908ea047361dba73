"""The tables of a ledger's file, and the upgrade of a file of 0.1.0."""

from __future__ import annotations

import os
import sqlite3
from functools import cache

import numpy as np

from ldpsql.engine.identity import UNIDENTIFIED
from ldpsql.errors import LedgerDamaged
from ldpsql.ledger.accounts import PERSON, store
from ldpsql.ledger.seals import KEY_SIZE, enter, seal, start

VERSION = 3  # 0.1.0 had 1; no release of ldpsql had 2
_RELEASES = """
    CREATE TABLE policy (
        id INTEGER PRIMARY KEY, at INTEGER NOT NULL, body TEXT NOT NULL, salt BLOB NOT NULL);
    CREATE TABLE release (
        id INTEGER PRIMARY KEY, token TEXT NOT NULL UNIQUE, identity TEXT NOT NULL, at INTEGER NOT NULL,
        dataset TEXT NOT NULL, part TEXT NOT NULL, destination TEXT NOT NULL,
        users INTEGER, reports INTEGER, published_at INTEGER{source});
    CREATE INDEX release_identity ON release (identity);
    CREATE TABLE charge (
        release INTEGER NOT NULL REFERENCES release (id), column_name TEXT NOT NULL, mechanism TEXT NOT NULL,
        claim TEXT NOT NULL, account INTEGER NOT NULL REFERENCES account (id),
        epsilon INTEGER NOT NULL, delta INTEGER NOT NULL);
"""
LAYOUT = f"""{_RELEASES.format(source=", source TEXT NOT NULL")}
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
FIRST_LAYOUT = f"""{_RELEASES.format(source="")}
    CREATE TABLE account (
        id INTEGER PRIMARY KEY, unit TEXT NOT NULL, dataset TEXT NOT NULL, part TEXT NOT NULL,
        column_group TEXT NOT NULL, currency TEXT NOT NULL, UNIQUE (unit, dataset, part, column_group, currency));
    CREATE TABLE spent (
        account INTEGER NOT NULL REFERENCES account (id), person BLOB NOT NULL, since INTEGER NOT NULL,
        epsilon INTEGER NOT NULL, delta INTEGER NOT NULL, epsilon_ever INTEGER NOT NULL, delta_ever INTEGER NOT NULL,
        PRIMARY KEY (account, person)) WITHOUT ROWID;
"""
_FIRST_ADDS_UP = """
    SELECT count(*) FROM (
        SELECT account, sum(c.epsilon * coalesce(r.reports, 1)) AS e, sum(c.delta * coalesce(r.reports, 1)) AS d
        FROM charge c JOIN release r ON r.id = c.release GROUP BY account) AS charged
    FULL JOIN (SELECT account, sum(epsilon_ever) AS e, sum(delta_ever) AS d FROM spent GROUP BY account) AS kept
    ON charged.account = kept.account WHERE charged.e IS NOT kept.e OR charged.d IS NOT kept.d"""
_FIRST_TABLES = ("policy", "release", "charge", "account", "spent")
_TABLES = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"


@cache
def _tables(layout: str) -> list[tuple[str, str, str]]:
    db = sqlite3.connect(":memory:")
    try:
        db.executescript(layout)
        return db.execute(_TABLES).fetchall()
    finally:
        db.close()


def check_layout(db: sqlite3.Connection, layout: str = LAYOUT) -> None:
    """Check that a file has exactly the tables of a layout.

    Raises:
        LedgerDamaged: if it has others.

    """
    if db.execute(_TABLES).fetchall() != _tables(layout):
        raise LedgerDamaged("the tables of the ledger are damaged", "restore it from a backup")


def upgrade(db: sqlite3.Connection) -> None:
    """Upgrade a ledger of layout 1 within a transaction; its rows are sealed as they are.

    Raises:
        LedgerDamaged: if it does not add up; then nothing is changed.

    """
    check_layout(db, FIRST_LAYOUT)
    whole = db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    if not whole or db.execute(_FIRST_ADDS_UP).fetchone() != (0,):
        raise LedgerDamaged("the ledger does not add up", "restore it from a backup, and release nothing before")
    _rebuild(db)
    (latest,) = db.execute("SELECT max(at) FROM (SELECT at FROM release UNION ALL SELECT at FROM policy)").fetchone()
    head = start(db, os.urandom(KEY_SIZE), latest)
    _fill_accounts(db)
    for token, published in db.execute("SELECT token, published_at FROM release ORDER BY id").fetchall():
        enter(db, token, "charged")
        enter(db, token, "drawn" if published is None else "published")  # layout 1 does not say whether reports have left
    seal(db, head)
    for table in _FIRST_TABLES:
        db.execute(f"DROP TABLE temp.first_{table}")
    db.execute(f"PRAGMA user_version = {VERSION}")


def _rebuild(db: sqlite3.Connection) -> None:
    """Copy the rows of the old tables into new ones, so that their definitions are exactly those of a new file."""
    for table in _FIRST_TABLES:
        db.execute(f"CREATE TEMP TABLE first_{table} AS SELECT * FROM main.{table}")  # noqa: S608  # constants
        db.execute(f"DROP TABLE main.{table}")
    for statement in LAYOUT.split(";"):  # executescript would commit
        db.execute(statement)
    for table, new in (("policy", ""), ("release", f", '{UNIDENTIFIED}'"), ("charge", "")):
        db.execute(f"INSERT INTO main.{table} SELECT *{new} FROM first_{table}")  # noqa: S608  # constants
    db.execute("INSERT INTO account (id, unit, dataset, part, column_group, currency) SELECT * FROM first_account")


def _fill_accounts(db: sqlite3.Connection) -> None:
    columns = "person, since, epsilon, delta, epsilon_ever, delta_ever"
    for (account,) in db.execute("SELECT id FROM account").fetchall():
        of_account = f"SELECT {columns} FROM first_spent WHERE account = ? ORDER BY person"  # noqa: S608  # constants
        store(db, account, np.array(db.execute(of_account, [account]).fetchall(), dtype=PERSON))


def begin(db: sqlite3.Connection, at: int) -> None:
    """Seal a file that holds only a policy."""
    seal(db, start(db, os.urandom(KEY_SIZE), at))
