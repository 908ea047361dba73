"""The seals of a ledger: keyed hashes that reveal damage, and edits by other programs, before anything is charged.

    head <- policies, accounts <- buckets of people
    head <- last entry <- ... <- first entry; an entry is a release that was charged with its charges, that was drawn and about
                                              to be published, that was published, or that was given back

The seal of the head covers every policy and every account, the seal of an account its buckets of people, the seal of a bucket
its people. Each entry is sealed together with the entry before it. So nothing can be changed, left out or put in without the
key. The key is in the file, since it must be wherever the ledger is; anyone who may write the file can replace all of it.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, TypeAlias, get_args

from ldpsql.errors import LedgerDamaged

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
        head.entries, head.link = number, _link(head, number, state, row, charges)
        head.at = max(head.at, row[3], row[9] or 0)
        db.execute("UPDATE entry SET link = ? WHERE id = ?", [head.link, number])
    (latest,) = db.execute("SELECT max(at) FROM policy").fetchone()
    head.at = max(head.at, latest)
    changed = [head.at, head.entries, head.link, head.seal(db)]
    db.execute("UPDATE head SET at = ?, entries = ?, link = ?, seal = ?", changed)


def _link(head: Head, number: int, state: State, release: Sequence[Any], charges: list[tuple[Any, ...]]) -> bytes:
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
        if state not in get_args(State) or link != _link(Head(key, 0, 0, before), at, state, row, charges):
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
        walk.link, walk.entries = _link(walk, number, state, releases[release], charges.get(release, [])), number
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
