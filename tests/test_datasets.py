"""One budget for one dataset, however it is spelled, and the people who are charged are those whose reports are published."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql import Charge, perturb_copy, perturb_table, privic
from ldpsql.bulk.orders import Drawing
from ldpsql.bulk.staging import Staging
from ldpsql.engine.identity import alike
from ldpsql.errors import (
    BudgetExceeded,
    DestinationExists,
    LedgerUnwritable,
    NotReleased,
    PolicyMismatch,
    PrivacyLeakWarning,
    SourceRefused,
    UnfinishedRun,
    UnknownRelease,
)
from ldpsql.ledger import Ledger, Policy, Release
from ldpsql.ledger.people import digest, others, together

CITY = "krr(epsilon=1, domain=['Lima', 'Oslo'])"
COLUMNS = {"city": CITY}
SAME = [
    "people",
    "PEOPLE",
    "main.people",
    '"people"',
    "wh.people",
    'wh.main."People"',
    "seen",
    "SEEN",
    "none_of_them",
    "joined",
]


@pytest.fixture
def con(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DuckDBPyConnection]:
    """Give a database in a file, with a table of 100 people and views that read it."""
    monkeypatch.chdir(tmp_path)
    with duckdb.connect("wh.duckdb") as con:
        con.execute("""
            CREATE TABLE people AS SELECT i AS id, 'Lima' AS city FROM range(100) t(i);
            CREATE VIEW seen AS FROM people;
            CREATE VIEW none_of_them AS FROM seen WHERE false;
            CREATE VIEW joined AS SELECT id, city FROM range(1000) r(id) LEFT JOIN query_table('seen') USING (id);
            COPY people TO 'people.parquet';
            CREATE VIEW stored AS FROM 'people.parquet'""")
        yield con


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "budget.ledger", Policy(epsilon_budget=2))


@pytest.fixture
def users(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "users.ledger", Policy(epsilon_budget=9, privacy_unit="id"))


def draw(con: DuckDBPyConnection, dataset: str, destination: str, **options: Any) -> bool:
    with ldpsql.release(
        con, dataset, {"city": f"ldp.{CITY.replace('epsilon=', '').replace('domain=', '')}"}, destination, **options
    ) as r:
        return r.stored


# --- one budget, however it is spelled ---


def spends_one_budget(con: DuckDBPyConnection, folder: Path, spellings: Sequence[str]) -> None:
    """Draw once by each spelling, which is all that one budget allows; then none of them draws."""
    ledger = Ledger.open(folder / "spelled.ledger", Policy(epsilon_budget=len(spellings)))
    ldpsql.attach(con, ledger=ledger)
    for number, name in enumerate(spellings):
        draw(con, name, f"reports {number}")
    for name in spellings:
        with pytest.raises(BudgetExceeded):
            draw(con, name, "more")
    ledger.check()


def test_a_table_has_one_budget_however_it_is_spelled(con: DuckDBPyConnection, tmp_path: Path) -> None:
    spends_one_budget(con, tmp_path, SAME)


@pytest.mark.parametrize(
    ("mechanism", "left"),
    [
        ("joint_krr(1, {city: ['Lima', 'Oslo'], id: [0, 1], sex: ['f', 'm']})", {"home": "1", "self": "1"}),
        ("row(city=krr(0.5, ['Lima', 'Oslo']), id=krr(0.5, [0, 1]), sex=krr(0.75, ['f', 'm']))", {"home": "1", "self": "1.25"}),
        ("one_of(city=krr(1, ['Lima', 'Oslo']), id=krr(1, [0, 1]), sex=krr(1, ['f', 'm']))", {"home": "0", "self": "1"}),
    ],
)
def test_a_row_in_one_column_is_charged_to_the_groups_of_its_columns(
    tmp_path: Path, mechanism: str, left: dict[str, str]
) -> None:
    grouped = Policy(epsilon_budget=2, column_groups={"home": ("City", "id"), "self": ("sex",)})
    ledger = Ledger.open(tmp_path / "grouped.ledger", grouped)
    rows = pl.DataFrame({"person": [{"city": "Lima", "id": 1, "sex": "f"}] * 9})
    ldpsql.perturb_batches(rows, {"person": mechanism}, charge=Charge(ledger, "people")).read_all()
    assert {one.column_group: one.remaining for one in ledger.balances() if one.column_group != "all"} == left
    ledger.check()
    ledger.adopt(Policy(epsilon_budget=3, column_groups=grouped.column_groups))
    with pytest.raises(PolicyMismatch):
        ledger.adopt(Policy(epsilon_budget=3, column_groups={"home": ("city",), "self": ("sex", "id")}))


@pytest.mark.parametrize("name", ['"income/expenses"', '"a\\b.csv"'])
def test_a_table_whose_name_looks_like_a_path_is_a_table(con: DuckDBPyConnection, tmp_path: Path, name: str) -> None:
    ldpsql.attach(con)
    con.execute(f"CREATE TABLE {name} AS FROM people")
    perturb_table(con, name, '"out/reports"', COLUMNS)
    assert con.execute('FROM ldp.estimate("out/reports", city)').fetchall()
    with pytest.raises(duckdb.Error, match="LDP408"):
        con.execute("FROM ldp.estimate(\"out/reports\", city, ldp.krr(2, ['Lima', 'Oslo']))")
    spends_one_budget(con, tmp_path, [name, f"main.{name}", f"wh.main.{name}"])


def test_a_column_has_one_budget_however_its_name_is_written(con: DuckDBPyConnection, tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "grouped.ledger", Policy(epsilon_budget=1, column_groups={"home": ("city",)}))
    con.execute('CREATE VIEW spelled AS SELECT city AS "City" FROM people')
    ldpsql.attach(con, ledger=ledger)
    with ldpsql.release(con, "people", {"city": "ldp.krr(1, ['Lima', 'Oslo'])"}, "reports"):
        con.execute("CREATE TABLE reports AS SELECT ldp.perturb(city, ldp.krr(1, ['Lima', 'Oslo'])) AS city FROM people")
    with (
        pytest.raises(BudgetExceeded),
        ldpsql.release(con, "people", {"CITY": "ldp.krr(1, ['Lima', 'Oslo'])"}, "more"),
    ):
        pass
    with pytest.raises(BudgetExceeded):
        perturb_table(con, "spelled", "more", {"City": CITY}, charge=Charge(ledger, "spelled"))
    assert [balance.column_group for balance in ledger.balances()] == ["home"]


def test_a_charge_by_hand_and_a_release_share_the_budget(con: DuckDBPyConnection, tmp_path: Path) -> None:
    made_up = ["NEW PEOPLE", "New People", "new people"]
    ledger = Ledger.open(tmp_path / "by_hand.ledger", Policy(epsilon_budget=len(made_up + SAME)))
    for number, name in enumerate([*made_up, *SAME]):
        perturb_table(con, "people", f"reports {number}", COLUMNS, charge=Charge(ledger, name))
    for name in (*made_up, *SAME):
        with pytest.raises(BudgetExceeded):
            perturb_copy(con, "people", "more.parquet", COLUMNS, charge=Charge(ledger, name))
    ldpsql.attach(con, ledger=ledger)
    with pytest.raises(BudgetExceeded):
        draw(con, "people", "more")


def test_no_path_view_macro_or_url_gives_a_file_a_second_budget(con: DuckDBPyConnection, tmp_path: Path) -> None:
    os.symlink("people.parquet", "link.parquet")
    con.execute(f"""
        SET GLOBAL home_directory = '{tmp_path}'; CREATE VIEW "my view" AS FROM 'people.parquet';
        CREATE VIEW over AS FROM "my view"; CREATE SCHEMA s; CREATE VIEW s.same AS FROM 'people.parquet';
        CREATE MACRO path() AS 'people.parquet'; CREATE VIEW by_macro AS FROM read_parquet(path());
        CREATE VIEW computed AS FROM read_parquet('peo' || 'ple.parquet')""")
    paths = ["people.parquet", "./people.parquet", "*.parquet", "link.parquet", '"people.parquet"', "~/people.parquet"]
    absolute = [f"../{tmp_path.name}/people.parquet", f"file://{tmp_path}/people.parquet"]
    spends_one_budget(con, tmp_path, [*paths, *absolute, "stored", '"my view"', "over", "s.same", "by_macro", "computed"])


def test_a_file_that_is_found_in_another_folder_has_one_budget(con: DuckDBPyConnection, tmp_path: Path) -> None:
    (tmp_path / ".hidden").mkdir()
    con.execute(f"""
        COPY people TO '.hidden/inside.parquet'; SET GLOBAL file_search_path = '.,{tmp_path}/.hidden';
        CREATE VIEW found AS FROM 'inside.parquet'""")
    spends_one_budget(con, tmp_path, [f"{tmp_path}/.hidden/*.parquet", "found"])


def test_every_way_to_perturb_reads_the_hidden_files_that_duckdb_reads(con: DuckDBPyConnection, tmp_path: Path) -> None:
    (tmp_path / "days" / ".old").mkdir(parents=True)
    for file in ("days/a.parquet", "days/.b.parquet", "days/.old/c.parquet"):
        con.execute(f"COPY people TO '{file}'")
    for number, (source, rows) in enumerate({"days": 300, "days/**/*.parquet": 300, "days/*.parquet": 200}.items()):
        perturb_copy(con, source, f"copy{number}.parquet", columns=COLUMNS)
        sql = f"SELECT count(*) FROM ldp.perturb_rows('./{source}', {{city: ldp.krr(1, ['Lima', 'Oslo'])}})"
        assert con.execute(f"SELECT count(*) FROM 'copy{number}.parquet'").fetchone() == (rows,)
        with ldpsql.connect() as attached:
            assert attached.execute(sql).fetchone() == (rows,)


def test_patterns_find_hidden_files_as_duckdb_does(con: DuckDBPyConnection, ledger: Ledger) -> None:
    con.execute("COPY people TO '.people.parquet'")
    (count,) = con.execute("SELECT count(DISTINCT filename) FROM read_parquet('*.parquet', filename := true)").fetchall()
    ldpsql.attach(con, ledger=ledger)
    draw(con, "*.parquet", "reports")
    assert count == (2,)
    assert ledger.history()[0]["source"].endswith(" and 1 more")


def test_a_database_that_is_read_as_a_file_shares_the_budget_of_its_tables(con: DuckDBPyConnection, ledger: Ledger) -> None:
    perturb_table(con, "people", "one", COLUMNS, charge=Charge(ledger, "people"))
    con.close()
    with duckdb.connect() as other:
        other.execute("CREATE VIEW seen AS FROM read_duckdb('wh.duckdb', table_name := 'people')")
        perturb_table(other, "seen", "two", COLUMNS, charge=Charge(ledger, "seen"))
        with pytest.raises(BudgetExceeded):
            perturb_table(other, "seen", "three", COLUMNS, charge=Charge(ledger, "seen"))


def test_other_tables_and_files_have_budgets_of_their_own(con: DuckDBPyConnection, ledger: Ledger) -> None:
    con.execute("COPY people TO 'others.parquet'; ATTACH ':memory:' AS lake; CREATE TABLE lake.people AS FROM people")
    ldpsql.attach(con, ledger=ledger)
    for name in ("people", "people.parquet", "others.parquet", "lake.people"):
        draw(con, name, "one")
        draw(con, name, "two")


RENEWALS: dict[str, Callable[[DuckDBPyConnection, int], tuple[Any, str, str]]] = {  # the source, the name and the part of a try
    "a name": lambda con, i: ("people", f"batch {i}", ""),
    "a part": lambda con, i: ("people", "people", f"p{i}"),
    "a part after the whole": lambda con, i: ("people", f"batch {i}", f"p{i}" if i else ""),
    "another spelling": lambda con, i: (["seen", "main.people", "PEOPLE"][i], f"batch {i}", f"p{i}"),
    "a part of a file": lambda con, i: ("people.parquet", "people.parquet", f"p{i}"),
    "a hard link": lambda con, i: (linked("people.parquet", f"link{i}.parquet"), f"batch {i}", ""),
    "a renamed file": lambda con, i: (renamed("people.parquet", f"file{i}.parquet"), f"batch {i}", ""),
    "a part of a hard link": lambda con, i: (linked("people.parquet", f"link{i}.parquet"), f"batch {i}", f"p{i}"),
    "a part of a renamed file": lambda con, i: (renamed("people.parquet", f"file{i}.parquet"), f"batch {i}", f"p{i}"),
    "a part under an alias": lambda con, i: (attached(con, f"wh{i}"), f"batch {i}", f"p{i}"),
    "a relation": lambda con, i: (con.sql(f"FROM people -- {i}"), f"batch {i}", f"p{i}"),
    "a view of the same body": lambda con, i: (body(con, f"same{i}"), f"batch {i}", f"p{i}"),
    "an alias": lambda con, i: (attached(con, f"wh{i}"), f"batch {i}", ""),
    "a renamed table": lambda con, i: (renamed_table(con, i), f"batch {i}", ""),
    "a copy in the same database": lambda con, i: (copied_table(con, i), f"batch {i}", ""),
    "another file next to a computed name": lambda con, i: (computed(con, f"{'abc'[i]}.txt"), f"batch {i}", ""),
}


def renamed_table(con: DuckDBPyConnection, i: int) -> str:
    con.execute("CREATE TABLE called0 AS FROM people" if i == 0 else f"ALTER TABLE called{i - 1} RENAME TO called{i}")
    return f"called{i}"


def copied_table(con: DuckDBPyConnection, i: int) -> str:
    con.execute(f"CREATE TABLE copy{i} AS FROM people ORDER BY random()")
    return f"copy{i}"


def computed(con: DuckDBPyConnection, other: str) -> str:
    Path(other).touch()
    con.execute(f"CREATE OR REPLACE VIEW computed AS FROM read_parquet('peo' || 'ple.parquet') WHERE '{other}' <> ''")
    return "computed"


def linked(file: str, name: str) -> str:
    os.link(file, name)
    return name


def renamed(file: str, name: str) -> str:
    found = [path for path in Path().glob("*.parquet") if path.name == file or path.name.startswith("file")]
    return str(found[0].rename(name))


def body(con: DuckDBPyConnection, name: str) -> str:
    con.execute(f"CREATE VIEW {name} AS SELECT * FROM (VALUES ('Lima'), ('Oslo')) AS t(city)")
    return name


def attached(con: DuckDBPyConnection, name: str) -> str:
    if not Path("other.duckdb").exists():
        with duckdb.connect("other.duckdb") as other:
            other.execute("CREATE TABLE people AS SELECT 'Lima' AS city")
    for (before,) in con.execute("SELECT database_name FROM duckdb_databases() WHERE path LIKE '%/other.duckdb'").fetchall():
        con.execute(f"DETACH {before}")
    con.execute(f"ATTACH 'other.duckdb' AS {name}")
    return f"{name}.people"


@pytest.mark.parametrize("way", RENEWALS)
def test_no_name_part_or_link_renews_the_budget_of_rows(con: DuckDBPyConnection, ledger: Ledger, way: str) -> None:
    def draw_again(i: int) -> None:
        source, name, part = RENEWALS[way](con, i)
        perturb_table(con, source, f"reports{i}", COLUMNS, charge=Charge(ledger, name, part=part))

    draw_again(0)
    draw_again(1)
    with pytest.raises(BudgetExceeded):
        draw_again(2)
    assert {row["source"] for row in ledger.history()} != {"not identified"}
    ledger.check()


def test_a_released_table_has_one_budget_in_all_parts(con: DuckDBPyConnection, ledger: Ledger) -> None:
    ldpsql.attach(con, ledger=ledger)
    for part in ("", "one"):
        draw(con, "people", f"reports {part}", part=part)
    with pytest.raises(BudgetExceeded):
        draw(con, "seen", "reports", part="two")
    con.execute(
        "INSERT INTO people SELECT 1000 + i, 'Oslo' FROM range(5) t(i); CREATE VIEW new AS FROM people WHERE id >= 1000"
    )
    draw(con, "new", "more reports", part="two")  # other people


def test_a_renamed_database_is_recognised(con: DuckDBPyConnection, ledger: Ledger) -> None:
    con.close()
    for i in range(3):
        os.rename(["wh.duckdb", "a.duckdb", "b.duckdb"][i], name := f"{'abc'[i]}.duckdb")
        with duckdb.connect(name) as opened:
            if i < 2:
                perturb_table(opened, "people", f"reports{i}", COLUMNS, charge=Charge(ledger, f"batch {i}"))
                continue
            with pytest.raises(BudgetExceeded):
                perturb_table(opened, "people", "more", COLUMNS, charge=Charge(ledger, "batch"))


def test_a_frame_is_not_identified_and_the_history_says_so(con: DuckDBPyConnection, ledger: Ledger) -> None:
    frame = pl.DataFrame({"city": ["Lima", "Oslo"]})
    for i in range(3):
        perturb_table(con, frame, f"reports{i}", COLUMNS, charge=Charge(ledger, f"batch {i}"))
    perturb_table(con, "people", "reports", COLUMNS, charge=Charge(ledger, "batch"))
    assert [row["source"] for row in ledger.history()] == ["not identified"] * 3 + ["wh.main.people"]


def test_an_alias_is_a_matter_of_spelling(con: DuckDBPyConnection, ledger: Ledger) -> None:
    con.close()
    with duckdb.connect() as other:
        other.execute("ATTACH 'wh.duckdb' AS elsewhere (READ_ONLY)")
        perturb_table(other, "elsewhere.people", "reports", COLUMNS, charge=Charge(ledger, "people"))
    assert [row["source"] for row in ledger.history()] == ["wh.main.people"]


def test_what_an_older_ledger_was_charged_by_another_spelling_still_counts(con: DuckDBPyConnection, ledger: Ledger) -> None:
    mechanism = ldpsql.registry.registry.registry().mechanism(CITY)
    for name in ("People", "main.people"):
        ledger.charge(name, {"city": mechanism}, "long ago")
    ldpsql.attach(con, ledger=ledger)
    with pytest.raises(BudgetExceeded):
        draw(con, "people", "now")


def test_a_column_is_in_the_history_once_whatever_it_reads(con: DuckDBPyConnection, ledger: Ledger) -> None:
    ldpsql.attach(con, ledger=ledger)
    draw(con, "joined", "one")
    assert [(row["dataset"], row["column"], row["users"]) for row in ledger.history()] == [("wh.main.joined", "city", 1000)]
    assert [balance.dataset for balance in ledger.balances()] == ["wh.main.joined", "wh.main.people"]


def test_names_are_alike_if_one_only_says_less() -> None:
    for one, other, same in (
        ("people", "wh.main.people", True),
        ("wh.people", "WH.main.People", True),
        ("lake.people", "wh.main.people", False),
        ("people", "more_people", False),
        ("people.parquet", "/data/people.parquet", True),
        ("/a/people.parquet", "/b/people.parquet", False),
        ("dataset 1", "dataset 11", False),
        ('wh.main."a.people"', "people", False),
    ):
        assert alike(one, other) is alike(other, one) is same


# --- rows that a release has not seen ---


def test_a_release_notices_rows_that_it_has_not_seen(con: DuckDBPyConnection, ledger: Ledger) -> None:
    ldpsql.attach(con, ledger=ledger)
    assert not draw(con, "people", "reports")
    assert draw(con, "people", "reports")
    con.execute(
        "INSERT INTO people SELECT 1000 + i, 'Oslo' FROM range(100) t(i); CREATE VIEW fresh AS FROM people WHERE id >= 1000"
    )
    with pytest.raises(NotReleased, match=r"published for 100 rows, and the dataset has 200 now.*part="):
        draw(con, "people", "reports")
    assert not draw(con, "fresh", "reports", part="tuesday")
    assert not draw(con, "people", "reports", again=True)
    assert draw(con, "people", "reports")


# --- the people who are charged are those who are published ---


def changing(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Change something between the charge and the first draw."""

    charge = Ledger.charge

    def then(*args: Any, **options: Any) -> Release:
        release = charge(*args, **options)
        change()
        return release

    monkeypatch.setattr(Ledger, "charge", then)


