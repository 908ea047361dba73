"""Counts that add up, supports of sets, and the engines that feed them."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql import Counts, merge, partial_counts, partial_supports
from ldpsql.errors import BadCounts, ImpossibleReport, InvalidParameter, NoReports, UnknownName
from ldpsql.questions import SHARES, GroupedCounts

CITIES = ["Lima", "Oslo", "Rome", "Kyiv"]
MECHANISMS = {
    "text": f"krr(epsilon=1, domain={CITIES})",
    "sets": f"oue(epsilon=1, domain={CITIES})",
    "hashes": f"olh(epsilon=1, domain={CITIES})",
    "private hashes": f"olh(epsilon=1, domain={CITIES}, seeds='private')",
}


def reports(mechanism: str, rows: int = 5000) -> pa.Table:
    values = pa.array(CITIES).take(pa.array(np.minimum(np.arange(rows) % 7, 3)))
    return pa.table({"city": ldpsql.perturb(values, mechanism)})


@pytest.mark.parametrize("kind", MECHANISMS)
def test_frames_of_every_engine_give_the_same_estimate(kind: str) -> None:
    mechanism, table = MECHANISMS[kind], reports(MECHANISMS[kind])
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    whole = ldpsql.estimate(frame["city"], mechanism).estimate
    for source in (table, table.to_reader(100), frame, frame.lazy()):
        assert (ldpsql.estimate(source, mechanism, column="city").estimate == whole).all()
        if not isinstance(source, pa.RecordBatchReader):
            assert (ldpsql.estimate(source, column="city", mechanism=mechanism, estimator="ibu").estimate == whole).all()


GROUPED = pl.DataFrame(
    {
        "re'gion": [["n", None, "S"][i % 3] for i in range(3000)],
        "x": ldpsql.perturb([1 + i % 3 for i in range(3000)], "krr(1, [1, 2, 3])"),
    }
)
ASKED: dict[str, dict[str, Any]] = {
    "shares": {},
    "mean": {"question": "mean"},
    "share": {"question": "share", "of": (1, 2)},
    "quantiles": {"question": "quantile", "q": [0.25, 0.75]},
    "top": {"question": "top", "most": 2},
}
IN_SQL = {
    "shares": 'FROM ldp.estimate(GROUPED, x, MADE, by := "re\'gion")',
    "mean": 'SELECT "re\'gion", unnest(ldp.mean(x, MADE)), count(*) FROM GROUPED GROUP BY "re\'gion"',
    "share": 'SELECT "re\'gion", unnest(ldp.share(x, MADE, [1, 2])), count(*) FROM GROUPED GROUP BY "re\'gion"',
    "quantiles": 'FROM ldp.quantile(GROUPED, x, MADE, [.25, .75], by := "re\'gion")',
    "top": 'FROM ldp.top(GROUPED, x, MADE, 2, by := "re\'gion")',
}


@pytest.mark.parametrize("asked", ASKED)
def test_groups_and_questions_of_every_frame_are_answered_as_in_sql(
    con: DuckDBPyConnection, asked: str, tmp_path: Path
) -> None:
    con.register("GROUPED", GROUPED)
    expected = sorted(con.sql(IN_SQL[asked].replace("MADE", "ldp.krr(1, [1, 2, 3])")).fetchall(), key=repr)
    GROUPED.write_parquet(tmp_path / "x.parquet")
    table = GROUPED.to_arrow()
    frames: list[Any] = [table, table.to_reader(700), table.to_pandas(), con.table("GROUPED"), tmp_path / "x.parquet"]
    for data in (GROUPED, GROUPED.lazy(), frames[[*ASKED].index(asked)]):  # of all other frames one in turn
        answers = ldpsql.estimate(data, "krr(1, [1, 2, 3])", by="re'gion", **ASKED[asked])
        assert sorted(answers.to_polars().rows(), key=repr) == expected
        assert answers.to_pandas().shape == (len(expected), len(expected[0]))
        assert f"{ASKED[asked].get('question', asked)} of x by re'gion under krr\nre'gion  " in repr(answers)
    expression = pl.col("x").ldp.estimate("krr(1, [1, 2, 3])", **ASKED[asked])  # type: ignore[attr-defined]
    for frame in (GROUPED, GROUPED.lazy()):
        made = frame.group_by("re'gion").agg(expression).lazy().collect()
        rows = made.explode("x", empty_as_null=True) if made["x"].dtype == pl.List else made
        assert sorted(rows.unnest("x").rows(), key=repr) == expected


@pytest.mark.parametrize("kind", ["arrow", "pandas", "polars", "lazy", "relation"])
def test_a_column_or_an_argument_that_is_not_there_is_refused_by_every_frame(con: DuckDBPyConnection, kind: str) -> None:
    con.register("GROUPED", GROUPED)
    frames = {"polars": GROUPED, "lazy": GROUPED.lazy(), "relation": con.table("GROUPED")}
    frames |= {"arrow": GROUPED.to_arrow(), "pandas": GROUPED.to_pandas()}
    ask: Any = partial(ldpsql.estimate, frames[kind], "krr(1, [1, 2, 3])")
    with pytest.raises(UnknownName, match="no column named 'y'"):
        ask(column="y")
    for arguments in ({"group": "re'gion"}, {"by": "re'gion", "most": 3}, {"question": "mean", "group": "re'gion"}):
        with pytest.raises(InvalidParameter, match=r"does not take these arguments.*confidence"):
            ask(column="x", **arguments)
    narrow, wide = (ask(column="x", by="re'gion", confidence=confidence).to_polars() for confidence in (0.6, 0.999))
    assert (narrow["estimate"] == wide["estimate"]).all()
    assert (narrow["high"] - narrow["low"] < wide["high"] - wide["low"]).all()


def test_groups_of_durations_are_durations() -> None:
    spans = [timedelta(days=1, microseconds=5), timedelta(0), None]
    frame = pl.DataFrame({"x": np.arange(300) // 3 % 3 + 1, "g": spans * 100})
    answers = ldpsql.estimate(frame, "krr(1, [1, 2, 3])", by="g", column="x")
    assert set(answers.to_polars()["g"]) == set(answers.to_arrow()["g"].to_pylist()) == set(spans)
    assert "1 day, 0:00:00.000005" in repr(answers)
    none = ldpsql.estimate(frame.clear(), "krr(1, [1, 2, 3])", by="g", column="x").to_polars()
    assert none.schema["g"] == pl.Duration("us")


def test_a_group_without_reports_has_no_estimate_in_polars() -> None:
    made = pl.col("x").filter(pl.col("re'gion") == "S").ldp.estimate("krr(1, [1, 2, 3])", "inv")  # type: ignore[attr-defined]
    lists = dict(GROUPED.group_by("re'gion").agg(made).rows())
    assert (lists["n"], lists[None], len(lists["S"])) == (None, None, 3)
    alone = GROUPED.filter(pl.col("re'gion") == "S").select(made)["x"].to_list()
    assert alone == [lists["S"]]
    assert GROUPED.clear().select(made)["x"].to_list() == [None]


def test_questions_of_one_column_and_of_counts_are_those_of_a_frame() -> None:
    expected = ldpsql.estimate(GROUPED, "krr(1, [1, 2, 3])", column="x", question="mean").to_arrow().to_pylist()
    for data in (GROUPED["x"], partial_counts(GROUPED, "x")):
        assert ldpsql.estimate(data, "krr(1, [1, 2, 3])", question="mean").to_arrow().to_pylist() == expected


def test_threads_and_a_forked_process_ask_about_frames_of_their_own() -> None:
    def shares_of(frame: pa.Table) -> pa.Table:  # Polars has no threads after a fork
        return ldpsql.estimate(frame, "krr(1, [1, 2, 3])", by="re'gion", column="x").to_arrow()

    frames = [GROUPED.head(n).to_arrow() for n in range(300, 2100, 300)]
    alone = [shares_of(frame) for frame in frames]
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(shares_of, frames)) == alone
    if not (child := os.fork()):
        os._exit(shares_of(frames[0]) != alone[0])
    assert os.waitpid(child, 0)[1] == 0


def test_a_forked_process_ends_as_it_would_without_ldpsql() -> None:
    asked = "ldpsql.estimate(pyarrow.table({'x': [1, 2] * 99, 'g': [1] * 198}), 'krr(1, [1, 2])', by='g', column='x')"
    child = f"if not (child := os.fork()): {asked}; sys.exit(3)"
    script = f"import os, sys, pyarrow, ldpsql\n{asked}\n{child}\nprint(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, check=False, text=True)
    assert (done.stdout, done.returncode) == ("3\n", 0), done.stderr


@pytest.mark.parametrize("imports", ["ldpsql, polars", "polars, ldpsql"])
def test_polars_has_the_methods_whenever_it_is_imported(imports: str) -> None:
    loaded = "print('polars' in sys.modules, 'ldpsql.bulk' in sys.modules)"
    made = "polars.DataFrame({'x': ['a', 'b'] * 99}).ldp.estimate(\"krr(1, ['a', 'b'])\").estimate.sum()"
    looked = "import importlib.util; importlib.util.find_spec('polars')"  # as libraries do that can use it
    program = f"import sys, ldpsql; {looked}; {loaded}" if imports.startswith("ldpsql") else "import sys; print(False, False)"
    script = f"{program}; import {imports}; {loaded}; print('ldp' in vars(polars.LazyFrame), round({made}))"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, check=False, text=True)
    assert done.stdout == "False False\nTrue False\nTrue 1\n", done.stderr


def held(table: pa.Table, kind: str) -> pl.DataFrame | pa.Table:
    """Return the same reports as an engine may hold them."""
    text = table["city"]
    if kind in ("categorical", "enum"):
        return pl.DataFrame(
            {"city": pl.Series(text.to_pylist(), dtype=pl.Categorical if kind == "categorical" else pl.Enum(CITIES))}
        )
    column = {
        "text": lambda: text,
        "large text": lambda: text.cast(pa.large_string()),
        "views": lambda: text.cast(pa.string_view()),
        "dictionary": text.dictionary_encode,
        "runs": lambda: pc.run_end_encode(text),
    }[kind]()
    return pa.table({"city": column})


@pytest.mark.parametrize("kind", ["categorical", "enum", "text", "large text", "views", "dictionary", "runs"])
def test_what_engines_hold_the_same_reports_in_makes_no_difference(kind: str) -> None:
    mechanism, table = MECHANISMS["text"], reports(MECHANISMS["text"])
    whole = ldpsql.estimate(table["city"], mechanism).estimate
    assert (ldpsql.estimate(held(table, kind), mechanism, column="city").estimate == whole).all()
    parts = [partial_counts(held(table.slice(0, 3000), kind), "city"), partial_counts(table.slice(3000), "city")]
    nothing = partial_counts(held(table.slice(0, 0), kind), "city")
    for added in (merge([*parts, nothing]), merge([nothing, *reversed(parts)]), parts[0] + parts[1]):
        assert (ldpsql.estimate(added, mechanism).estimate == whole).all()


def test_numbers_of_any_width_add_up_and_numbers_and_text_do_not() -> None:
    kinds = [pa.int8(), pa.int64(), pa.uint16(), pa.decimal32(5, 0), pa.decimal128(20, 0)]
    parts = [partial_counts(pa.table({"x": pa.array([1, 2], pa.int8()).cast(kind)}), "x") for kind in kinds]
    assert ldpsql.estimate(merge(parts), "krr(1, [1, 2])", "inv").diagnosis.reports == 10
    with pytest.raises(BadCounts):
        merge([parts[0], partial_counts(pa.table({"x": ["1"]}), "x")])


def test_nulls_are_left_out_and_nothing_is_refused() -> None:
    mechanism = MECHANISMS["text"]
    table = pa.table({"city": pa.array(["Lima", None, "Oslo", None])})
    counts = partial_counts(table, "city")
    assert dict(zip(counts.reports.to_pylist(), counts.numbers.to_pylist(), strict=True)) == {"Lima": 1, "Oslo": 1}
    for empty in (pa.table({"city": pa.nulls(3, pa.string())}), pa.table({"city": pa.array([], pa.string())})):
        with pytest.raises(NoReports):
            ldpsql.estimate(empty, mechanism, column="city")
    with pytest.raises(NoReports):
        merge([])
    with pytest.raises(UnknownName):
        partial_counts(table, "town")
    with pytest.raises(BadCounts):
        Counts.from_arrow(pa.table({"report": ["a"], "m": [1]}))
    with pytest.raises(BadCounts):
        Counts.from_arrow(pa.table({"report": ["a"], "n": [-1]}))
    much = Counts.from_arrow(pa.table({"report": ["a"], "n": [2**53 - 1]}))
    with pytest.raises(BadCounts):
        ldpsql.estimate(Counts.from_arrow(pa.table({"report": ["a"], "n": [2**53]})), "krr(1, ['a', 'b'])")
    with pytest.raises(BadCounts):
        merge([much, much])


def test_sql_counts_and_streamed_counts_are_the_same(con: DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE r AS SELECT ldp.perturb('Lima', city()) AS city FROM range(10_000)")
    in_sql = con.sql("SELECT city AS report, count(*) AS n FROM r GROUP BY city").to_arrow_table()
    streamed = partial_counts(con.sql("FROM r").to_arrow_reader(1000), "city")
    mechanism = MECHANISMS["text"]
    a, b = (ldpsql.estimate(counts, mechanism).estimate for counts in (Counts.from_arrow(in_sql), streamed))
    assert (a == b).all()
    assert [row["estimate"] for row in con.execute("SELECT ldp.ibu(city, city()) FROM r").fetchall()[0][0]] == a.tolist()


# --- sets ---


@pytest.mark.parametrize("size", [3, 64, 65, 130])
@pytest.mark.parametrize("name", ["oue", "rappor", "subset_selection"])
def test_supports_give_the_inversion_of_all_reports(name: str, size: int) -> None:
    mechanism = f"{name}(epsilon=1, domain={list(range(size))})"
    table = pa.table({"x": ldpsql.perturb((np.arange(4000) % size // 2).tolist(), mechanism)})
    batches = [pa.concat_tables([table.slice(start, 400), table.slice(start + 400, 500)]) for start in range(0, 4000, 900)]
    parts = [partial_supports(part, "x", mechanism) for part in batches]
    whole = merge(parts)
    bits = [sum(bin(word).count("1") for word in row) for row in table["x"].to_pylist()]
    assert (whole.reports, int(whole.numbers.sum())) == (4000, sum(bits))
    inverted = whole.inv()
    expected = ldpsql.estimate(table["x"], mechanism, "inv")
    for column in ("estimate", "std_error", "low", "high"):
        assert np.allclose(inverted[column].to_numpy(), getattr(expected, column), atol=1e-12), column
    inside = (inverted["low"].to_numpy() <= inverted["estimate"].to_numpy()) & (
        inverted["estimate"].to_numpy() <= inverted["high"].to_numpy()
    )
    assert inside.all()


def test_the_errors_of_supports_are_those_that_occur() -> None:
    mechanism, truth = f"oue(epsilon=1, domain={CITIES})", np.array([0.5, 0.5, 0.0, 0.0])
    inversions = [
        partial_supports(pa.table({"x": ldpsql.perturb(CITIES[:2] * 500, mechanism)}), "x", mechanism).inv() for _ in range(200)
    ]
    z = np.array([(t["estimate"].to_numpy() - truth) / t["std_error"].to_numpy() for t in inversions])
    # 800 squared normal values, four in a run nearly independent: their sum leaves 800 +- 5.5 * sqrt(1600) with about 1e-7,
    # a little more for the skewness of chi-square
    assert abs((z**2).sum() - 800) < 6 * np.sqrt(1600)
    covered = np.mean([(t["low"].to_numpy() <= truth) & (truth <= t["high"].to_numpy()) for t in inversions])
    assert covered > 0.95 - 6 * np.sqrt(0.95 * 0.05 / 800)


@pytest.mark.parametrize("name", [None, 0, b"city", ["city"]])
def test_a_column_is_named_by_a_string(name: Any) -> None:
    with pytest.raises(InvalidParameter, match="the name of a column must be a string"):
        partial_counts(reports(MECHANISMS["text"]), name)


def test_what_are_no_sets_is_refused() -> None:
    with pytest.raises(InvalidParameter):
        partial_supports(reports(MECHANISMS["text"]), "city", MECHANISMS["text"])
    with pytest.raises(ImpossibleReport):
        partial_supports(reports(MECHANISMS["text"]), "city", MECHANISMS["sets"])
    with pytest.raises(ImpossibleReport):  # a bit beyond the last value
        partial_supports(pa.table({"x": pa.array([[16]], pa.list_(pa.uint64()))}), "x", MECHANISMS["sets"])
    sets = f"subset_selection(epsilon=1, domain={CITIES})"
    with pytest.raises(ImpossibleReport):  # all four of them
        partial_supports(pa.table({"x": pa.array([[15]], pa.list_(pa.uint64()))}), "x", sets)
    with pytest.raises(ImpossibleReport):
        ldpsql.estimate(pa.array([[15], [3]], pa.list_(pa.uint64())), sets)
    with pytest.raises(NoReports):
        partial_supports(pa.table({"x": pa.array([], pa.list_(pa.uint64()))}), "x", sets).inv()


def test_a_hundred_times_the_reports_take_no_longer_once_counted() -> None:
    mechanism = f"krr(epsilon=1, domain={list(range(50))})"
    counts = partial_counts(pa.table({"x": ldpsql.perturb([i % 50 for i in range(20_000)], mechanism)}), "x")
    times: dict[int, list[float]] = {1: [], 10**5: []}
    for _ in range(7):
        for factor, taken in times.items():
            many = Counts(counts.reports, pa.array(counts.numbers.to_numpy() * np.uint64(factor)))
            start = process_time()
            ldpsql.estimate(many, mechanism, "inv(misfit='allow')")
            taken.append(process_time() - start)
    assert min(times[10**5]) < 10 * min(times[1])  # each report by itself would take a hundred thousand times as long


def test_counts_of_groups_add_up_apart_and_keep_their_groups_when_rows_are_selected() -> None:
    rows = [("a", 1, 7), ("b", 2, 7), ("a", 3, 2), ("a", 4, 7), ("c", 5, 9), ("b", 6, 2)]
    reports, numbers, groups = (pa.array(column) for column in zip(*rows, strict=True))
    counts = GroupedCounts.of(reports, numbers, groups.to_numpy())
    first, sums = counts.merge()
    merged = {(rows[row][0], rows[row][2]): total for row, total in zip(first.tolist(), sums.tolist(), strict=True)}
    assert merged == {("a", 7): 5, ("b", 7): 2, ("a", 2): 3, ("c", 9): 5, ("b", 2): 6}
    some = counts.select(np.array([0, 1, 4]))
    assert some.groups[some.group].tolist() == [7, 7, 9]
    assert [some.numbers[at].tolist() for at in some.rows_of_groups()] == [[1, 2], [5]]
    assert some.table(np.array([0, 1, 2]), 3).tolist() == [[1, 2, 0], [0, 0, 5]]


# --- Polars ---


def test_the_namespace_perturbs_eager_lazy_and_streaming(tmp_path: Path) -> None:
    mechanism = MECHANISMS["text"]
    frame = pl.DataFrame({"day": [0, 1, 2] * 20_000, "city": CITIES * 15_000})
    expression = pl.col("city").ldp.perturb(mechanism)  # type: ignore[attr-defined]
    frame.lazy().with_columns(expression).sink_parquet(tmp_path / "out.parquet")
    for made in (
        frame.with_columns(expression),
        frame.lazy().with_columns(expression).collect(),
        frame.lazy().with_columns(expression).collect(engine="streaming"),
        pl.read_parquet(tmp_path / "out.parquet"),
    ):
        assert made.schema == frame.schema
        assert made["day"].equals(frame["day"])
        estimate = ldpsql.estimate(made, mechanism, "inv", column="city")
        # four frames of four shares, each 5.5 standard errors off with probability 4e-8
        assert (abs(estimate.estimate - 0.25) < 5.5 * estimate.std_error).all()


@pytest.mark.parametrize("kind", MECHANISMS)
def test_the_namespace_gives_reports_of_every_type(kind: str) -> None:
    frame = pl.DataFrame({"city": CITIES * 500})
    made = frame.lazy().select(pl.col("city").ldp.perturb(MECHANISMS[kind]))  # type: ignore[attr-defined]
    assert made.collect_schema() == made.collect().schema
    assert ldpsql.estimate(made, MECHANISMS[kind], "inv", column="city").diagnosis.reports == 2000


def test_two_calls_are_two_draws_and_one_expression_is_one() -> None:
    frame = pl.DataFrame({"x": [0] * 200}).lazy()
    coin = "krr(epsilon='0.000001', domain=[0, 1])"
    shared, other = (pl.col("x").ldp.perturb(coin) for _ in range(2))  # type: ignore[attr-defined]
    two = frame.select(a=shared, b=other).collect()
    assert not two["a"].equals(two["b"])  # equal with probability 2^-200
    one = frame.select(a=shared, b=shared).collect()
    assert one["a"].equals(one["b"])
    again = frame.select(a=shared)
    assert not again.collect()["a"].equals(again.collect()["a"])


def test_a_value_outside_of_the_domain_is_refused_and_not_shown() -> None:
    frame = pl.DataFrame({"city": ["Turin"]})
    with pytest.raises(Exception, match="LDP302") as caught:
        frame.select(pl.col("city").ldp.perturb(MECHANISMS["text"]))  # type: ignore[attr-defined]
    assert "Turin" not in str(caught.value)


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.decimal128(38, 0)])
def test_sums_that_may_be_weights_are_refused_as_counts_and_a_cast_says_that_they_are_counts(kind: pa.DataType) -> None:
    sums = pa.table({"report": ["Lima", "Oslo"], "n": pa.array([5, 7]).cast(kind)})
    with pytest.raises(BadCounts, match="may be sums of weights") as caught:
        Counts.from_arrow(sums)
    assert "pass weight := column" in caught.value.hint
    whole = Counts.from_arrow(sums.set_column(1, "n", sums.column("n").cast(pa.int64())))
    assert ldpsql.estimate(whole, MECHANISMS["text"]).diagnosis.reports == 12


@pytest.mark.parametrize(("number", "counted"), [("sum(w)", False), ("sum(n)", False), ("sum(n)::BIGINT", True)])
def test_sql_takes_sums_as_counts_only_in_an_integer_type(con: DuckDBPyConnection, number: str, counted: bool) -> None:
    rows = "(VALUES ('Lima', 1.5, 2), ('Lima', 0.5, 3), ('Oslo', 2.0, 4)) t(city, w, n)"
    query = f"""SELECT list_sum(list_transform(ldp.inv(map(list(city), list(k)), city()), lambda s: s.estimate))
                FROM (SELECT city, {number} AS k FROM {rows} GROUP BY city)"""
    if counted:
        assert con.execute(query).fetchone() == (pytest.approx(1),)
        return
    with pytest.raises(duckdb.Error, match=r"LDP403.*sums of weights.*ldp\.counts"):
        con.execute(query)


@pytest.mark.parametrize(
    "call",
    [
        "system.main.__ldp_privic([{none}], [system.main.__ldp_mechanism(MADE)], '5')",
        "system.main.__ldp_people({none})",
        "system.main.__ldp_learn([{none}], NULL, HANDLE)",
        "system.main.__ldp_learn([MAP {{0: 9}}], {none}, HANDLE)",
        "system.main.__ldp_learn_in_order([{none}], HANDLE, 1)",
    ],
)
@pytest.mark.parametrize("none", ["[1]", "{'a': 1}", "1", "MAP {0: 1.5}", "MAP {0: -1}"])
def test_what_are_no_counts_is_refused_wherever_counts_are_taken(con: DuckDBPyConnection, call: str, none: str) -> None:
    handle = f"system.main.__ldp_ask('{SHARES}', MADE, '', 'shared', NULL, NULL)"
    query = call.format(none=none).replace("HANDLE", handle).replace("MADE", "ldp.krr(1, [0, 1])")
    with pytest.raises(duckdb.Error, match="LDP40"):
        con.sql(f"SELECT {query}").fetchall()


@pytest.mark.parametrize("numbers", [[1, 2], [1, 2, -1], [1, 2, 11], [0.5, 1, 2], ["a", "b", "c"], [[1, 2, 3]]])
def test_sums_by_position_that_cannot_be_are_refused(numbers: Any) -> None:
    with pytest.raises(BadCounts, match="for each value"):
        ldpsql.Supports("oue(1, ['a', 'b', 'c'])", 10, numbers)
    with pytest.raises(InvalidParameter, match="does not report sets"):
        ldpsql.Supports("krr(1, ['a', 'b', 'c'])", 10, [1, 2, 3])


def test_sums_by_position_that_others_added_up_are_estimated() -> None:
    table = reports(MECHANISMS["sets"])
    counted = partial_supports(table, "city", MECHANISMS["sets"])
    theirs = ldpsql.Supports(MECHANISMS["sets"], counted.reports, counted.numbers.tolist())
    assert theirs.inv().equals(counted.inv())
    assert (theirs + counted).reports == 2 * counted.reports
