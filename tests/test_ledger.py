"""The ledger: exact, all or nothing, on the disk before anything is drawn, and refusing whenever it cannot be sure."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sqlite3
import tempfile
import textwrap
import time
import warnings
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

import ldpsql
from ldpsql import Epsilon, KeepOrSpread, NotPrivate
from ldpsql.errors import (
    AlikeUsers,
    BudgetExceeded,
    InvalidParameter,
    LedgerDamaged,
    LedgerMissing,
    LedgerUnwritable,
    LedgerVersion,
    MissingValue,
    PolicyMismatch,
    UnknownRelease,
    WrongType,
)
from ldpsql.functions import registry
from ldpsql.ledger import Ledger, Policy
from ldpsql.ledger.entries import clock
from ldpsql.ledger.file import load, reading, store, writing
from tests import commands, spending
from tests.spending import krr


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.ledger"


def spent(ledger: Ledger) -> list[str]:
    return [balance.spent for balance in ledger.balances()]


def test_a_hundred_hundredths_fit_into_one_and_no_more(path: Path) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=1))
    for number in range(100):
        ledger.charge("people", {"city": krr("0.01")}, f"reports {number}")
    with pytest.raises(BudgetExceeded, match=r"costs each row epsilon 0\.01, and 0 of 1 is left"):
        ledger.charge("people", {"city": krr("0.01")}, "one more")
    assert spent(ledger) == ["1"]
    ledger.check()


def test_costs_are_rounded_up_and_budgets_down(path: Path) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget="0.0000029"))
    ledger.charge("people", {"city": krr("0.000000000001")}, "one")
    assert spent(ledger) == ["0.000001"]
    with pytest.raises(BudgetExceeded):
        ledger.charge("people", {"city": krr("0.000001000001")}, "two")
    assert Policy(epsilon_budget=1, delta_budget="0.0000000000000019").allowance("epsilon").delta == 1


def test_columns_of_one_group_add_up_and_groups_do_not(path: Path) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=1, column_groups={"place": ("city", "zip")}))
    ledger.charge("people", {"city": krr("0.6"), "age": krr("0.7")}, "one")
    with pytest.raises(BudgetExceeded):
        ledger.charge("people", {"zip": krr("0.6")}, "two")
    with pytest.raises(BudgetExceeded):  # what no group names shares a group
        ledger.charge("people", {"income": krr("0.6")}, "three")
    assert {b.column_group: b.spent for b in ledger.balances()} == {"place": "0.6", "all": "0.7"}


def test_a_column_stays_in_its_group_in_lowercase_and_uppercase_letters(path: Path) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=1, column_groups={"home": ("City",)}))
    ledger.charge("people", {"city": krr("1")}, "one")
    for column in ("CITY", "City", "city"):
        with pytest.raises(BudgetExceeded):
            ledger.charge("people", {column: krr("1")}, column)
    assert [b.column_group for b in ledger.balances()] == ["home"]
    with pytest.raises(InvalidParameter, match="two groups"):
        Policy(epsilon_budget=1, column_groups={"home": ("city",), "work": ("CITY",)})


def test_parts_of_a_dataset_are_other_people(path: Path) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=1))
    for day in ("monday", "tuesday"):
        ledger.charge("people", {"city": krr("1")}, "reports", part=day)
    with pytest.raises(BudgetExceeded):
        ledger.charge("people", {"city": krr("1")}, "elsewhere", part="monday")


def test_users_are_charged_for_each_of_their_rows_wherever_they_are(path: Path) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=2, privacy_unit="user_id"))
    ledger.charge("clicks", {"city": krr("1")}, "one", users=["ann", "bob", "bob"])
    with pytest.raises(BudgetExceeded, match=r"costs 1 of the users epsilon 1, and 0 of 2 is left"):
        ledger.charge("visits", {"city": krr("1")}, "two", users=pa.array(["ann", "bob"]))
    ledger.charge("visits", {"city": krr("1")}, "three", users=["ann", "cleo"])  # nobody was charged for the refused one
    ledger.check()


def test_a_refusal_says_what_all_columns_cost_and_what_is_left_before_them(path: Path) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=3, privacy_unit="user_id", column_groups={"home": ("city", "zip")}))
    ledger.publish(ledger.charge("visits", {"city": krr("2"), "age": krr("2")}, "one", users=["ann"]))
    with pytest.raises(BudgetExceeded, match=r"costs 1 of the users epsilon 2, and 1 of 3 is left"):
        ledger.charge("visits", {"age": krr("0.5"), "city": krr("1"), "zip": krr("1")}, "two", users=["ann", "bob"])
    assert sorted(balance.spent for balance in ledger.balances()) == ["2", "2"]
    ledger.charge("visits", {"age": krr("0.5"), "city": krr("0.5"), "zip": krr("0.5")}, "three", users=["ann", "bob"])
    assert sorted(balance.spent for balance in ledger.balances()) == ["2.5", "3"]
    ledger.check()


def test_a_refusal_says_what_it_costs_those_who_cannot_afford_it(path: Path) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=3, privacy_unit="user_id"))
    users = [f"canary{user}" for user in range(1, 15) for _ in range(user)]  # of 1 to 14 rows
    for epsilon, asked, spend, refused, left in (
        ("1", users, [], "11 of the users epsilon up to 14", "3 of 3"),
        ("1", ["canary0", *users[-14:]], [], "1 of the users epsilon 14", "3 of 3"),
        ("3", ["canary1", "canary2"], ["canary1", "canary2", "canary2"], "2 of the users epsilon 3", "as little as 1 of 3"),
    ):
        if spend:
            ledger.publish(ledger.charge("visits", {"city": krr("1")}, "reports", users=spend))
        with pytest.raises(BudgetExceeded) as error:
            ledger.charge("clicks", {"city": krr(epsilon)}, "reports", users=asked)
        assert error.value.message == f"this release costs {refused}, and {left} is left"
        assert ("one row of all rows of a user, or leave these users out" in error.value.hint) is (not spend)
        assert "canary" not in str(error.value)


def test_the_file_holds_no_user_id(path: Path) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=2, privacy_unit="user_id"))
    ledger.charge("clicks", {"city": krr("1")}, "one", users=["ann.canary@example.org", "bob"])
    assert not any(b"canary" in file.read_bytes() for file in path.parent.iterdir())


def test_whole_numbers_of_any_type_are_user_ids(path: Path) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=2, privacy_unit="user_id"))
    with ldpsql.connect() as con:
        for number, kind in enumerate(("HUGEINT", "UHUGEINT", "DECIMAL(38, 0)", "UTINYINT", "VARCHAR")):
            users = con.sql(f"SELECT (7 + i)::{kind} FROM range(2) t(i)").to_arrow_table().column(0)
            ledger.charge("people", {"city": krr("0.4")}, f"reports {number}", users=users)
        large = con.sql("SELECT 170141183460469231731687303715884105727").to_arrow_table().column(0)
        ledger.charge("people", {"city": krr("2")}, "large", users=large)
        cents = con.sql("SELECT 7.25::DECIMAL(10, 2)").to_arrow_table().column(0)
        with pytest.raises(WrongType, match="whole numbers"):
            ledger.charge("people", {"city": krr("0.1")}, "cents", users=cents)
    (balance,) = ledger.balances()
    assert (balance.people, balance.spent) == (3, "2")  # 7 and 8 are the same users in every type


@pytest.mark.parametrize(
    ("users", "error"), [(["a", None], MissingValue), ([1.5], WrongType), ("ann", WrongType), ([], WrongType)]
)
def test_user_ids_that_cannot_be_told_apart_are_refused(path: Path, users: object, error: type[Exception]) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=2, privacy_unit="user_id"))
    with pytest.raises(error):
        ledger.charge("clicks", {"city": krr("1")}, "one", users=users)
    assert ledger.history() == []


def test_a_ledger_of_users_needs_users_and_one_of_rows_takes_none(path: Path) -> None:
    with pytest.raises(InvalidParameter, match="charges by row"):
        Ledger.open(path, Policy(epsilon_budget=2)).charge("clicks", {"city": krr("1")}, "one", users=["ann"])
    with pytest.raises(InvalidParameter, match="charges by user_id"):
        Ledger.open(path.with_name("other"), Policy(epsilon_budget=2, privacy_unit="user_id")).charge(
            "clicks", {"city": krr("1")}, "one"
        )


def test_the_same_release_is_stored_and_free(path: Path) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=3))
    with ledger.release("people", {"city": krr("1")}, "reports") as first:
        assert not first.stored
    with ledger.release("people", {"city": krr("1")}, "reports") as second:
        assert second.stored
        assert second.token == first.token
    assert spent(ledger) == ["1"]
    for other in ({"city": krr("0.5")}, {"town": krr("1")}):
        assert not ledger.charge("people", other, "reports").stored
    assert not ledger.charge("people", {"city": krr("0.1")}, "elsewhere").stored
    assert not ledger.charge("people", {"city": krr("0.1")}, "reports", again=True).stored


def test_the_same_release_of_other_people_is_another_one(path: Path) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=1, privacy_unit="id"))
    ledger.publish(ledger.charge("people", {"city": krr("1")}, "reports", users=["ann"]))
    assert ledger.charge("people", {"city": krr("1")}, "reports", users=["ann"]).stored
    assert not ledger.charge("people", {"city": krr("1")}, "reports", users=["bob"]).stored
    (balance,) = ledger.balances()
    assert (balance.people, balance.spent) == (2, "1")
    with pytest.raises(BudgetExceeded):  # ann has spent all of hers
        ledger.charge("people", {"city": krr("1")}, "reports", users=["ann", "bob", "cleo"])


def test_a_release_that_was_not_published_is_charged_again_unless_it_is_resumed(path: Path) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=3))
    with pytest.raises(ZeroDivisionError), ledger.release("people", {"city": krr("1")}, "reports"):
        raise ZeroDivisionError
    (lost,) = ledger.history()
    assert lost["state"] == "charged"
    assert ledger.charge("people", {"city": krr("1")}, "reports", resume=True).token == lost["release"]
    assert spent(ledger) == ["1"]
    assert ledger.charge("people", {"city": krr("1")}, "reports").token != lost["release"]
    assert spent(ledger) == ["2"]


def test_a_clock_that_goes_back_opens_no_window(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=1, budget_window="1 hour"))
    ledger.charge("people", {"city": krr("1")}, "one")
    shift_clock(monkeypatch, hours=-100)
    with pytest.raises(BudgetExceeded):
        ledger.charge("people", {"city": krr("1")}, "two")


def test_a_refusal_explains_a_clock_that_once_ran_ahead(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=1, budget_window="1 hour"))
    with monkeypatch.context() as ahead:
        shift_clock(ahead, hours=1000)
        ledger.charge("people", {"city": krr("1")}, "one")
        with pytest.raises(BudgetExceeded) as usual:
            ledger.charge("people", {"city": krr("1")}, "two")
    assert "clock" not in str(usual.value)
    with pytest.raises(BudgetExceeded, match="later than this machine's clock says"):
        ledger.charge("people", {"city": krr("1")}, "two")


def shift_clock(monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    """Let the ledger's clock run before or behind the machine's."""
    monkeypatch.setattr("ldpsql.ledger.entries.clock", lambda: clock() + hours * 3600 * 10**6)


def test_delta_and_distance_have_budgets_of_their_own(path: Path) -> None:
    gaussian = registry().mechanism("gaussian(epsilon=1, delta=0.000001, low=0, high=1)")
    planar = registry().mechanism("planar_geometric(epsilon=1, columns=3, rows=3, side=1)")
    ledger = Ledger.open(path, Policy(epsilon_budget=3))
    with pytest.raises(BudgetExceeded, match="delta"):
        ledger.charge("people", {"age": gaussian}, "one")
    with pytest.raises(BudgetExceeded, match="per unit of distance"):
        ledger.charge("people", {"place": planar}, "one")
    generous = Policy(epsilon_budget=3, delta_budget="0.000001", distance_budget=1)
    ledger.adopt(generous)
    ledger.charge("people", {"age": gaussian, "place": planar}, "one")
    with pytest.raises(BudgetExceeded, match="delta"):
        ledger.charge("people", {"age": gaussian}, "two")
    assert [entry["epsilon_budget"] for entry in ledger.policies()] == ["3", "3"]


def test_a_report_must_not_cost_more_than_the_maximum(path: Path) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=9, max_epsilon_per_report=2))
    with pytest.raises(BudgetExceeded, match="has epsilon 3, and at most 2 is allowed"):
        ledger.charge("people", {"city": krr("3")}, "one")


def test_another_policy_is_not_taken_in_passing(path: Path) -> None:
    Ledger.open(path, Policy(epsilon_budget=1))
    with pytest.raises(PolicyMismatch):
        Ledger.open(path, Policy(epsilon_budget=2))
    assert Ledger.open(path).policy == Policy(epsilon_budget="1.0")


@pytest.mark.parametrize("changed", [{"privacy_unit": "user_id"}, {"column_groups": {"place": ["city"]}}])
def test_a_policy_that_would_forget_what_was_spent_is_refused(path: Path, changed: dict[str, object]) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=1))
    ledger.charge("people", {"city": krr("1")}, "one")
    with pytest.raises(PolicyMismatch, match="would forget"):
        ledger.adopt(Policy(epsilon_budget=1, **changed))


def test_a_plugin_that_claims_less_than_it_does_is_not_charged(path: Path) -> None:
    class Cheap(type(krr("1"))):  # type: ignore[misc]  # a mechanism that is found at run time
        name = "cheap"

        def channel(self) -> KeepOrSpread:
            return KeepOrSpread.within(2, Epsilon.parse("3").exp_below())

    ledger = Ledger.open(path, Policy(epsilon_budget=9))
    with pytest.raises(NotPrivate):
        ledger.charge("people", {"city": Cheap(epsilon=1, domain=["a", "b"])}, "one")
    assert ledger.history() == []


def test_there_is_no_ledger_without_a_policy(path: Path) -> None:
    with pytest.raises(LedgerMissing):
        Ledger.open(path)
    assert not path.exists()


def damaged(path: Path, kind: str) -> None:
    data = bytearray(path.read_bytes())
    if kind == "emptied":
        data = bytearray()
    elif kind == "cut off":
        del data[len(data) // 2 :]
    elif kind == "overwritten":
        data[100:] = b"x" * (len(data) - 100)
    elif kind == "not a ledger":
        data[:] = b"id,city\n1,Lima\n" * 1000
    path.write_bytes(data)


@pytest.mark.parametrize("kind", ["emptied", "cut off", "overwritten", "not a ledger"])
def test_a_damaged_ledger_charges_nothing(path: Path, kind: str) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=9))
    ledger.charge("people", {"city": krr("1")}, "one")
    damaged(path, kind)
    for act in (lambda: ledger.charge("people", {"city": krr("1")}, "two"), ledger.check):
        with pytest.raises(LedgerDamaged) as caught:
            act()
        assert "Lima" not in str(caught.value)
    with pytest.raises(LedgerDamaged):
        Ledger.open(path, Policy(epsilon_budget=9))


def test_check_finds_an_account_that_was_lowered(path: Path) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=9))
    ledger.charge("people", {"city": krr("1")}, "one")
    ledger.check()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE spent SET people = zeroblob(length(people))")
    db.close()
    with pytest.raises(LedgerDamaged, match="does not add up"):
        ledger.check()


@pytest.mark.parametrize("field", ["epsilon_ever", "delta_ever"])
def test_check_compares_what_everybody_ever_spent_with_the_charges(path: Path, field: str) -> None:
    """A program that knows the seals writes another sum: every row is as it was sealed, and only the sums tell."""
    ledger = Ledger.open(path, Policy(epsilon_budget=9))
    ledger.charge("people", {"city": krr("1")}, "one")
    with reading(path) as db, writing(db):
        people = load(db, 1).copy()
        people[field] += 1
        store(db, 1, people)
    with pytest.raises(LedgerDamaged, match="people"):
        ledger.check()


@pytest.mark.parametrize("version", [0, 2, 4])
def test_a_ledger_of_another_layout_is_refused(path: Path, version: int) -> None:
    Ledger.open(path, Policy(epsilon_budget=9))
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {version}")
    db.close()
    with pytest.raises(LedgerVersion, match=f"layout {version}"):
        Ledger.open(path)


def test_data_that_the_ledger_does_not_have_is_reported(path: Path) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=9))
    backup = path.with_name("backup")
    shutil.copy(path, backup)
    release = ledger.charge("people", {"city": krr("1")}, "one")
    assert ledger.release_of(release.token) == release
    with pytest.raises(UnknownRelease):  # the ledger was restored from an old backup
        Ledger.open(backup).release_of(release.token)
    with pytest.raises(UnknownRelease):
        Ledger.open(backup).publish(release)


CHILD = """
    import os, resource, signal, sys
    from ldpsql.errors import LedgerError
    from ldpsql.ledger import Ledger
    from ldpsql.registry.registry import registry
    krr = registry().mechanism("krr(epsilon=0.0001, domain=['a', 'b'])")
    ledger = Ledger.open(sys.argv[1])
    {prepare}
    for number in range(2000):
        try:
            ledger.charge("people" * 200, {{"city": krr}}, f"reports {{number}}")
        except LedgerError as error:
            print(type(error).__name__, error)
            break
    """


def in_child(path: Path, prepare: str) -> str:
    done = commands.python(textwrap.dedent(CHILD).format(prepare=prepare), str(path))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_full_disk_is_reported_and_charges_nothing(path: Path) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=9))
    size = path.stat().st_size + 100_000
    limit = f"signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))"
    assert in_child(path, limit).startswith("LedgerUnwritable")
    ledger.check()
    assert 0 < len(ledger.history()) < 2000


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_reported() -> None:
    with tempfile.TemporaryDirectory() as folder:  # unlike pytest's, one that everybody may enter
        path = Path(folder) / "budget.ledger"
        Ledger.open(path, Policy(epsilon_budget=9))
        path.chmod(0o444)
        path.parent.chmod(0o555)
        as_somebody = "os.geteuid() or (os.setgid(65534), os.setuid(65534))"  # root may write anywhere
        assert in_child(path, as_somebody).startswith("LedgerUnwritable")
        path.parent.chmod(0o755)


def test_a_place_without_a_folder_is_reported(path: Path) -> None:
    with pytest.raises(LedgerUnwritable):
        Ledger.open(path.parent / "nowhere" / "ledger", Policy(epsilon_budget=9))


@pytest.mark.slow
@pytest.mark.parametrize(("start", "count"), [("fork", 4), ("spawn", 2)])  # a process that is spawned loads everything itself
def test_processes_never_overspend(path: Path, start: Literal["fork", "spawn"], count: int) -> None:
    if start == "fork":
        Ledger.open(path, Policy(epsilon_budget=1))  # a ledger that was used before the fork
    context: Any = multiprocessing.get_context(start)
    workers = [context.Process(target=spending.spend_alone, args=(path, number, 160 // count)) for number in range(1, count)]
    for worker in workers:
        worker.start()
    spending.spend_alone(path, 0, 160 // count)
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    ledger = Ledger.open(path)
    assert spent(ledger) == ["1"]
    assert [row["state"] for row in ledger.history()] == ["published"] * 100
    ledger.check()


def test_a_hundred_thousand_users_are_one_transaction(path: Path) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=1, privacy_unit="user_id"))
    users = pa.array(range(100_000))
    started = time.process_time()
    ledger.charge("people", {"city": krr("0.5")}, "one", users=users)
    assert time.process_time() - started < 5  # about 0.3 s
    (balance,) = ledger.balances()
    assert (balance.people, balance.spent, balance.remaining) == (100_000, "0.5", "0.5")
    with pytest.raises(BudgetExceeded, match="costs 100000 of the users"):
        ledger.charge("people", {"city": krr("0.6")}, "two", users=users)


def test_costs_are_whole_numbers(path: Path) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=9))
    ledger.charge("people", {"city": krr("0.1000001")}, "one")
    assert [balance.spent for balance in ledger.balances()] == ["0.100001"]


def test_the_ledger_is_only_its_owners(path: Path) -> None:
    Ledger.open(path, Policy(epsilon_budget=1))
    assert os.name == "nt" or path.stat().st_mode & 0o077 == 0
    assert [file.name for file in path.parent.iterdir()] == [path.name]  # nothing is left of making it


@pytest.mark.parametrize(
    ("ids", "alike"),
    [(["7", "07"], 0), (["a", "a "], 1), (["\u00e9", "e\u0301", " \u00e9"], 2), ([" a", "b"], 0), ([7, 8], 0)],
)
def test_ids_are_users_by_their_bytes_and_those_that_look_the_same_are_warned_of(
    tmp_path: Path, ids: list[Any], alike: int
) -> None:
    ledger = Ledger.open(tmp_path / "users", Policy(epsilon_budget=2, privacy_unit="id"))
    columns = {"city": registry().mechanism("krr(1, ['a', 'b'])")}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ledger.charge("people", columns, "reports", users=ids)
    messages = [str(one.message) for one in caught if one.category is AlikeUsers]
    assert [int(message.split()[0]) for message in messages] == ([alike] if alike else [])
    assert not any(str(one) in message for message in messages for one in ids if len(str(one)) > 1)
    assert ledger.history()[0]["users"] == len(ids)