def copied(con: DuckDBPyConnection, source: Any, charge: Charge) -> int:
    return perturb_copy(con, source, "out.parquet", COLUMNS, charge=charge).rows


def into_a_folder(con: DuckDBPyConnection, source: Any, charge: Charge) -> int:
    return perturb_copy(con, source, "out", COLUMNS, charge=charge).rows


def into_a_table(con: DuckDBPyConnection, source: Any, charge: Charge) -> int:
    return perturb_table(con, source, "reports", COLUMNS, charge=charge).rows


@pytest.mark.parametrize(("perturb", "source"), [(copied, "people"), (into_a_folder, "seen"), (into_a_table, "people")])
def test_rows_that_come_after_the_charge_are_not_drawn(
    con: DuckDBPyConnection, users: Ledger, monkeypatch: pytest.MonkeyPatch, perturb: Callable[..., int], source: str
) -> None:
    changing(monkeypatch, lambda: con.cursor().execute("INSERT INTO people SELECT 1000 + i, 'Oslo' FROM range(50) t(i)"))
    assert perturb(con, source, Charge(users, "people", user="id")) == 100
    assert [(row["users"], row["state"]) for row in users.history()] == [(100, "published")]


@pytest.mark.parametrize(
    ("perturb", "charged"),
    [
        (copied, ("in.parquet", "id")),
        (into_a_folder, ("in.csv", "id")),
        (into_a_table, ("in*.parquet", "id")),
        (into_a_table, ("in.parquet", "row")),
        (copied, ("in.csv", "row")),
        (into_a_folder, ("in*.parquet", "row")),
        (copied, ("relation", "id")),
        (into_a_table, ("view", "id")),
        (into_a_folder, ("view", "id")),
    ],
)
def test_a_source_that_changes_after_the_charge_is_not_published(
    con: DuckDBPyConnection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    perturb: Callable[..., int],
    charged: tuple[str, str],
) -> None:
    source, by = charged
    ledger, user = Ledger.open(tmp_path / "ledger", Policy(epsilon_budget=2, privacy_unit=by)), "id" if by == "id" else None
    end = "csv" if "csv" in source else "parquet"
    con.execute(f"COPY people TO 'in.{end}'; CREATE OR REPLACE VIEW view AS FROM 'in.{end}'")
    argument: Any = con.cursor().sql("FROM 'in.parquet'") if source == "relation" else source

    def change() -> None:
        con.cursor().execute(f"COPY (SELECT 5000 + i AS id, 'Oslo' AS city FROM range(100) t(i)) TO 'in2.{end}'")
        os.replace(f"in2.{end}", f"in.{end}")

    changing(monkeypatch, change)
    before = set(os.listdir())
    with pytest.raises(SourceRefused, match="changed while it was read") as caught:
        perturb(con, argument, Charge(ledger, "people", user=user))
    assert "5000" not in str(caught.value)
    assert caught.value.__context__ is None
    assert set(os.listdir()) == before | {f"in.{end}"}
    assert con.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'reports'").fetchall() == [(0,)]
    assert [row["state"] for row in ledger.history()] == ["returned"]  # nobody saw them


