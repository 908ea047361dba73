"""What of a database any client of DuckDB can import, and what needs ldpsql: found by creating each object in both.

An export is a folder as of DuckDB's EXPORT DATABASE, with the tables of reports and their records, and without the objects that
a plain client cannot create. Those are in ``ldpsql.sql``.
"""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import duckdb
import numpy as np
import pyarrow as pa
import sqlglot
from duckdb import DuckDBPyConnection
from sqlglot import ErrorLevel, exp

from ldpsql import __version__
from ldpsql.channels import TOTAL, KeepOrSpread, OrthogonalHash, SetChannel, Subsets, TableChannel
from ldpsql.domains.domain import Domain
from ldpsql.domains.product import Product
from ldpsql.domains.sql_types import shown_type
from ldpsql.errors import DestinationRefused, InvalidParameter, PrivacyLeakWarning, SourceRefused
from ldpsql.inference.counting import operator_of
from ldpsql.inference.operators import Operator
from ldpsql.inference.score_intervals import deviations
from ldpsql.mechanisms.base import CertifiedValues, Mechanism, certify_values
from ldpsql.quoting import quoted, text_literal
from ldpsql.registry.agreement import KEY, NONE, of_sql_type, of_text
from ldpsql.reports import ListedHashReports, SetReports
from ldpsql.sql.attach import connect
from ldpsql.sql.tokens import Statement, statements

_SCHEMA, _LOAD, _LDPSQL = "schema.sql", "load.sql", "ldpsql.sql"
_KINDS = ("view", "macro", "table", "sequence", "type", "schema", "index", "trigger")
_IF_USED = ("sequence", "type", "index", "trigger")  # only those that others need: values of an ENUM may come from raw rows
_TABLES = """
    SELECT schema_name, table_name,
           list({'name': column_name, 'comment': comment, 'type': data_type} ORDER BY column_index)
               FILTER (WHERE NOT is_generated)
    FROM duckdb_columns() WHERE database_name = 'source' AND NOT internal
    AND (schema_name, table_name) IN (SELECT (schema_name, table_name) FROM duckdb_tables() WHERE database_name = 'source')
    GROUP BY ALL ORDER BY ALL"""


class Object(NamedTuple):
    """A view, a macro or another object of a database: its kind, its name, and the statement that creates it."""

    kind: str
    name: str
    sql: str

    @property
    def bare(self) -> str:
        """The last part of the name, in lowercase."""
        return self.name.rpartition(".")[2].strip('"').lower()


