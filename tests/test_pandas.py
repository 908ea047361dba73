"""pandas and NumPy columns and frames work wherever Polars and Arrow do, and pandas is not needed where it is not used."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sqlalchemy
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql import Ledger, Policy
from ldpsql.errors import (
    ConnectionRefused,
    InvalidDomain,
    InvalidParameter,
    MissingValue,
    PrivacyLeakWarning,
    SourceRefused,
    UnknownName,
    WrongType,
)
from ldpsql.functions import registry

CITIES = ["Lima", "Oslo", "Rome"]
KRR = f"krr(32, {CITIES})"  # at epsilon 32 a report is the value, but once in 10^13 draws
OUE = f"oue(1, {CITIES})"
KRR_SQL = "ldp." + KRR
PEOPLE = pd.DataFrame({"city": CITIES * 20, "n": range(60)})
pytestmark = pytest.mark.filterwarnings("ignore:krr with epsilon 32")


def size(estimate: ldpsql.Estimate) -> int:
    return int(estimate.likelihood.n[0])


def krr(epsilon: int, domain: object) -> ldpsql.Mechanism:
    made: Any = registry().mechanisms["krr"]
    return made(epsilon=epsilon, domain=domain)


TEXT: dict[str, Callable[[], Any]] = {
    "the default of pandas": lambda: pd.Series(CITIES),
    "objects": lambda: pd.Series(CITIES, dtype=object),
    "nullable text": lambda: pd.Series(CITIES, dtype="string"),
    "Arrow's text": lambda: pd.Series(CITIES, dtype=pd.ArrowDtype(pa.string())),
    "Arrow's dictionary": lambda: pd.Series(CITIES, dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))),
    "categories": lambda: pd.Series(CITIES, dtype="category"),
    "categories that do not occur": lambda: pd.Series(pd.Categorical(CITIES, [*reversed(CITIES), "Atlantis"])),
    "an index": lambda: pd.Index(CITIES),
    "an array of pandas": lambda: pd.array(CITIES),
    "a categorical": lambda: pd.Categorical(CITIES),
    "fixed-width text": lambda: np.array(CITIES),
    "text of NumPy 2": lambda: np.array(CITIES, dtype=np.dtypes.StringDType()),
    "an array of objects": lambda: np.array(CITIES, dtype=object),
    "a slice with a step": lambda: np.array([*CITIES, *CITIES])[::-1][::-1][:3],
}


@pytest.mark.parametrize("form", TEXT)
def test_text_of_any_dtype_is_perturbed(form: str) -> None:
    assert list(ldpsql.perturb(TEXT[form](), KRR)) in (CITIES, [pa.scalar(city) for city in CITIES])
    assert size(ldpsql.estimate(TEXT[form](), KRR)) == 3


TYPED: dict[str, tuple[Any, str]] = {
    "int64": (pd.Series([1, 2]), "krr(32, [1, 2])"),
    "int8": (np.array([1, 2], dtype=np.int8), "krr(32, [1, 2])"),
    "uint64": (np.array([1, 2], dtype=np.uint64), "krr(32, [1, 2])"),
    "nullable integers": (pd.Series([1, 2], dtype="Int64"), "krr(32, [1, 2])"),
    "integers held as floats": (pd.Series([1, None, 2]).dropna(), "krr(32, [1, 2])"),
    "objects that are integers": (pd.Series([1, 2], dtype=object), "krr(32, [1, 2])"),
    "categories of integers": (pd.Series([1, 2], dtype="category"), "krr(32, [1, 2])"),
    "a range": (pd.RangeIndex(1, 3), "krr(32, [1, 2])"),
    "booleans": (pd.Series([True, False]), "krr(32, [True, False])"),
    "nullable booleans": (pd.Series([True, False], dtype="boolean"), "krr(32, [True, False])"),
    "floats": (np.array([0.5, 1.5], dtype=np.float32), "krr(32, [0.5, 1.5])"),
}


@pytest.mark.parametrize("form", TYPED)
def test_numbers_and_booleans_of_any_dtype_are_perturbed(form: str) -> None:
    column, mechanism = TYPED[form]
    assert pa.array(ldpsql.perturb(column, mechanism)).to_pylist() == list(column)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_any_unit_match_a_domain_of_times(unit: str) -> None:
    times = [datetime(2024, 1, 1), datetime(2024, 1, 2, 3)]  # without a zone, as in pandas
    mechanism = krr(32, times)
    for column in (pd.Series(times).astype(f"datetime64[{unit}]"), np.array(times, dtype=f"datetime64[{unit}]")):
        assert pa.array(ldpsql.perturb(column, mechanism)).cast(pa.timestamp("us")).to_pylist() == times
    days = krr(32, [date(2024, 1, 1), date(2024, 1, 2)])
    assert ldpsql.perturb(np.array(["2024-01-02"], dtype="datetime64[D]"), days).to_pylist() == [date(2024, 1, 2)]


MISSING: dict[str, tuple[Any, str]] = {
    "NaN": (pd.Series([1.0, np.nan]), "krr(32, [1, 2]{})"),
    "NaN of NumPy": (np.array([1.0, np.nan]), "krr(32, [1, 2]{})"),
    "NaN of Arrow's dtype": (pd.Series(pd.arrays.ArrowExtensionArray(pa.array([1.0, np.nan]))), "krr(32, [1, 2]{})"),
    "NA": (pd.Series([1, None], dtype="Int64"), "krr(32, [1, 2]{})"),
    "None": (pd.Series([1, None], dtype=object), "krr(32, [1, 2]{})"),
    "no category": (pd.Series([1, None], dtype="category"), "krr(32, [1, 2]{})"),
    "a mask": (np.ma.MaskedArray([1, 2], mask=[False, True]), "krr(32, [1, 2]{})"),
}


@pytest.mark.parametrize("form", MISSING)
def test_every_sign_of_a_missing_value_is_null(form: str) -> None:
    column, mechanism = MISSING[form]
    with pytest.raises(MissingValue):
        ldpsql.perturb(column, mechanism.format(""))
    assert pa.array(ldpsql.perturb(column, mechanism.format(", nulls='as:1'"))).to_pylist() == [1, 1]
    assert size(ldpsql.estimate(column, mechanism.format(""))) == 1


def test_nan_of_lists_and_of_polars_stays_a_number() -> None:
    for column in ([1.0, float("nan")], pl.Series([1.0, float("nan")])):
        with pytest.raises(ldpsql.LdpError, match="outside the declared domain"):
            ldpsql.perturb(column, "krr(32, [1, 2], nulls='as:1')")


def test_a_series_gives_a_series_with_its_index_and_name() -> None:
    series = PEOPLE["city"].iloc[::-7]
    drawn = ldpsql.perturb(series, KRR)
    pd.testing.assert_series_equal(drawn, series, check_dtype=False)
    assert isinstance(ldpsql.perturb(series.to_numpy(), KRR), pa.Array)


FORMS = ["oue(2, ['a', 'b'])", "olh(2, ['a', 'b'])", "krr(2, ['a', 'b'])", "subset_selection(2, ['a', 'b', 'c', 'd'])"]


@pytest.mark.parametrize("text", FORMS)
def test_reports_of_every_form_come_back_from_pandas(text: str) -> None:
    drawn = ldpsql.perturb(pd.Series(["a", "b"] * 50), text)
    expected = ldpsql.estimate(pa.array(drawn), text)
    assert ldpsql.estimate(drawn, text).values == expected.values
    assert ldpsql.estimate(pd.DataFrame({"x": drawn}), text, column="x").values == expected.values


def test_sets_of_pairs_come_from_pandas() -> None:
    drawn = ldpsql.perturb(pd.Series([[{"key": "a", "value": 0.5}]] * 30), "pckv_grr(2, ['a', 'b'])")
    assert ldpsql.key_value(drawn, "pckv_grr(2, ['a', 'b'])").to_arrow().num_rows == 2


def test_a_frame_is_estimated_counted_and_perturbed_by_batches() -> None:
    assert ldpsql.estimate(PEOPLE, KRR, column="city").estimate == pytest.approx([1 / 3] * 3)
    assert ldpsql.partial_counts(PEOPLE, "city").numbers.to_pylist() == [20, 20, 20]
    drawn = ldpsql.perturb_batches(PEOPLE, {"city": KRR}, keep=["n"]).read_all()
    assert drawn.to_pydict() == PEOPLE.to_dict("list")
    supports = ldpsql.partial_supports(
        pd.DataFrame({"x": ldpsql.perturb(PEOPLE.city, "oue(32, ['Lima', 'Oslo', 'Rome'])")}), "x", f"oue(32, {CITIES})"
    )
    assert supports.reports == 60
    counted = ldpsql.Counts.from_arrow(pd.DataFrame({"report": CITIES, "n": [1, 2, 3]}))
    assert size(ldpsql.estimate(counted, KRR)) == 6


def test_only_the_named_columns_of_a_frame_are_read() -> None:
    frame = PEOPLE.assign(mixed=[1, "x"] * 30, **{"0": 1}).rename(columns={"0": 0})
    assert ldpsql.perturb_batches(frame, {"city": KRR}, keep=["0"]).read_all().column_names == ["city", "0"]
    with pytest.raises(WrongType, match=r"the column 'mixed' \(pandas.Series of object\)"):
        ldpsql.perturb_batches(frame, {"city": KRR}, keep=["mixed"])
    with pytest.raises(UnknownName, match="did you mean 'city'"):
        ldpsql.perturb_batches(frame, {"cty": KRR})
    with pytest.raises(SourceRefused, match="two columns named 'city'"):
        ldpsql.partial_counts(pd.concat([frame, frame], axis=1), "city")


@pytest.fixture
def con() -> DuckDBPyConnection:
    return ldpsql.connect()


def test_a_frame_is_the_source_of_a_run(con: DuckDBPyConnection, tmp_path: Path) -> None:
    assert ldpsql.perturb_table(con, PEOPLE, "reports", {"city": KRR}, keep=["n"]).rows == 60
    assert con.table("reports").order("n").to_arrow_table().to_pydict() == PEOPLE.to_dict("list")
    ldpsql.perturb_copy(con, PEOPLE, tmp_path / "reports.parquet", {"city": KRR}, keep=["n"])
    assert sorted(pd.read_parquet(tmp_path / "reports.parquet")["n"]) == list(range(60))


def test_a_ledger_charges_the_users_of_a_frame(con: DuckDBPyConnection, tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", Policy(epsilon_budget=64, privacy_unit="n"))
    charge = ldpsql.Charge(ledger, "people", user="n")
    ldpsql.perturb_table(con, PEOPLE, "reports", {"city": KRR}, charge=charge)
    assert ledger.balances()[0].people == 60
    mechanism = registry().mechanism(KRR)
    for seven in (["7"], pd.Series([7]), pd.Index(["7"]), np.array([7])):  # all of them the same person
        with ledger.release("others", {"city": mechanism}, "reports", users=seven):
            pass
    assert len(ledger.history()) == 2
    with pytest.raises(MissingValue):
        ledger.charge("others", {"city": mechanism}, "s", users=pd.Series([7, None]))


def test_sql_finds_a_frame_by_the_name_of_its_variable(con: DuckDBPyConnection) -> None:
    people = PEOPLE
    assert people is PEOPLE
    assert con.sql(f"SELECT count(*) FROM people WHERE ldp.perturb(city, {KRR_SQL}) = city").fetchall() == [(60,)]
    rows = con.sql(f"FROM ldp.estimate(people, city, {KRR_SQL})").fetchall()
    assert [row[1] for row in rows] == pytest.approx([1 / 3] * 3)
    missing = pd.DataFrame({"x": [1.0, np.nan]})
    assert missing is not None
    assert con.sql("SELECT count(*) FROM missing WHERE x IS NULL").fetchall() == [(1,)]
    assert con.sql("SELECT ldp.perturb(x, ldp.krr(32, [1, 2], nulls := 'as:2')) FROM missing").fetchall() == [(1,), (2,)]


def test_a_domain_is_taken_from_pandas_and_numpy() -> None:
    texts = pd.Series(CITIES)
    for values in (texts, texts.unique(), texts.astype("category").cat.categories, np.array(CITIES)):
        assert krr(1, values) == registry().mechanism(f"krr(1, {CITIES})")
    with pytest.raises(InvalidDomain, match="NULL"):
        krr(1, pd.Series([1.0, np.nan]))


REFUSED: dict[str, tuple[Any, str]] = {
    "a frame": (PEOPLE, "pandas.DataFrame is not a column.*frame\\['city'\\]"),
    "a frame of one column": (PEOPLE[["city"]], "pandas.DataFrame is not a column"),
    "two dimensions": (np.zeros((2, 2)), "numpy.ndarray of 2 dimensions.*array\\[:, 0\\]"),
    "no dimension": (np.array(5), "numpy.ndarray of 0 dimensions"),
    "mixed objects": (pd.Series(["a", 1]), "pandas.Series of object.*astype"),
    "complex numbers": (np.zeros(2, complex), "numpy.ndarray of complex128"),
    "another order of bytes": (np.array([1, 2], dtype=">i4"), "numpy.ndarray of int32|byte"),
    "sparse": (pd.Series([0, 1]).astype("Sparse[int]"), "pandas.Series of SparseDtype"),
    "periods": (pd.Series(pd.period_range("2020", periods=2)), "type extension"),
    "bytes": (np.array([b"a"]), "type BLOB"),
    "a number": (5, "int is not a column"),
    "a generator": ((x for x in "ab"), "generator is not a column.*list"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_names_the_type_and_says_what_to_pass(what: str) -> None:
    column, message = REFUSED[what]
    with pytest.raises(WrongType, match=message):
        ldpsql.perturb(column, KRR)


def test_a_frame_in_place_of_a_column_is_sent_to_the_function_for_frames() -> None:
    with pytest.raises(WrongType, match=r"pandas.DataFrame is not a column.*perturb_batches"):
        ldpsql.perturb(PEOPLE, {"city": KRR})  # type: ignore[call-overload]


def test_arguments_that_do_not_fit_a_frame_or_a_column_are_explained() -> None:
    with pytest.raises(InvalidParameter, match=r"several columns that may hold the reports. Hint: name theirs: column='city'"):
        ldpsql.estimate(PEOPLE, KRR)
    wrong: Any
    for wrong in (5, duckdb.connect(), [5]):
        with pytest.raises(InvalidParameter, match="column must be a list of names of columns"):
            ldpsql.estimate(PEOPLE, KRR, column=wrong)
        with pytest.raises(InvalidParameter, match="by must be a list of names of columns"):
            ldpsql.estimate(PEOPLE, KRR, column="city", by=wrong)
    for options in ({"column": "city"}, {"by": "city"}):
        with pytest.raises(InvalidParameter, match=r"have no names of columns. Hint: pass a frame"):
            ldpsql.estimate(PEOPLE.city, KRR, "ibu", **options)
    with pytest.raises(UnknownName, match=r"no question named 'meann'. Hint: did you mean 'mean'"):
        ldpsql.estimate(PEOPLE, KRR, column="city", question="meann")
    with pytest.raises(UnknownName, match="no question named 'perturb'"):
        ldpsql.estimate(PEOPLE, KRR, column="city", question="perturb")
    for frame in (PEOPLE, pl.LazyFrame({"city": ["Lima"]})):
        with pytest.raises(UnknownName, match="no column named 'region'"):
            ldpsql.estimate(frame, KRR, column="city", by="region")
    with pytest.raises(InvalidParameter, match=r"'share' does not take these arguments. Hint: it takes of \(needed\),"):
        ldpsql.estimate(PEOPLE, KRR, column="city", question="share", off="Lima")
    with pytest.raises(InvalidParameter, match="'share' needs of"):
        ldpsql.estimate(PEOPLE, KRR, column="city", question="share")
    with pytest.raises(InvalidDomain, match="have no order"):  # raised by SQL
        ldpsql.estimate(PEOPLE, KRR, column="city", question="mean")
    with pytest.raises(WrongType, match=r"pandas\.Series is not a stream of record batches"):
        ldpsql.perturb_batches(PEOPLE.city, {"city": KRR})


def test_a_relation_of_duckdb_is_a_frame() -> None:
    assert size(ldpsql.estimate(duckdb.sql("SELECT 'Lima' AS city"), KRR, column="city")) == 1


def test_everything_else_works_where_pandas_is_not_installed() -> None:
    script = f"""
