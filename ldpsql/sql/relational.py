"""Estimates as one query of plain relational SQL, for engines without ldpsql: counts in, shares out.

It is written once, in DuckDB's dialect, and translated by sqlglot.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import pyarrow as pa
import sqlglot
from sqlglot import ErrorLevel, exp

from ldpsql import __version__
from ldpsql.channels import TOTAL, KeepOrSpread
from ldpsql.domains.domain import Domain
from ldpsql.errors import InvalidParameter
from ldpsql.inference.score_intervals import deviations
from ldpsql.mechanisms.base import CertifiedValues, Mechanism, certify_values
from ldpsql.quoting import quoted

Dialect: TypeAlias = Literal["duckdb", "postgres", "spark", "snowflake", "bigquery"]
DIALECTS: tuple[str, ...] = get_args(Dialect)
_DISTINCT = "SELECT DISTINCT"
_MOST_VALUES = 10_000  # of a query text

# The cells of each group with the shares of their reports; the place is NULL for a report that the mechanism cannot draw.
_CELLS = """
WITH alphabet AS (SELECT * FROM (VALUES {values}) AS t(place, value)),
counts AS (
    SELECT {keys}{column} AS value, CAST({count} AS DOUBLE) AS n FROM {table} WHERE NOT {column} IS NULL GROUP BY {keys}{column}
),
cells AS (
    SELECT {keys}value, MAX(place) AS place, SUM(n) AS n FROM (
        SELECT {keys}value, n, CAST(NULL AS INT) AS place FROM counts
        UNION ALL
        SELECT {keys}value, CAST(0 AS DOUBLE) AS n, place FROM {groups}alphabet
    ) AS both_kinds GROUP BY {keys}value
),
shares AS (
    SELECT {keys}value, place, n, SUM(CASE WHEN place IS NULL THEN n ELSE 0 END) OVER ({partition}) AS impossible,
        SUM(CASE WHEN place IS NULL THEN 0 ELSE n END) OVER ({partition}) AS total
    FROM cells
),
"""
# P(report | value) = spread + lift [report = value]: the maximum by water-filling, and what is nearest to the inversion.
_KEEP_OR_SPREAD = """
falling AS (
    SELECT {keys}value, place, impossible, total, n / total AS s,
        CAST(ROW_NUMBER() OVER ({partition} ORDER BY n DESC, place) AS DOUBLE) AS m,
        SUM(n / total) OVER ({partition} ORDER BY n DESC, place ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS above
    FROM shares WHERE NOT place IS NULL AND total > 0
),
last_ones AS (
    SELECT *,
        MAX(CASE WHEN s > {spread} * above / ({lift} + m * {spread}) THEN m END) OVER ({partition}) AS last_filled,
        MAX(CASE WHEN (s - {spread}) / {lift} > ((above - m * {spread}) / {lift} - 1) / m THEN m END)
            OVER ({partition}) AS last_near
    FROM falling
),
levels AS (
    SELECT *,
        MAX(CASE WHEN m = last_filled THEN above / ({lift} + m * {spread}) END) OVER ({partition}) AS scale,
        MAX(CASE WHEN m = last_near THEN ((above - m * {spread}) / {lift} - 1) / m END) OVER ({partition}) AS shift
    FROM last_ones
),
unscaled AS (
    SELECT *, (s - {spread}) / {lift} AS inverted,
        CASE WHEN m <= last_filled THEN (s / scale - {spread}) / {lift} ELSE 0 END AS filled,
        CASE WHEN m <= last_near THEN (s - {spread}) / {lift} - shift ELSE 0 END AS near
    FROM levels
),
estimates AS (
    SELECT *, filled / SUM(filled) OVER ({partition}) AS likeliest, near / SUM(near) OVER ({partition}) AS inside FROM unscaled
),
errors AS (
    SELECT *, SQRT(({spread} + {lift} * likeliest) * (1 - {spread} - {lift} * likeliest) / total) / {lift} AS likeliest_error,
        SQRT(({spread} + {lift} * inside) * (1 - {spread} - {lift} * inside) / total) / {lift} AS inverted_error,
        (s + {z} * {z} / (2 * total)) / (1 + {z} * {z} / total) AS middle,
        {z} * SQRT(s * (1 - s) / total + {z} * {z} / (4 * total * total)) / (1 + {z} * {z} / total) AS reach
    FROM estimates
),
kept AS (
    SELECT *, GREATEST(reach / {lift}, {z} * likeliest_error) / 2 AS likeliest_kept,
        GREATEST(reach / {lift}, {z} * inverted_error) / 2 AS inverted_kept,
        (middle - reach - {spread}) / {lift} AS begins, (middle + reach - {spread}) / {lift} AS ends
    FROM errors
)
SELECT {keys}value, likeliest AS estimate, likeliest_error AS std_error,
    LEAST(GREATEST(LEAST(begins, 1 - likeliest_kept), 0), likeliest) AS low,
    GREATEST(LEAST(GREATEST(ends, likeliest_kept), 1), likeliest) AS high,
    inverted, inverted_error AS inverted_std_error,
    LEAST(GREATEST(LEAST(begins, 1 - inverted_kept), 0), inverted) AS inverted_low,
    GREATEST(LEAST(GREATEST(ends, inverted_kept), 1), inverted) AS inverted_high,
    total AS reports, impossible
FROM kept ORDER BY {keys}place
"""
_NAMES = frozenset(
    {"value", *re.findall(r"\bAS (\w+)", _CELLS + _KEEP_OR_SPREAD), *re.findall(r"(\w+) AS \(", _CELLS + _KEEP_OR_SPREAD)}
)


@dataclass(frozen=True)
class Source:
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


def query(mechanism: Mechanism, source: Source, dialect: str, view: str = "") -> str:
    """Return the query that estimates the shares of a k-RR mechanism, in a dialect of SQL; or one that creates a view of it.

    Its columns are the keys, the value, the maximum of the likelihood and the inversion with their errors, the number of
    reports, and of those that the mechanism cannot draw, which are left out: it should be 0.

    Raises:
        InvalidParameter: if reports of the mechanism are not the values, or there are too many values or an unknown dialect.

    """
    if dialect not in DIALECTS:
        raise InvalidParameter("there is no such dialect", f"one of {', '.join(DIALECTS)}")
    taken = [key for key in source.keys if key.lower() in _NAMES]
    if taken:
        raise InvalidParameter(
            f"the query has a column {taken[0]} of its own", "give the column of the groups another name in a view"
        )
    certified = certify_values(mechanism)
    channel = _channel(certified)
    text = (_CELLS + _KEEP_OR_SPREAD).format(
        **_read_by(source),
        values=_rows(certified.values),
        spread=_number(channel.spread / TOTAL),
        lift=_number((channel.keep - channel.spread) / TOTAL),
        z=_number(deviations(0.95)),
    )
    head = f"-- {mechanism.name}, {certified.certificate.claim}; by ldpsql {__version__}, for {dialect}. Nothing here perturbs."
    return f"{head}\n{_translated(f'CREATE VIEW {quoted(view)} AS {text}' if view else text, dialect)};\n"


def _channel(certified: CertifiedValues) -> KeepOrSpread:
    """Return the channel of a k-RR mechanism whose values fit into a query."""
    channel, values = certified.channel, certified.values
    if not isinstance(channel, KeepOrSpread) or channel.keep <= channel.spread or certified.reports != values:
        raise InvalidParameter(
            f"the reports of {certified.name} have no relational SQL", "k-RR has; leave out --dialect for DuckDB"
        )
    if len(values) > _MOST_VALUES:
        raise InvalidParameter(f"a query of more than {_MOST_VALUES:,} values is too large", "use ldpsql itself")
    return channel


def _read_by(source: Source) -> dict[str, str]:
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


def _translated(text: str, dialect: str) -> str:
    """Return a query of DuckDB in another dialect.

    Places are never NULL where rows are ordered, so it does not matter where a dialect puts NULLs.
    """
    (translated,) = sqlglot.transpile(text, read="duckdb", write=dialect, pretty=True, unsupported_level=ErrorLevel.IGNORE)
    return translated


def _number(value: float) -> str:
    """Return a double as SQL, from text: elsewhere than in DuckDB, a literal may be a decimal number."""
    return f"CAST('{value!r}' AS DOUBLE)"


def _rows(values: Domain) -> str:
    """Return the places and the values of a domain as the rows of VALUES."""
    column = values.values
    literal = _literal_of(column.type)
    return ", ".join(f"({place}, {literal(value)})" for place, value in enumerate(column.to_pylist()))


def _literal_of(kind: pa.DataType) -> Any:
    """Return the function that writes values of a type in SQL.

    Raises:
        InvalidParameter: if engines differ in how they write it.

    """
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return lambda value: exp.Literal.string(value).sql(dialect="duckdb")
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return lambda value: str(value).upper()
    if pa.types.is_floating(kind):
        return _number
    if pa.types.is_date(kind):
        return lambda value: f"CAST('{value.isoformat()}' AS DATE)"
    raise InvalidParameter(f"values of type {kind} have no SQL that all engines read", "declare text, numbers or dates")
