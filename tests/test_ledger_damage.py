"""A ledger that was damaged, or edited by another program, is found out; one of another layout is refused."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ldpsql.errors import BudgetExceeded, LedgerDamaged, LedgerVersion, UnknownRelease
from ldpsql.ledger import Ledger, Policy
from ldpsql.ledger.file import VERSION
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


@pytest.mark.parametrize("layout", [1, VERSION + 1])
def test_a_ledger_of_another_layout_is_refused_and_stays_as_it_is(tmp_path: Path, layout: int) -> None:
    fill(tmp_path / "ledger", "row")
    with closing(sqlite3.connect(tmp_path / "ledger")) as db, db:
        db.execute(f"PRAGMA user_version = {layout}")
    before = (tmp_path / "ledger").read_bytes()
    with pytest.raises(LedgerVersion, match=f"has layout {layout}"):
        Ledger.open(tmp_path / "ledger")
    assert (tmp_path / "ledger").read_bytes() == before