@pytest.mark.parametrize("kind", ["UUID", "BIGINT", "VARCHAR"])
def test_user_ids_that_are_kept_are_charged_and_compared_too(con: DuckDBPyConnection, tmp_path: Path, kind: str) -> None:
    ledger = Ledger.open(tmp_path / "kept.ledger", Policy(epsilon_budget=2, privacy_unit="who"))
    made = "'00000000-0000-4000-8000-' || lpad(id::VARCHAR, 12, '0')" if kind == "UUID" else "id"
    con.execute(f"CREATE TABLE visits AS SELECT ({made})::{kind} AS who, city FROM people")
    for into, keep in (("one", ["who"]), ("two", [])):
        perturb_table(con, "visits", into, COLUMNS, keep=keep, charge=Charge(ledger, "visits", user="who"))
    with pytest.raises(BudgetExceeded, match="100 of the users"):  # kept or not, they are the same users
        perturb_table(con, "visits", "three", COLUMNS, keep=["who"], charge=Charge(ledger, "visits", user="who"))


def killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def killed_before(step: str) -> Iterator[None]:
    """Let a run end before it publishes files, tidies up or writes its table; its charge stays, as that of a killed process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Drawing if step == "into_table" else Staging, step, killed)
        patch.setattr(Ledger, "give_back", killed)
        with pytest.raises(KeyboardInterrupt):
            yield


def test_a_run_is_not_resumed_for_other_people(con: DuckDBPyConnection, users: Ledger) -> None:
    charge = Charge(users, "people", user="id")

    with killed_before("publish"):
        perturb_copy(con, "people", "out", COLUMNS, charge=charge)
    con.execute("UPDATE people SET id = id + 1000")
    with pytest.raises(ldpsql.LdpError, match="other inputs"):
        perturb_copy(con, "people", "out", COLUMNS, charge=charge, resume=True)


def test_users_who_come_while_a_release_is_open_keep_it_from_being_published(con: DuckDBPyConnection, users: Ledger) -> None:
    ldpsql.attach(con, ledger=users)
    city = {"city": "ldp.krr(1, ['Lima', 'Oslo'])"}
    with pytest.raises(NotReleased, match="50 users"), ldpsql.release(con, "people", city, "reports"):
        con.execute("DELETE FROM people WHERE id < 50; INSERT INTO people SELECT 1000 + i, 'Oslo' FROM range(50) t(i)")
    with ldpsql.release(con, "people", city, "others"):
        con.execute("DELETE FROM people WHERE id > 60")
    with ldpsql.release(con, "people", city, "last"):
        con.execute("DROP TABLE people")
    assert [row["state"] for row in users.history()] == ["charged", "published", "published"]


def test_a_cycle_of_privic_draws_whom_it_charges(
    con: DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Policy(epsilon_budget=1, distance_budget=100, privacy_unit="id")
    ledger = Ledger.open(tmp_path / "cycles.ledger", policy)
    pl.DataFrame({"cell": [0, 1, 2] * 100, "id": range(300)}).write_parquet("places.parquet")
    charge = Ledger.charge

    def then(*args: Any, **options: Any) -> Any:
        release = charge(*args, **options)
        pl.DataFrame({"cell": [3] * 700, "id": range(1000, 1700)}).write_parquet("places.parquet")
        return release

    monkeypatch.setattr(Ledger, "charge", then)
    first = privic.start(1.5, range(6), columns=3)
    (cycle,) = privic.collect("places.parquet", "run.duckdb", first, cycles=1, charge=Charge(ledger, "people", user="id"))
    assert cycle.summary.reports == 300
    with duckdb.connect("run.duckdb") as state:
        assert state.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name LIKE '%source%'").fetchall() == [(0,)]


def test_a_digest_adds_up_and_knows_everybody_and_how_often() -> None:
    people = ["ann", "bob", "bob", "cleo"]
    assert digest(people) == digest(people[::-1]) == together(digest(people[:1]), digest(people[1:]))
    assert digest(people) != digest(["ann", "ann", "bob", "cleo"])
    assert digest([7]) == digest(["7"])
    assert others(people, ["bob", "ann"]) == 0
    assert others(people, ["ann", "ann", "dan"]) == 2


# --- resuming ---


@pytest.mark.parametrize(
    "later", ["SELECT 1", "ALTER TABLE reports RENAME TO elsewhere", "COMMENT ON COLUMN reports.city IS 'x'"]
)
def test_a_run_killed_before_the_ledger_knew_is_not_drawn_a_second_time(
    con: DuckDBPyConnection, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            perturb_table(con, "people", "reports", COLUMNS, charge=Charge(ledger, "people"))
    con.execute(later)
    run = perturb_table(con, "people", "reports", COLUMNS, charge=Charge(ledger, "people"), resume=True)
    assert (run.rows, run.resumed) == (0, 1)
    assert [(row["release"], row["state"]) for row in ledger.history()] == [(run.release, "published")]
    with pytest.raises(DestinationExists):
        perturb_table(con, "people", "reports", COLUMNS, charge=Charge(ledger, "people"), resume=True)


def test_a_part_killed_before_the_ledger_knew_is_not_appended_twice(
    con: DuckDBPyConnection, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    con.execute("CREATE TABLE reports (city VARCHAR); COMMENT ON TABLE reports IS 'mine'")

    def append(day: str) -> int:
        charge = Charge(ledger, "people", part=day)
        return perturb_table(con, "people", "reports", COLUMNS, append=True, resume=True, charge=charge).rows

    assert append("monday") == 100
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            append("tuesday")
    assert append("tuesday") == 0
    assert con.execute("SELECT count(*) FROM reports").fetchall() == [(200,)]
    ((comment,),) = con.execute("SELECT comment FROM duckdb_tables() WHERE table_name = 'reports'").fetchall()
    assert comment.splitlines() == ["mine", *(f"ldpsql release {row['release']}" for row in ledger.history())]


@pytest.mark.parametrize("verb", ["append", "replace"])
def test_a_killed_run_into_a_table_that_is_there_is_not_charged_a_second_time(
    con: DuckDBPyConnection, ledger: Ledger, verb: str
) -> None:
    con.execute("CREATE TABLE reports (city VARCHAR)")
    options: dict[str, Any] = {verb: True, "charge": Charge(ledger, "people")}
    with killed_before("into_table"):
        perturb_table(con, "people", "reports", COLUMNS, **options)
    perturb_table(con, "people", "reports", COLUMNS, resume=True, **options)
    assert con.execute("SELECT count(*) FROM reports").fetchall() == [(100,)]
    assert [row["state"] for row in ledger.history()] == ["published"]


def test_of_two_runs_that_take_up_one_charge_one_writes_reports(
    con: DuckDBPyConnection, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    con.execute("CREATE TABLE reports (city VARCHAR)")
    options: dict[str, Any] = {"append": True, "resume": True, "charge": Charge(ledger, "people")}
    draw = Drawing.into_table

    def later(drawing: Drawing, *rest: Any) -> None:
        monkeypatch.setattr(Drawing, "into_table", draw)
        perturb_table(con.cursor(), "people", "reports", COLUMNS, **options)
        draw(drawing, *rest)

    with killed_before("into_table"):
        perturb_table(con, "people", "reports", COLUMNS, **options)
    monkeypatch.setattr(Drawing, "into_table", later)
    with pytest.raises(UnfinishedRun, match="another run"):
        perturb_table(con, "people", "reports", COLUMNS, **options)
    assert con.execute("SELECT count(*) FROM reports").fetchall() == [(100,)]
    assert [row["state"] for row in ledger.history()] == ["published"]


# --- the ledger's file and the guard ---


def test_a_ledger_under_two_names_is_refused(con: DuckDBPyConnection, ledger: Ledger, tmp_path: Path) -> None:
    os.link(ledger.path, tmp_path / "second.ledger")
    for path in (ledger.path, tmp_path / "second.ledger"):
        with pytest.raises(LedgerUnwritable, match="two names"):
            Ledger.open(path)
    (tmp_path / "second.ledger").unlink()
    os.link(ledger.path, tmp_path / f".{ledger.path.name}.x1y2z3")  # as a process leaves it that is killed while it begins one
    assert Ledger.open(ledger.path).balances() == []
    assert not (tmp_path / f".{ledger.path.name}.x1y2z3").exists()


def test_a_new_ledger_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        Ledger.open(tmp_path / "new.ledger", Policy(epsilon_budget=1))
    assert [record.getMessage() for record in caplog.records] == [
        f"began a new ledger, in which nothing is spent: {tmp_path / 'new.ledger'}"
    ]


@pytest.mark.parametrize(
    "off",
    [
        "CREATE OR REPLACE MACRO ldp._guard() AS NULL::BIGINT",
        "CREATE OR REPLACE MACRO ldp._guard() AS 'x'",
        "DROP MACRO ldp._guard",
        "DETACH ldp",
    ],
)
def test_a_guard_that_is_taken_off_is_restored_with_a_warning(con: DuckDBPyConnection, ledger: Ledger, off: str) -> None:
    ldpsql.attach(con, ledger=ledger)
    con.execute(off)
    with pytest.raises(NotReleased, match="its own ledger"):
        perturb_table(con, "people", "reports", COLUMNS)
    with pytest.warns(PrivacyLeakWarning, match="removed from"):
        ldpsql.attach(con)
    with pytest.raises(duckdb.InvalidInputException, match="LDP320"):
        con.execute("SELECT ldp.perturb('Lima', ldp.krr(1, ['Lima', 'Oslo']))")
    draw(con, "people", "reports")
    ((mark,),) = con.execute("SELECT function_name FROM duckdb_functions() WHERE function_name LIKE '%ldp_guarded%'").fetchall()
    with pytest.raises(duckdb.CatalogException):
        con.execute(f"DROP FUNCTION system.main.{mark}")


def test_other_instances_and_catalogs_are_not_guarded_by_a_mark(con: DuckDBPyConnection, ledger: Ledger) -> None:
    ldpsql.attach(con, ledger=ledger)
    ldpsql.attach(con, name="other")
    con.execute("SELECT other.perturb('Lima', other.krr(1, ['Lima', 'Oslo']))")
    with ldpsql.connect() as elsewhere:
        elsewhere.execute("SELECT ldp.perturb('Lima', ldp.krr(1, ['Lima', 'Oslo']))")


@pytest.mark.parametrize("later", ["DROP TABLE reports", "CREATE TABLE mine AS FROM reports; DROP TABLE reports"])
def test_a_table_that_is_gone_after_a_kill_is_charged_again(
    con: DuckDBPyConnection, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            perturb_table(con, "people", "reports", COLUMNS, charge=Charge(ledger, "people"))
    con.execute(later)
    perturb_table(con, "people", "reports", COLUMNS, charge=Charge(ledger, "people"), resume=True)
    assert [row["state"] for row in ledger.history()] == ["charged", "published"]
    ledger.check()
    with pytest.raises(BudgetExceeded):
        perturb_table(con, "people", "more", COLUMNS, charge=Charge(ledger, "people"))


def test_a_file_that_was_moved_after_a_kill_is_not_drawn_again_without_a_charge(
    con: DuckDBPyConnection, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"columns": COLUMNS, "charge": Charge(ledger, "people")}
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            perturb_copy(con, "people", "out.parquet", **options)
    Path("out.parquet").rename("mine.parquet")
    shutil.rmtree(".out.parquet.ldpsql")
    perturb_copy(con, "people", "out.parquet", resume=True, **options)
    assert [row["state"] for row in ledger.history()] == ["charged", "published"]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("out", ["out.parquet", "out"])
def test_a_run_killed_while_it_tidies_up_is_not_drawn_again(
    con: DuckDBPyConnection, ledger: Ledger, out: str, *, replace: bool
) -> None:
    options: dict[str, Any] = {"columns": COLUMNS, "charge": Charge(ledger, "people"), "keep": ["id"]}
    with killed_before("remove"):
        perturb_copy(con, "people", out, replace=replace, **options)
    staged = Path(f".{out}.ldpsql")
    for made in [*staged.glob("part-*"), *staged.glob("drawn-*"), *staged.glob("whole")]:
        shutil.rmtree(made)
    files = out if out.endswith("parquet") else f"{out}/*.parquet"
    before = con.execute(f"FROM '{files}' ORDER BY id").fetchall()
    assert perturb_copy(con, "people", out, replace=replace, resume=True, **options).rows == 0
    assert con.execute(f"FROM '{files}' ORDER BY id").fetchall() == before
    assert not staged.exists()


def test_a_run_is_not_resumed_by_a_ledger_or_a_connection_that_does_not_know_it(
    con: DuckDBPyConnection, ledger: Ledger, tmp_path: Path
) -> None:
    other = Ledger.open(tmp_path / "other.ledger", Policy(epsilon_budget=2))
    for out, charge in (("one", Charge(ledger, "people")), ("two", None)):
        with killed_before("publish"):
            perturb_copy(con, "people", out, COLUMNS, charge=charge)
    with pytest.raises(UnknownRelease):
        perturb_copy(con, "people", "one", COLUMNS, charge=Charge(other, "people"), resume=True)
    ldpsql.attach(con, ledger=ledger)
    with pytest.raises(NotReleased):
        perturb_copy(con, "people", "two", COLUMNS, resume=True)
    assert not Path("one").exists()
    assert not Path("two").exists()


def test_what_a_killed_run_was_replacing_comes_back(con: DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    perturb_copy(con, "people", "out", COLUMNS, keep=["id"])
    before, move = con.execute("FROM 'out/*.parquet' ORDER BY id").fetchall(), Path.replace
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda file, target: move(file, target) if file.suffix else killed())
        with pytest.raises(KeyboardInterrupt):
            perturb_copy(con, "people", "out", COLUMNS, replace=True)
    assert not Path("out").exists()
    con.execute("UPDATE people SET city = 'Rome'")
    with pytest.raises(ldpsql.LdpError, match="domain"):
        perturb_copy(con, "people", "out", COLUMNS, replace=True)
    assert con.execute("FROM 'out/*.parquet' ORDER BY id").fetchall() == before


def test_a_ledger_stays_the_same_when_the_process_changes_its_folder(
    con: DuckDBPyConnection, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Ledger.open("budget.ledger")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    Ledger.open("budget.ledger", Policy(epsilon_budget=2))
    perturb_table(con, "people", "reports", COLUMNS, charge=Charge(opened, "people"))
    assert len(ledger.history()) == 1


def test_privic_finds_the_file_that_it_is_charged_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = Ledger.open("cycles.ledger", Policy(epsilon_budget=1, distance_budget=2))
    pl.DataFrame({"cell": [0, 1, 2] * 100}).write_parquet("places.parquet")
    first = privic.start(1.5, range(6), columns=3)

    def collect(state: str, dataset: str) -> None:
        privic.collect("places.parquet", state, first, cycles=1, charge=Charge(ledger, dataset))

    collect("one.duckdb", "places.parquet")
    for name in (f"../{tmp_path.name}/places.parquet", "pl*.parquet"):
        with pytest.raises(BudgetExceeded):
            collect("two.duckdb", name)


def test_a_cycle_whose_state_was_lost_after_a_kill_is_charged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = Ledger.open("cycles.ledger", Policy(epsilon_budget=1, distance_budget=2))
    pl.DataFrame({"cell": [0, 1, 2] * 100}).write_parquet("places.parquet")
    first, charge = privic.start(1.5, range(6), columns=3), Charge(ledger, "places.parquet")
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            privic.collect("places.parquet", "one.duckdb", first, cycles=1, charge=charge)
    Path("one.duckdb").rename("mine.duckdb")
    with pytest.raises(BudgetExceeded):
        privic.collect("places.parquet", "one.duckdb", first, cycles=1, charge=charge)
