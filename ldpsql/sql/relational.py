"""Estimates as one query of plain relational SQL, for engines without ldpsql: counts in, shares out.

It is written once, in DuckDB's dialect, and translated by sqlglot. The parts are in the folder `queries`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import ErrorLevel, exp

from ldpsql import __version__
from ldpsql.channels import TOTAL, KeepOrSpread, OrthogonalHash, SetChannel, Subsets, TableChannel
from ldpsql.domains.domain import Domain
from ldpsql.domains.product import Product
from ldpsql.domains.sql_types import shown_type
from ldpsql.errors import InvalidParameter
from ldpsql.inference.counting import operator_of
from ldpsql.inference.operators import Operator
from ldpsql.inference.score_intervals import deviations
from ldpsql.mechanisms.base import CertifiedValues, Mechanism, certify_values
from ldpsql.quoting import quoted
from ldpsql.reports import ListedHashReports, SetReports

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