import sys
from importlib.machinery import PathFinder
find, absent = PathFinder.find_spec, ("pandas", "sqlalchemy")
PathFinder.find_spec = lambda name, *path: None if name.split(".")[0] in absent else find(name, *path)
import ldpsql, polars as pl, numpy as np, pyarrow as pa
for column in ({CITIES}, pa.array({CITIES}), np.array({CITIES}), pl.Series({CITIES})):
    ldpsql.perturb(column, "krr(1, {CITIES})")
frame = pl.DataFrame({{"city": {CITIES}}})
ldpsql.estimate(frame, "krr(1, {CITIES})", column="city")
con = ldpsql.connect()
ldpsql.perturb_table(con, frame, "reports", {{"city": "krr(1, {CITIES})"}})
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


@pytest.fixture
def engine(tmp_path: Path) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(f"duckdb:///{tmp_path}/people.duckdb")


def test_a_connection_of_sqlalchemy_is_attached(engine: sqlalchemy.Engine) -> None:
    with engine.connect() as con:
        con.execute(sqlalchemy.text("SELECT 1"))  # a transaction is open
        with pytest.warns(PrivacyLeakWarning, match="it has an open result"):
            assert ldpsql.attach(con) is con
        assert con.execute(sqlalchemy.text(f"SELECT ldp.perturb('Lima', {KRR_SQL})")).scalar() == "Lima"
    with engine.connect() as other:
        assert other.execute(sqlalchemy.text(f"SELECT ldp.perturb('Oslo', {KRR_SQL})")).scalar() == "Oslo"


def test_a_connection_of_the_database_api_is_attached(engine: sqlalchemy.Engine) -> None:
    for raw in (engine.raw_connection(), engine.raw_connection().driver_connection):
        assert ldpsql.attach(raw, name="again") is raw


def test_whole_runs_take_a_connection_of_sqlalchemy(engine: sqlalchemy.Engine) -> None:
    with engine.connect() as con:
        assert ldpsql.perturb_table(con, PEOPLE, "reports", {"city": KRR}, keep=["n"]).rows == 60  # type: ignore[arg-type]
        assert con.execute(sqlalchemy.text("SELECT count(*) FROM reports")).scalar() == 60


def test_what_is_not_a_connection_is_refused_by_its_type(engine: sqlalchemy.Engine) -> None:
    with engine.connect() as closed:
        pass
    for wrong, name in ((engine, "sqlalchemy.Engine"), (closed, "sqlalchemy.Connection"), ("x.db", "str")):
        with pytest.raises(ConnectionRefused, match=rf"a {name} is not an open connection of DuckDB.*engine.connect\(\)"):
            ldpsql.attach(wrong)