@dataclass(frozen=True)
class Table:
    """A table: its schema, its name, its columns, and the comments of those that record a mechanism."""

    schema: str
    name: str
    columns: list[str]
    records: dict[str, str]

    @property
    def path(self) -> str:
        """The table as SQL writes it."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def shown(self) -> str:
        """The table as a user names it."""
        return self.name if self.schema == "main" else f"{self.schema}.{self.name}"

    @property
    def comments(self) -> str:
        """The statements that write the records."""
        columns = ((f"{self.path}.{quoted(column)}", text) for column, text in self.records.items())
        return "".join(f"COMMENT ON COLUMN {column} IS {text_literal(text)};\n" for column, text in columns)


@dataclass
class Portability:
    """The objects that a plain client can create, those that need ldpsql, and those that neither of them can create."""

    plain: list[Object] = field(default_factory=list)
    needing: list[Object] = field(default_factory=list)
    broken: list[Object] = field(default_factory=list)
    left: list[Table] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


def portability(database: str) -> Portability:
    """Return which objects of a database file need ldpsql; its data are not read.

    Raises:
        SourceRefused: if the file cannot be opened.

    """
    with _attached(database) as con:
        return _sorted(con, _tables(con))


def export(database: str, folder: Path, others: Collection[str] = ()) -> Portability:
    """Export the tables of reports of a database file, and what only reads them, for any client of DuckDB.

    Args:
        database: the file.
        folder: the folder to make; it appears whole or not at all.
        others: tables to export although no column of them records a mechanism.

    Raises:
        SourceRefused: if the file cannot be opened, or has no table of reports, or none of a name in ``others``.
        DestinationRefused: if the folder exists.

    """
    if folder.exists():
        raise DestinationRefused("the folder of an export must not exist", "name another one, or remove it first")
    with _attached(database) as con:
        listed, named = _tables(con), {name.lower() for name in others}
        if missing := named - {table.shown.lower() for table in listed}:
            raise SourceRefused(f"the database has no table {sorted(missing)[0]}", "write a schema as in lake.reports")
        chosen = [table for table in listed if table.records or table.shown.lower() in named]
        if not chosen:
            raise SourceRefused(
                "no table records the mechanism of a column",
                "name tables with --table; ldpsql.perturb_table records mechanisms",
            )
        result = _sorted(con, chosen)
        result.left = [table for table in listed if table not in chosen]
        with TemporaryDirectory(dir=folder.absolute().parent, prefix=f".{folder.name}.") as staging:
            _write(con, result, made := Path(staging) / "export")
            os.replace(made, folder)
    return result


@contextmanager
def _attached(database: str) -> Iterator[DuckDBPyConnection]:
    """Open a connection without ldpsql, with the file as the database ``source``."""
    with duckdb.connect() as con:
        try:
            con.execute(f"ATTACH {text_literal(database)} AS source (READ_ONLY)")
        except duckdb.Error:
            raise SourceRefused("the database cannot be opened", "close other connections to it") from None
        yield con


def _tables(con: DuckDBPyConnection) -> list[Table]:
    return [
        Table(schema, name, [c["name"] for c in columns], {c["name"]: text for c in columns if of_text(text := _record(c))})
        for schema, name, columns in con.sql(_TABLES).fetchall()
    ]


def _record(column: dict[str, str | None]) -> str:
    """Return the comment of a column if it records a mechanism, or else the fingerprints in its type."""
    comment = column["comment"] or ""
    return comment if of_text(comment) else "\n".join(sorted(of_sql_type(column["type"] or "").get("", NONE)))


def _sorted(con: DuckDBPyConnection, tables: list[Table]) -> Portability:
    """Create the objects of the source in a database without ldpsql, the others in one with ldpsql; only these tables exist."""
    con.execute("ATTACH ':memory:' AS copied")
    con.execute("COPY FROM DATABASE source TO copied (SCHEMA)")
    kept = {(table.schema, table.name) for table in tables}
    for table in _tables(con):
        if (table.schema, table.name) not in kept:
            con.execute(f"DROP TABLE copied.{table.path} CASCADE")
    with TemporaryDirectory() as folder:
        con.execute(f"EXPORT DATABASE copied TO {text_literal(folder)} (FORMAT parquet)")
        text, loaded = ((Path(folder) / name).read_text(encoding="utf-8") for name in (_SCHEMA, _LOAD))
    order = [_object(statement.query.strip()).bare for statement in con.extract_statements(loaded)]  # after what they refer to
    tables = sorted(tables, key=lambda table: order.index(table.name.lower()))
    objects = [_object(statement.query.strip()) for statement in con.extract_statements(text)]
    with duckdb.connect() as plain:
        alone, _ = _created(plain, [one for one in objects if one.kind not in _IF_USED])
    with duckdb.connect() as plain:
        created, rest = _created(plain, objects)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        with connect() as attached:
            _created(attached, created)
            for table in tables:
                attached.execute(table.comments or "SELECT 1")
            needing, broken = _created(attached, rest)
    dependent = [one for one in created if one.kind not in _IF_USED and one not in alone]
    used = {token.name for one in dependent for token in _statement(one.sql).tokens}
    return Portability([one for one in created if one.kind not in _IF_USED or one.bare in used], needing, broken, tables=tables)


def _object(sql: str) -> Object:
    """Return kind and name of what a statement of an export creates or loads."""
    words = [token.text for token in _statement(sql).tokens]
    kind = next((i for i, word in enumerate(words) if word.lower() in _KINDS), 0) if words[0].lower() == "create" else 0
    name = [words[kind + 1]]
    for dot, part in zip(words[kind + 2 :: 2], words[kind + 3 :: 2], strict=False):
        if dot != ".":
            break
        name.append(part)
    return Object(words[kind].lower(), ".".join(name), sql)


def _statement(sql: str) -> Statement:
    (statement,) = statements(sql)
    return statement


def _created(con: DuckDBPyConnection, objects: list[Object]) -> tuple[list[Object], list[Object]]:
    """Create objects, each after those that it uses; return those that could be created, in this order, and the others."""
    created: list[Object] = []
    waiting = objects
    while waiting:
        before, again = len(created), []
        for one in waiting:
            try:
                con.execute(one.sql)
                created.append(one)
            except duckdb.Error:
                again.append(one)
        waiting = again
        if len(created) == before:
            break
    return created, waiting


def _write(con: DuckDBPyConnection, result: Portability, folder: Path) -> None:
    """Write the folder: the statements, a Parquet file for each table, and the records in both."""
    folder.mkdir()
    loading = []
    for number, table in enumerate(result.tables):
        stem = "".join(letter if letter.isalnum() else "_" for letter in table.shown)
        name = f"{stem}.parquet" if not (folder / f"{stem}.parquet").exists() else f"{stem}_{number}.parquet"
        recorded = ", ".join(f"{text_literal(KEY + column)}: {text_literal(text)}" for column, text in table.records.items())
        metadata = f", KV_METADATA {{{recorded}}}" if recorded else ""
        columns = ", ".join(map(quoted, table.columns))
        rows = f"SELECT {columns} FROM source.{table.path}"  # noqa: S608  # quoted
        con.execute(f"COPY ({rows}) TO {text_literal(str(folder / name))} (FORMAT parquet{metadata})")
        loading.append(f"COPY {table.path} FROM {text_literal(name)} (FORMAT parquet);\n")
    texts = {_SCHEMA: _text(result.plain) + "".join(table.comments for table in result.tables), _LDPSQL: _text(result.needing)}
    for name, text in {**texts, _LOAD: "".join(loading)}.items():
        (folder / name).write_text(text, encoding="utf-8")
    shutil.copymode(folder.parent.parent, folder)


def _text(objects: list[Object]) -> str:
    return "".join(f"{one.sql.rstrip(';')};\n" for one in objects)


# Estimates as one query of plain relational SQL, for engines without ldpsql: counts in, shares out.
#
# It is written once, in DuckDB's dialect, and translated by sqlglot. The parts are in the folder `queries`.

# Values as SQL that all engines read.


def number(value: float) -> str:
    """Return a double as SQL, from text: elsewhere than in DuckDB, a literal may be a decimal number."""
    return f"CAST('{float(value)!r}' AS DOUBLE)"


def text(value: str) -> str:
    """Return a string as SQL."""
    return exp.Literal.string(value).sql(dialect="duckdb")


def rows(columns: Iterable[tuple[object, ...]]) -> str:
    """Return rows of SQL expressions as those of VALUES."""
    return ", ".join(f"({', '.join(map(str, row))})" for row in columns)


def places(values: Domain) -> str:
    """Return the places and the values of a domain as the rows of VALUES."""
    literal = _literal_of(values.values.type)
    return rows((place, literal(value)) for place, value in enumerate(values.values.to_pylist()))


def _literal_of(kind: pa.DataType) -> Any:
    """Return the function that writes values of a type in SQL.

    Raises:
        InvalidParameter: if engines differ in how they write it.

    """
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return text
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return lambda value: str(value).upper()
    if pa.types.is_floating(kind):
        return number
    if pa.types.is_date(kind):
        return lambda value: f"CAST('{value.isoformat()}' AS DATE)"
    raise InvalidParameter(
        f"values of type {shown_type(kind)} have no SQL that all engines read", "declare text, numbers or dates"
    )


Dialect: TypeAlias = Literal["duckdb", "postgres", "spark", "snowflake", "bigquery"]
DIALECTS: tuple[str, ...] = get_args(Dialect)
_DISTINCT = "SELECT DISTINCT"
_NAMED = re.compile(r"\bAS t\(([\w, ]+)\)|\bAS (\w+)|\b(\w+) AS \(")  # of columns and tables
_MOST_VALUES = 10_000  # of a query text
_MOST_CHANCES = 16_384  # of a table of the inverse
_MOST_SYMBOLS = 1 << 20  # of the hashes of all values

# What the k-RR maximum adds to `votes.sql`: P(report | value) = spread + lift [report = value], by water-filling.
_FILLED = {
    "last_filled": (
        "MAX(CASE WHEN s > {spread} * above / ({lift} + m * {spread}) THEN m END) OVER ({partition}) AS last_filled,"
    ),
    "scale": "MAX(CASE WHEN m = last_filled THEN above / ({lift} + m * {spread}) END) OVER ({partition}) AS scale,",
    "filled": "CASE WHEN m <= last_filled THEN (s / scale - {spread}) / {lift} ELSE 0 END AS filled,",
    "likeliest": "filled / SUM(filled) OVER ({partition}) AS likeliest,",
    "likeliest_error": (
        "SQRT(({spread} + {lift} * likeliest) * (1 - {spread} - {lift} * likeliest) / total) / {lift} AS likeliest_error,"
    ),
    "likeliest_kept": "GREATEST(reach / {lift}, {z} * likeliest_error) / 2 AS likeliest_kept,",
    "likeliest_columns": (
        "likeliest AS estimate, likeliest_error AS std_error, "
        "LEAST(GREATEST(LEAST(begins, 1 - likeliest_kept), 0), likeliest) AS low, "
        "GREATEST(LEAST(GREATEST(ends, likeliest_kept), 1), likeliest) AS high,"
    ),
}


@dataclass(frozen=True)
class ReportTable:
    """What a query reads.

    Args:
        table: the table of reports, or of counts of them; its name may have dots.
        column: the column of the reports.
        counts: the column of their numbers, if the table has counts.
        keys: the columns of the groups.

    """

    table: str
    column: str
    counts: str = ""
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Query:
    """The parts of a query, in their order, and what it puts in their places."""

    parts: tuple[str, ...]
    places: dict[str, str]
    filled: bool = False  # whether it has the k-RR maximum


def query(mechanism: Mechanism, source: ReportTable, dialect: str, view: str = "") -> str:
    """Return the query that estimates the shares of a mechanism, in a dialect of SQL; or one that creates a view of it.

    Its columns are the keys, the value, for k-RR the maximum of the likelihood with its errors, the inversion with its errors,
    the number of reports, and of those that the mechanism cannot draw, which are left out: it should be 0.

    Raises:
        InvalidParameter: if the mechanism has no such query, or the query would be too large, or for an unknown dialect.

    """
    if dialect not in DIALECTS:
        raise InvalidParameter("there is no such dialect", f"one of {', '.join(DIALECTS)}")
    taken = [key for key in source.keys if key.lower() in _names()]
    if taken:
        raise InvalidParameter(
            f"the query has a column {taken[0]} of its own", "give the column of the groups another name in a view"
        )
    certified = certify_values(mechanism, "key-value estimates have no relational SQL: use ldp.key_value")
    own = _query(certified, source, dialect)
    read = _read_by(source) | own.places
    filled = {name: f" {part.format(**read)}" if own.filled else "" for name, part in _FILLED.items()}
    made = "".join(_part(name) for name in own.parts).format(**read, **filled)
    head = f"-- {mechanism.name}, {certified.certificate.claim}; by ldpsql {__version__}, for {dialect}. Nothing here perturbs."
    return f"{head}\n{_translated(f'CREATE VIEW {quoted(view)} AS {made}' if view else made, dialect)};\n"


def _query(certified: CertifiedValues, source: ReportTable, dialect: str) -> _Query:
    """Return what a query is made of.

    Raises:
        InvalidParameter: if there is none, or it would be too large.

    """
    channel, reports, values = certified.channel, certified.reports, certified.values
    if isinstance(values, Product):
        raise InvalidParameter(
            "rows of several columns have no relational SQL", "export each column with its own mechanism, or use ldp.margin"
        )
    if len(values) > _MOST_VALUES:
        raise _too_large(f"{_MOST_VALUES:,} values")
    if isinstance(channel, KeepOrSpread) and channel.keep > channel.spread and reports == values:
        spread, lift = channel.spread / TOTAL, (channel.keep - channel.spread) / TOTAL
        return _Query(("listed", "votes", "inverted"), {"values": places(values), **_votes(spread, lift)}, filled=True)
    if isinstance(channel, SetChannel) and isinstance(reports, SetReports):
        return _Query(("sets", "votes", "inverted"), _of_sets(channel, values, dialect))
    if isinstance(channel, OrthogonalHash) and isinstance(reports, ListedHashReports):
        return _Query(("hashes", "votes", "inverted"), _of_hashes(channel, values, source, dialect))
    if isinstance(channel, TableChannel) and isinstance(reports, Domain):
        inverted = _linear(channel, operator_of(certified.mechanism), source)
        domains = {"values": places(reports), "names": places(values), "last": "named"}
        return _Query(("listed", "linear", "inverted"), inverted | domains)
    raise InvalidParameter(
        f"the reports of {certified.name} have no relational SQL",
        "k-RR, listed reports, sets of values and hashes with orthogonal seeds have it",
    )


def _too_large(most: str) -> InvalidParameter:
    return InvalidParameter(f"a query of more than {most} is too large", "declare fewer values or bins, or let ldpsql estimate")


def _votes(spread: float, lift: float) -> dict[str, str]:
    return {"spread": number(spread), "lift": number(lift), "z": number(deviations(0.95)), "last": "kept"}


def _of_set_channel(channel: SetChannel, values: Domain) -> dict[str, str]:
    return {"values": places(values), **_votes(float(channel.miss), float(channel.hit - channel.miss))}


def _of_sets(channel: SetChannel, values: Domain, dialect: str) -> dict[str, str]:
    """Return the parts for sets: words of 64 bits in DuckDB, elsewhere text with a digit for each value."""
    size, words = len(values), -(-len(values) // 64)
    if dialect == "duckdb":
        supported = "((report[place // 64 + 1] >> (place % 64)) & 1) = 1"
        possible = f"len(report) = {words} AND (report[{words}] >> {(size - 1) % 64}) <= 1"
        chosen = "(SELECT SUM(bit_count(word)) FROM UNNEST(report) AS t(word))"
    else:
        supported = "SUBSTRING(report, place + 1, 1) = '1'"
        possible = f"LENGTH(report) = {size} AND REPLACE(REPLACE(report, '0', ''), '1', '') = ''"
        chosen = "LENGTH(REPLACE(report, '0', ''))"
    if isinstance(channel, Subsets):
        possible += f" AND {chosen} = {channel.chosen}"
    return {**_of_set_channel(channel, values), "supported": supported, "possible": possible}


def _of_hashes(channel: OrthogonalHash, values: Domain, source: ReportTable, dialect: str) -> dict[str, str]:
    """Return the parts for hashes: the fields of a struct in DuckDB, elsewhere two columns.

    Raises:
        InvalidParameter: if there are too many seeds and values.

    """
    symbols = channel.response.size
    width = len(str(symbols - 1))
    if channel.seeds * len(values) * width > _MOST_SYMBOLS:
        raise _too_large(f"{_MOST_SYMBOLS:,} symbols of hashes")
    supports = channel.supports(np.arange(channel.outputs, dtype=np.int32)).reshape(channel.seeds, symbols, len(values))
    lines = ["".join(f"{y:0{width}}" for y in row) for row in supports.argmax(axis=1).tolist()]
    return {
        **_of_set_channel(channel, values),
        "seed": _field(source.column, "seed", dialect),
        "symbol": _field(source.column, "y", dialect),
        "width": str(width),
        "last_symbol": str(symbols - 1),
        "hashes": rows((seed, text(line)) for seed, line in enumerate(lines)),
    }


def _field(column: str, field: str, dialect: str) -> str:
    return f"{quoted(column)}.{field}" if dialect == "duckdb" else quoted(f"{column}_{field}")


def _linear(channel: TableChannel, operator: Operator, source: ReportTable) -> dict[str, str]:
    """Return the parts for a channel with an inverse as a table.

    Raises:
        InvalidParameter: if the table is too large.
        IllConditioned: if the channel cannot be inverted.

    """
    if channel.inputs * channel.outputs > _MOST_CHANCES:
        raise _too_large(f"{_MOST_CHANCES:,} probabilities")
    operator.check_condition()
    inverse, chances, excess = np.asarray(operator.inverse), operator.matrix(), operator.excess
    cells = (
        (x, y, number(float(inverse[y, x])), number(float(chances[x, y])), number(float(excess[y])))
        for x, y in np.ndindex(chances.shape)
    )
    keys = ", ".join(quoted(key) for key in source.keys)
    return {
        "links": rows(cells),
        "scaled": " / SUM(v) OVER (PARTITION BY group_number)" if operator.scaled else "",
        "group_number": f"DENSE_RANK() OVER (ORDER BY {keys})" if keys else "1",
        "z": number(deviations(0.95)),
    }


def _read_by(source: ReportTable) -> dict[str, str]:
    """Return the parts of the text of a query that depend on what it reads."""
    keys = "".join(f"{quoted(key)}, " for key in source.keys)
    return {
        "keys": keys,
        "column": quoted(source.column),
        "count": f"SUM({quoted(source.counts)})" if source.counts else "COUNT(*)",
        "table": ".".join(quoted(part) for part in source.table.split(".")),
        "groups": f"({_DISTINCT} {keys[:-2]} FROM counts) AS all_groups CROSS JOIN " if keys else "",
        "partition": f"PARTITION BY {keys[:-2]}" if keys else "",
    }


@cache
def _part(name: str) -> str:
    """Return a part of a query without its comments."""
    lines = (files(__package__) / "queries" / f"{name}.sql").read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("--"))


@cache
def _names() -> frozenset[str]:
    """Return the names that a query gives to columns and tables."""
    parts = [_part(part.name.removesuffix(".sql")) for part in (files(__package__) / "queries").iterdir()]
    named = _NAMED.findall(" ".join([*parts, *_FILLED.values()]))
    return frozenset(name for several in named for names in several for name in names.replace(",", " ").split())


def _translated(made: str, dialect: str) -> str:
    """Return a query of DuckDB in another dialect.

    Places are never NULL where rows are ordered, so it does not matter where a dialect puts NULLs.
    """
    (translated,) = sqlglot.transpile(made, read="duckdb", write=dialect, pretty=True, unsupported_level=ErrorLevel.IGNORE)
    return translated
