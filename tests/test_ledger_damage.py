"""A ledger that was damaged, or edited by another program, is found out; one of 0.1.0 is taken over as it is."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from ldpsql.errors import BudgetExceeded, LedgerDamaged, LedgerError, UnfinishedRun, UnknownRelease
from ldpsql.ledger import Ledger, Policy
from ldpsql.ledger.file import FIRST_LAYOUT
from ldpsql.ledger.people import People
from tests.stress.damage import edit, edits, fill, flips, krr, meaning, outcome, users_of

UNITS = pytest.mark.parametrize("unit", ["row", "user_id"])


@UNITS
def test_any_edit_of_any_field_of_any_row_is_found(tmp_path: Path, unit: str) -> None:
    whole, copy = tmp_path / "whole", tmp_path / "copy"
    fill(whole, unit)
    before, tried = meaning(whole), 0
    for statement, values in random.sample(list(edits(whole)), 25):
        shutil.copy(whole, copy)
        if edit(copy, statement, values):
            tried += 1
            assert outcome(copy, unit, before) == "found", (statement, values)
    assert tried > 5


@UNITS
def test_any_flipped_bit_is_found_or_harmless(tmp_path: Path, unit: str) -> None:
    fill(tmp_path / "whole", unit)
    before = meaning(tmp_path / "whole")
    for number, data in enumerate(flips((tmp_path / "whole").read_bytes(), 25)):
        copy = tmp_path / str(number)
        copy.write_bytes(data)
        assert outcome(copy, unit, before) in ("found", "harmless")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE policy SET salt = zeroblob(32)",
        "UPDATE policy SET body = replace(body, '\"2\"', '\"9\"')",
        "UPDATE account SET column_group = 'other'",
        "UPDATE account SET dataset = 'others', part = 'monday'",
        "DELETE FROM account",
        "DELETE FROM spent",
        "DELETE FROM bucket",
        "DELETE FROM spent; DELETE FROM bucket",
        "DELETE FROM spent; DELETE FROM bucket; DELETE FROM account",
        "UPDATE spent SET people = zeroblob(length(people))",
        "UPDATE head SET at = at + 1000000000000000",
        "UPDATE head SET key = zeroblob(32)",
        "DELETE FROM head",
        "DROP INDEX release_identity",
    ],
)
@UNITS
def test_what_a_charge_relies_on_is_checked_before_it(tmp_path: Path, unit: str, statement: str) -> None:
    fill(tmp_path / "ledger", unit)
    ledger = Ledger.open(tmp_path / "ledger")
    with sqlite3.connect(ledger.path) as db:
        db.executescript(statement)
    db.close()
    for charge in (lambda: ledger.charge("people", {"city": krr("0.1")}, "new", users=users_of(unit)), ledger.check):
        with pytest.raises(LedgerDamaged):
            charge()


@pytest.mark.parametrize("name", ["people", "warehouse.main.people"])
def test_no_damaged_index_hides_an_account_that_may_be_of_the_same_people(tmp_path: Path, name: str) -> None:
    fill(tmp_path / "ledger", "row")
    data = (tmp_path / "ledger").read_bytes()
    places = [at for at in range(len(data)) if data.startswith(b"rowpeople", at)]
    assert len(places) == 2  # the row and its index
    for at in places:
        (tmp_path / "ledger").write_bytes(data[:at] + b"rox" + data[at + 3 :])
        with pytest.raises((LedgerDamaged, BudgetExceeded)):
            Ledger.open(tmp_path / "ledger").charge(name, {"city": krr("1")}, "elsewhere")


def test_a_release_that_was_made_unpublished_is_not_taken_up_again(tmp_path: Path) -> None:
    fill(tmp_path / "ledger", "row")
    ledger = Ledger.open(tmp_path / "ledger")
    with sqlite3.connect(ledger.path) as db:
        db.execute("UPDATE release SET published_at = NULL")
        db.execute("DELETE FROM entry WHERE state = 'published'")
    db.close()
    with pytest.raises(LedgerDamaged):
        ledger.charge("people", {"city": krr("0.5")}, "reports 0", resume=True)
    with pytest.raises(LedgerDamaged):
        ledger.unfinished("people", {"city": krr("0.5")}, "reports 0")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE release SET destination = 'elsewhere' WHERE token = ?",
        "UPDATE release SET published_at = 1 WHERE token = ?",
        "UPDATE charge SET epsilon = 1 WHERE release = (SELECT id FROM release WHERE token = ?)",
        "DELETE FROM entry WHERE release = (SELECT id FROM release WHERE token = ?)",
    ],
)
@pytest.mark.parametrize("use", ["drawn", "publish", "release_of"])
def test_a_release_is_compared_with_its_seals_before_it_is_published_or_returned(
    tmp_path: Path, use: str, statement: str
) -> None:
    fill(tmp_path / "ledger", "row")
    ledger = Ledger.open(tmp_path / "ledger")
    release = ledger.charge("people", {"city": krr("0.5")}, "reports 2", resume=True)
    with sqlite3.connect(ledger.path) as db:
        db.execute(statement, [release.token])
    db.close()
    with pytest.raises(LedgerDamaged):
        getattr(ledger, use)(release if use == "publish" else release.token)


def test_a_damaged_index_of_tokens_hides_no_release(tmp_path: Path) -> None:
    """The token is in the file twice: in the row, whose damage is found, and in the index, on which nothing relies."""
    fill(tmp_path / "ledger", "row")
    ledger = Ledger.open(tmp_path / "ledger")
    release = ledger.charge("people", {"city": krr("0.5")}, "reports 2", resume=True)
    data, token, kinds = ledger.path.read_bytes(), release.token.encode(), []
    places = [at for at in range(len(data)) if data.startswith(token, at)]
    assert len(places) == 2
    for at in places:
        ledger.path.write_bytes(data[:at] + token[::-1] + data[at + len(token) :])
        try:
            assert ledger.release_of(release.token) == release
            assert ledger.publish(release).stored
            kinds.append("index")
        except (LedgerDamaged, UnknownRelease):
            kinds.append("row")
            with pytest.raises(LedgerDamaged):
                ledger.release_of(release.token)
    assert sorted(kinds) == ["index", "row"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE charge SET column_name = 'other'",
        "DELETE FROM charge",
        "DELETE FROM charge; DELETE FROM entry; DELETE FROM release",
    ],
)
def test_a_policy_is_adopted_only_over_charges_that_are_as_they_were_written(tmp_path: Path, statement: str) -> None:
    fill(tmp_path / "ledger", "row")
    ledger = Ledger.open(tmp_path / "ledger")
    with sqlite3.connect(ledger.path) as db:
        db.executescript(statement)
    db.close()
    with pytest.raises(LedgerDamaged):
        ledger.adopt(Policy(epsilon_budget=9))
    assert Ledger.open(ledger.path).policy == ledger.policy


@pytest.mark.parametrize("read", ["check", "history", "balances", "policies"])
@pytest.mark.parametrize("edited", ["release SET dataset", "account SET dataset", "policy SET body", "release SET at"])
def test_text_that_is_none_is_a_damaged_ledger(tmp_path: Path, read: str, edited: str) -> None:
    fill(tmp_path / "ledger", "row")
    ledger = Ledger.open(tmp_path / "ledger")
    with sqlite3.connect(ledger.path) as db:
        db.execute(f"UPDATE {edited} = CAST(x'ff' AS TEXT)")
    db.close()
    untouched = edited.startswith("release") and read in ("balances", "policies")
    if untouched:
        getattr(ledger, read)()
    else:
        with pytest.raises(LedgerDamaged):
            getattr(ledger, read)()


def first_ledger(path: Path) -> None:
    """Write a ledger as 0.1.0 did: two of three users have spent 1.5 of 2."""
    with sqlite3.connect(path) as db:
        db.executescript(f"{FIRST_LAYOUT} PRAGMA application_id = {0x4C445053}; PRAGMA user_version = 1;")
        policy = '{"epsilon_budget": "2", "privacy_unit": "user_id"}'
        db.execute("INSERT INTO policy VALUES (1, 1000000, ?, ?)", [policy, bytes(range(32))])
        db.execute("INSERT INTO account VALUES (7, 'user_id', '', '', 'all', 'epsilon')")
        rows: list[tuple[Any, ...]] = [("a", "one", 3, 500_000, 3000000), ("b", "two", 2, 1_000_000, None)]
        for number, (token, destination, people, epsilon, published) in enumerate(rows, 1):
            release = [number, token, f"identity {token}", 2000000, "people", "", destination, people, people, published]
            db.execute("INSERT INTO release VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", release)
            db.execute("INSERT INTO charge VALUES (?, 'city', 'krr', 'claim', 7, ?, 0)", [number, epsilon])
        for pseudonym, spent in zip(pseudonyms("ann", "bob", "cleo"), (1_500_000, 1_500_000, 500_000), strict=True):
            db.execute("INSERT INTO spent VALUES (7, ?, 2000000, ?, 0, ?, 0)", [pseudonym, spent, spent])
    db.close()


def pseudonyms(*users: str) -> list[bytes]:
    return [People.of([user], bytes(range(32))).pseudonyms.tobytes() for user in users]


def test_a_ledger_of_0_1_0_is_taken_over_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    first_ledger(path)
    ledger = Ledger.open(path)
    ledger.check()
    assert ledger.policy == Policy(epsilon_budget=2, privacy_unit="user_id")
    assert [(row["release"], row["epsilon"], row["state"]) for row in ledger.history()] == [
        ("a", "0.5", "published"),
        ("b", "1", "charged"),
    ]
    (balance,) = ledger.balances()
    assert (balance.people, balance.spent, balance.remaining) == (3, "1.5", "0.5")
    for user in ("ann", "bob"):
        with pytest.raises(BudgetExceeded, match=r"0\.5 of 2 is left"):
            ledger.charge("people", {"city": krr("1")}, "three", users=[user])
    ledger.charge("people", {"city": krr("1.5")}, "three", users=["cleo"])
    ledger.check()
    with pytest.raises(UnfinishedRun):  # 0.1.0 did not write down whether reports had left
        ledger.drawn("b", once=True)


def test_a_ledger_of_0_1_0_that_does_not_add_up_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    first_ledger(path)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE spent SET epsilon = 0, epsilon_ever = 0")
    db.close()
    before = path.read_bytes()
    with pytest.raises(LedgerDamaged, match="does not add up"):
        Ledger.open(path)
    assert path.read_bytes() == before


def test_layouts_that_only_claim_to_be_old_are_refused(tmp_path: Path) -> None:
    fill(tmp_path / "ledger", "row")
    with sqlite3.connect(tmp_path / "ledger") as db:
        db.execute("PRAGMA user_version = 1")
    db.close()
    with pytest.raises(LedgerError):
        Ledger.open(tmp_path / "ledger")
