"""Speed of the SQL functions, against plain DuckDB on the same rows in the same run: K = 100 values, 100 groups."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from tempfile import TemporaryDirectory

import duckdb
from duckdb import DuckDBPyConnection

import ldpsql
from benchmarks.figures import Figure, Work, against, at_least, at_most, cpu_clock, in_turns


def figures(quick: bool) -> list[Figure]:
    """Return the ratios of perturbing and estimating."""
    con = ldpsql.connect()
    con.execute("CREATE MACRO m() AS ldp.krr(1.0, range(100))")
    return [
        *connecting(),
        *planning(),
        *lists(),
        *literals(),
        *perturbing(con),
        *hundred_groups(con, 10 if quick else 100),
        *many_groups(con),
    ]


def ratio(con: DuckDBPyConnection, plain: str, own: str) -> float:
    """Return the time in which a query of ours makes a table, as a ratio to that of a plain query."""
    seconds = in_turns(*(partial(con.execute, f"CREATE OR REPLACE TABLE c AS {query}") for query in (plain, own)))
    return seconds[1] / seconds[0]


_FRESH = "import duckdb, ldpsql; {}.connect().close()"
_COLUMNS = [f"c{n}" for n in range(6)]


def connecting() -> list[Figure]:
    """Connect in a fresh process and again in the same one; before that, the first process has made the file of macros."""
    programs = ([sys.executable, "-c", _FRESH.format(library)] for library in ("ldpsql", "duckdb"))
    ours, plain = in_turns(*(partial(subprocess.run, program, check=True) for program in programs), clock=cpu_clock)
    with TemporaryDirectory() as folder:  # a cache folder without the file
        first = {**os.environ, "XDG_CACHE_HOME": folder}
        begun = cpu_clock()
        subprocess.run([sys.executable, "-c", _FRESH.format("ldpsql")], check=True, env=first)
        installed = cpu_clock() - begun
    again, empty = in_turns(lambda: ldpsql.connect().close(), lambda: duckdb.connect().close(), clock=cpu_clock)
    return [
        at_most("ldpsql.connect() in a fresh process", ours, 0.5, "s of processor time"),
        Figure("ldpsql.connect() in a fresh process, against importing it and connecting with DuckDB alone", ours / plain),
        at_most("ldpsql.connect() for the first time after installation", installed, 2, "s of processor time"),
        at_most("ldpsql.connect() again", again, 0.1, "s of processor time"),
        Figure("ldpsql.connect() again, against duckdb.connect()", again / empty),
    ]


_ONE = "ldp.krr(1, [0, 1, 2])"
# Statements on 100 rows, where all the time is planning, each with its bound in ms of processor time.
_STATEMENTS = {
    "ldp.perturb of one value": (f"SELECT ldp.perturb(1, {_ONE})", 5),
    "ldp.ibu": (f"SELECT ldp.ibu(x, {_ONE}) FROM r", 6),
    "ldp.mean": (f"SELECT ldp.mean(x, {_ONE}) FROM r", 10),
    "ldp.estimate": (f"FROM ldp.estimate(r, x, {_ONE})", 12),
    "ldp.perturb_rows of a column": (f"FROM ldp.perturb_rows(r, {{x: {_ONE}}})", 30),
    "ldp.perturb_rows of six columns": (f"FROM ldp.perturb_rows(six, {{{', '.join(f'{c}: one()' for c in _COLUMNS)}}})", 60),
    "ldp.compare": ("SELECT ldp.compare(ldp.counts(x), ldp.counts(x), one(), of := 1) FROM r", 40),
}
_PLAIN = "SELECT histogram(x) FROM r"  # DuckDB plans and runs it in .7 ms where the bounds were set


def planning() -> list[Figure]:
    """Run statements on 100 rows, against a plain aggregate over them."""
    con = ldpsql.connect()
    taken, plain = _planned(con)
    return [
        figure
        for (what, (_, most)), one in zip(_STATEMENTS.items(), taken, strict=True)
        for figure in (
            at_most(f"{what}, planning", 1000 * one, most, "ms"),
            at_most(f"{what}, against a plain histogram", one / plain, most / 0.7),
        )
    ]


def _rows(con: DuckDBPyConnection, query: str) -> list[tuple[object, ...]]:
    return con.execute(query).fetchall()


def _planned(con: DuckDBPyConnection) -> tuple[list[float], float]:
    """Return the processor time of each statement, and that of a plain aggregate over the same rows."""
    con.execute(f"CREATE TABLE r AS SELECT ldp.perturb(range % 3, {_ONE}) AS x FROM range(100); SET threads = 1")
    con.execute(f"CREATE MACRO one() AS {_ONE}")
    con.execute(f"CREATE TABLE six AS SELECT {', '.join(f'x AS {c}' for c in _COLUMNS)} FROM r")
    works = [partial(_rows, con, query) for query in (*(query for query, _ in _STATEMENTS.values()), _PLAIN)]
    *taken, plain = in_turns(*works, repeats=25, clock=cpu_clock)
    return taken, plain


_LISTS = {
    "a list": str([f"k{n}" for n in range(5_000)]),
    "a computed list": "list_transform(range(5_000), lambda i: 'k' || i)",
    "a subquery": "(SELECT list(k ORDER BY k) FROM keys)",
}
# A mechanism over 5,000 strings, and the statements in which it stands for @.
_OF_STRINGS = {
    "ldp.krr(1, {})": {
        "perturb": "SELECT ldp.perturb(x, @) FROM people",
        "perturb_rows": "FROM ldp.perturb_rows(people, {x: @})",
        "inv": "SELECT ldp.inv(x, @) FROM reports",
        "ibu": "SELECT ldp.ibu(x, @) FROM reports",
        "top": "SELECT ldp.top(x, @, 10) FROM reports",
    },
    "ldp.pckv_grr(1, {}, padding := 2)": {
        "perturb of pairs": "SELECT ldp.perturb(x, @) FROM people",
        "perturb_rows of pairs": "FROM ldp.perturb_rows(people, {x: @})",
        "key_value": "SELECT ldp.key_value(x, @) FROM reports",
    },
}


def lists() -> list[Figure]:
    """Run statements on 100 rows by a mechanism over 5,000 strings, in a macro, against the same mechanism declared."""
    figures = []
    for mechanism, statements in _OF_STRINGS.items():
        con = ldpsql.connect()
        con.execute("SET threads = 1; CREATE TABLE keys AS SELECT 'k' || range AS k FROM range(5_000)")
        value = "[{'key': 'k' || range, 'value': 0.5}]" if "pckv" in mechanism else "'k' || range"
        con.execute(f"CREATE TABLE people AS SELECT {value} AS x FROM range(100)")
        for place, text in enumerate(_LISTS.values()):
            con.execute(f"CREATE MACRO m{place}() AS {mechanism.format(text)}")
        con.execute("SELECT ldp.declare('m', m0())").fetchall()
        con.execute("CREATE TABLE reports AS SELECT ldp.perturb(x, ldp.declared('m')) AS x FROM people")
        for what, statement in statements.items():
            written = ("ldp.declared('m')", *(f"m{place}()" for place in range(len(_LISTS))))
            works = [partial(_rows, con, statement.replace("@", one)) for one in written]
            for work in works:
                work()
            declared, *taken = in_turns(*works, clock=cpu_clock)
            most = max(500 * declared, 60)
            figures += [
                at_most(f"{what}, 5,000 strings as {how}, more than declared", 1000 * (one - declared), most, "ms")
                for how, one in zip(_LISTS, taken, strict=True)
            ]
    return figures


def literals() -> list[Figure]:
    """Draw with mechanisms whose tables of numbers are written into the statement; the first statement certifies them."""
    con = ldpsql.connect()
    con.execute("CREATE TABLE people AS SELECT range % 300 AS x FROM range(100_000); SET threads = 1")
    rows = [[100 / 399 if x == y else 1 / 399 for y in range(300)] for x in range(300)]
    distances = [[abs(x - y) for y in range(384)] for x in range(384)]
    con.execute(f"CREATE MACRO matrix() AS ldp.matrix(range(300), {rows})")
    con.execute(f"CREATE MACRO metric() AS ldp.exponential(1, range(384), distances := {distances})")
    con.execute("SELECT ldp.perturb(1, ldp.krr(1, [0, 1, 2]))").fetchall()
    matrix, metric = (
        in_turns(partial(con.execute, statement), repeats=1, clock=cpu_clock)[0]
        for statement in (
            "CREATE TABLE r AS SELECT ldp.perturb(x, matrix()) AS x FROM people",
            "CREATE TABLE s AS SELECT ldp.perturb(1, metric())",
        )
    )
    return [
        at_most("100,000 rows by a matrix of 300 x 300 in the statement", matrix, 2, "s of processor time"),
        at_most("a row by distances of 384 x 384 in the statement", metric, 3, "s of processor time"),
        *_of_a_subquery(),
    ]


def _of_a_subquery() -> list[Figure]:
    """Draw with a list of a million strings that a subquery returns."""
    con = ldpsql.connect()
    con.execute("CREATE TABLE keys AS SELECT 'k' || range AS k FROM range(1_000_000); SET threads = 1")
    con.execute("CREATE TABLE more AS SELECT 'k' || range % 1_000_000 AS x FROM range(1_200_000)")
    con.execute("CREATE TABLE few AS FROM more LIMIT 200_000")
    con.execute("CREATE MACRO keyed() AS ldp.krr(4, (SELECT list(k) FROM keys))")
    query = "CREATE OR REPLACE TABLE c AS SELECT ldp.perturb(x, keyed()) AS x FROM {}"
    (once,) = in_turns(partial(con.execute, query.format("few")), repeats=1, clock=cpu_clock)
    few, more = in_turns(*(partial(con.execute, query.format(table)) for table in ("few", "more")), clock=cpu_clock)
    return [
        at_most("the first 200,000 rows by a subquery of a million strings", once, 3, "s of processor time"),
        at_most("a row by a subquery of a million strings, after that", (more - few), 0.5, "us of processor time"),
    ]


def perturbing(con: DuckDBPyConnection) -> list[Figure]:
    """Perturb ten million rows into a table."""
    con.execute("CREATE TABLE people AS SELECT range % 100 AS x FROM range(10_000_000)")
    copy = partial(con.execute, "CREATE OR REPLACE TABLE c AS SELECT x FROM people")
    perturb = partial(con.execute, "CREATE OR REPLACE TABLE c AS SELECT ldp.perturb(x, m()) AS x FROM people")
    con.execute("CREATE OR REPLACE TABLE pairs AS SELECT x, x % 7 AS region FROM people")
    rows = partial(con.execute, "CREATE OR REPLACE TABLE c AS FROM ldp.perturb_rows(pairs, {x: m()}, keep := ['region'])")
    plain, perturbed, alone, listed = in_turns(copy, perturb, partial(_with_one_thread, con, perturb), rows)
    strings = _row_of_strings(con, 1_000_000) / _row_of_strings(con, 100)
    tree = _row(con, "(hash(i) % 1_048_576)::BIGINT", "ldp.hierarchy(1, 0, 1_048_575, step := 1)")
    numbers = _row(con, "(hash(i) % 100)::BIGINT", "ldp.krr(1, range(100))")
    return [
        Figure("ldp.perturb, 10 M rows into a table", 10 / perturbed, "M rows/s"),
        Figure("ldp.perturb, 10 M rows into a table, SET threads = 1", 10 / alone, "M rows/s"),
        Figure("ldp.perturb against copying the column", perturbed / plain),
        at_least("ldp.perturb, all threads against one", alone / perturbed, 1.0, "x"),
        at_least("ldp.perturb_rows, a column kept, all threads, against ldp.perturb with one", alone / listed, 1.7, "x"),
        at_most("ldp.perturb, a row, K = 1,000,000 strings against K = 100", strings, 1.3),
        at_most("ldp.perturb, a row, hierarchy of 1,048,576 values against k-RR of 100", tree / numbers, 2),
    ]


def _with_one_thread(con: DuckDBPyConnection, work: Work) -> None:
    """Run a query with one thread of DuckDB."""
    con.execute("SET threads = 1")
    work()
    con.execute("RESET threads")


def hundred_groups(con: DuckDBPyConnection, millions: int) -> list[Figure]:
    """Estimate 100 groups, and all reports as one group."""
    con.execute(
        f"""CREATE TABLE r AS SELECT (range // 10) % 100 AS g, ldp.perturb(range % 100, m()) AS x
            FROM range({millions} * 1_000_000)"""
    )
    grouped = ratio(con, "SELECT g, x, count(*) FROM r GROUP BY g, x", "SELECT g, ldp.ibu(x, m()) FROM r GROUP BY g")
    single = ratio(con, "SELECT x, count(*) FROM r GROUP BY x", "SELECT ldp.ibu(x, m()) FROM r")
    return [
        at_most(f"ldp.ibu, {millions} M reports, 100 groups, against GROUP BY", grouped, 1.3),
        Figure(f"ldp.ibu, {millions} M reports, one group, against GROUP BY", single),
    ]


def many_groups(con: DuckDBPyConnection) -> list[Figure]:
    """Estimate 100,000 groups of 100 reports."""
    con.execute(
        "CREATE OR REPLACE TABLE r AS SELECT range % 100_000 AS g, ldp.perturb(range % 97, m()) AS x FROM range(10_000_000)"
    )
    several = ratio(con, "SELECT g, histogram(x) FROM r GROUP BY g", "SELECT g, ldp.ibu(x, m()) FROM r GROUP BY g")
    return [at_most("ldp.ibu, 100,000 groups, against histogram", several, 2)]


def _row_of_strings(con: DuckDBPyConnection, size: int) -> float:
    """Return the processor time of a row with so many strings."""
    strings = f"(SELECT list('item ' || i) FROM range({size}) t(i))"
    return _row(con, f"'item ' || hash(i) % {size}", f"ldp.krr(4, {strings})")


def _row(con: DuckDBPyConnection, value: str, mechanism: str) -> float:
    """Return the processor time of 2.5 million rows, without that of planning; the value is an expression of i."""
    con.execute(f"CREATE OR REPLACE TABLE few AS SELECT {value} AS x FROM range(500_000) t(i)")
    con.execute("CREATE OR REPLACE TABLE more AS FROM few, range(6) SELECT x")
    con.execute(f"SET VARIABLE mechanism = {mechanism}")
    query = "CREATE OR REPLACE TABLE c AS SELECT ldp.perturb(x, getvariable('mechanism')) AS x FROM {}"
    few, more = in_turns(*(partial(con.execute, query.format(table)) for table in ("few", "more")), clock=cpu_clock)
    return more - few


def check() -> Iterator[Figure]:
    """Yield the processor time of perturbing and estimating against plain DuckDB."""
    con = ldpsql.connect()
    con.execute("CREATE MACRO m() AS ldp.krr(1.0, range(100))")
    con.execute("CREATE TABLE people AS SELECT range % 100 AS x, range % 10_000 AS g FROM range(3_000_000)")
    con.execute("CREATE TABLE reports AS SELECT ldp.perturb(x, m()) AS x, g FROM people")
    for what, own, plain in (
        ("perturb against copying the column", "SELECT ldp.perturb(x, m()) AS x FROM people", "SELECT x FROM people"),
        (
            "ibu of 3 M reports against GROUP BY",
            "SELECT ldp.ibu(x, m()) FROM reports",
            "SELECT x, count(*) FROM reports GROUP BY x",
        ),
        (
            "ibu of 10,000 groups against histogram",
            "SELECT g, ldp.ibu(x, m()) FROM reports GROUP BY g",
            "SELECT g, histogram(x) FROM reports GROUP BY g",
        ),
    ):
        yield against(what, *(partial(con.execute, f"CREATE OR REPLACE TABLE c AS {query}") for query in (own, plain)))
