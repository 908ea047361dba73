"""Counts of reports in the engine that holds them: one query of Ibis, which any of its backends runs; only counts travel."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sqlglot import exp

from ldpsql.bulk.columns import drawn_apart
from ldpsql.bulk.sources import check_columns
from ldpsql.domains.columns import family, is_record, plain, with_nulls
from ldpsql.errors import FetchedReports, LdpError, SourceRefused
from ldpsql.inference.counts import SUMS, bad_weights
from ldpsql.inference.mixed import Mixed
from ldpsql.mechanisms.base import Mechanism, certify
from ldpsql.mechanisms.foreign import read_foreign
from ldpsql.registry.agreement import KEY, NONE, Fingerprints, of_text
from ldpsql.reports import PairReports, type_of

if TYPE_CHECKING:
    from ibis.expr.types import Table, Value

N = "ldp n"  # the column of the numbers of rows, or of the sums of their weights; no column of a user has this name
MOST_CELLS = 20_000_000  # combinations of groups and reports that are fetched
_MANY = 100_000  # combinations from which on a warning follows if they are at least half of the rows
_ROWS_AT_ONCE = 1 << 16
PART = "c{}"  # the columns of the query: in some engines, names do not differ by their case


def is_expression(data: object) -> TypeGuard[Table]:
    """Return whether this is a table of Ibis: that of a backend, or what filters, joins and the like make of it."""
    ibis = sys.modules.get("ibis")  # without it there is none
    return ibis is not None and hasattr(ibis, "Table") and isinstance(data, ibis.Table)


def recorded_in(table: Table, column: str) -> Fingerprints | None:
    """Return the fingerprints of a column of reports, from its type or from the comments of the tables that it may come from.

    Returns None if nothing records them: the engine has no comments, or not on these columns.
    """
    kind = table[column].type() if column in table.columns else None
    if kind is not None and kind.is_struct() and is_record(kind.to_pyarrow()):
        return of_text(kind.names[0])
    import ibis.expr.operations as ops  # noqa: PLC0415  # an extra, imported by the user of such a table

    backend, found = _backend(table), NONE
    comments = _COMMENTS.get(backend.name)
    if comments is None:
        return None
    for base in table.op().find(ops.DatabaseTable):
        wanted = {"column": column, "table": base.name, "schema": base.namespace.database}
        literals = {name: exp.convert(text).sql(dialect=backend.dialect) for name, text in wanted.items()}
        with _asking(table):
            result = base.source.raw_sql(comments.format(**literals))
            rows = result.result_rows if hasattr(result, "result_rows") else result.fetchall()
        found = found.union(*(of_text(text) for (text,) in rows))
    return found or None


_COMMENTS = {
    "duckdb": (
        "SELECT comment FROM duckdb_columns() WHERE table_name = {table} AND column_name = {column} "
        "AND schema_name = coalesce({schema}, current_schema())"
    ),
    "postgres": (
        "SELECT d.description AS comment FROM pg_catalog.pg_description AS d JOIN pg_catalog.pg_attribute AS a "
        "ON a.attrelid = d.objoid AND a.attnum = d.objsubid JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid "
        "JOIN pg_catalog.pg_namespace AS s ON s.oid = c.relnamespace WHERE d.classoid = 'pg_catalog.pg_class'::regclass "
        "AND c.relname = {table} AND a.attname = {column} AND s.nspname = coalesce({schema}, current_schema())"
    ),
    "clickhouse": (
        "SELECT comment FROM system.columns WHERE table = {table} AND name = {column} "
        "AND database = coalesce({schema}, currentDatabase())"
    ),
}


def counted_there(
    table: Table,
    columns: Sequence[str],
    drew: Mechanism | Mixed,
    *,
    keys: Sequence[str] = (),
    weight: str | None = None,
    records: Mapping[str, Fingerprints | None] | None = None,
) -> pa.Table:
    """Return the distinct reports of each group, and how many rows have them, from one query of the backend of a table.

    Args:
        table: the table.
        columns: the columns of reports. A report that is a struct, such as that of ``olh``, may be spread over columns that are
            named after its fields, ``city_seed`` and ``city_y``. One that is a set may be the text of its bits.
        drew: the mechanism of the reports, of several columns that of a row; or the mechanism of each level.
        keys: the columns that define groups.
        weight: the column of the weights of the rows, or None.
        records: the fingerprints of columns, which become the metadata of the result.

    Returns:
        The keys and the reports under their names, and `N`: structs of n, or with weights of n, w and ww.

    Raises:
        UnknownName: if there is no such column.
        BadCounts: if a weight is negative, NULL or not finite.
        SourceRefused: if the backend cannot count them, or there are more than `MOST_CELLS` combinations.

    Warns:
        FetchedReports: if nearly all reports differ, so that they were fetched rather than counted.

    """
    forms = _forms(columns, drew)
    counted, parts = cells(table, {name: kind for name, (kind, _) in forms.items()}, keys=keys, weight=weight)
    with _asking(table):
        fetched = _fetched(counted.limit(MOST_CELLS + 1))
    if len(fetched) > MOST_CELLS:
        raise SourceRefused(
            f"there are more than {MOST_CELLS:,} combinations of groups and reports, too many to be fetched",
            "group by fewer values, or perturb with a mechanism whose reports are few, such as hadamard_response",
        )
    columns_there = (plain(column) for column in fetched.columns)
    made = {key: next(columns_there) for key in keys}
    for name, (kind, mechanism) in forms.items():
        own = iter([None if part is None else next(columns_there) for part in parts[name]])
        made[name] = _built(own, kind, mechanism)
    alone = made[columns[0]] if len(columns) == 1 else None  # several columns are a row, of which none need be reported
    there = np.ones(len(fetched), dtype=np.bool_) if alone is None else alone.is_valid().to_numpy(zero_copy_only=False)
    _warn(table, fetched.column("n").filter(pa.array(there)))
    if weight is None:
        made[N] = pa.StructArray.from_arrays([plain(fetched.column("n")).cast(pa.uint64())], SUMS[:1])
    else:
        made[N], there = _weights(fetched, there)
    metadata = {f"{KEY}{name}": "\n".join(sorted(record)) for name, record in (records or {}).items() if record}
    result = pa.table(made, metadata=metadata)
    if alone is None:
        return result.filter(pa.array(there))
    # A group of which nothing is left stays in the answer.
    at = result.column_names.index(columns[0])
    return result.set_column(at, result.field(at), alone.take(pa.array(np.arange(len(there)), mask=~there)))


def _fetched(query: Table) -> pa.Table:
    """Return the rows of a query; of PostgreSQL without the cursor of Ibis, for which the server counts in one process only."""
    backend = _backend(query)
    if backend.name != "postgres":
        return query.to_pyarrow()
    backend._run_pre_execute_hooks(query)
    schema, batches = query.schema(), []
    with backend.con.cursor() as cursor:
        rows = cursor.stream(backend.compile(query))
        while some := list(islice(rows, _ROWS_AT_ONCE)):
            batches.append(pa.RecordBatch.from_struct_array(pa.array(some, schema.as_struct().to_pyarrow())))
    return pa.Table.from_batches(batches, schema.to_pyarrow())


def cells(
    table: Table, kinds: Mapping[str, pa.DataType], *, keys: Sequence[str], weight: str | None = None, counts: str | None = None
) -> tuple[Table, dict[str, list[Value | None]]]:
    """Return the expression that counts, and the parts of each column of reports from which `_built` makes these.

    Args:
        table: the table.
        kinds: the columns of reports, and the types of these.
        keys: the columns that define groups.
        weight: the column of the weights of the rows, if they have any.
        counts: the column of the numbers of the reports, if the table has counts of them.

    Returns:
        A row for each combination: its keys and its parts as `PART`, from 0, and its sums. The parts that are not None.

    """
    check_columns([*keys, *([weight] if weight else [])], table.columns)
    parts = {name: list(_parts(table, name, kind)) for name, kind in kinds.items()}
    grouped = [table[key] for key in keys] + [part for own in parts.values() for part in own if part is not None]
    named = {PART.format(place): value for place, value in enumerate(grouped)}
    return table.group_by(**named).aggregate(**_sums(table, weight, counts)), parts


def _forms(columns: Sequence[str], drew: Mechanism | Mixed) -> dict[str, tuple[pa.DataType, Mechanism | None]]:
    """Return the type of the reports of each column, and the mechanism that drew them, None for reports with levels."""
    if isinstance(drew, Mechanism):
        return {name: (type_of(certify(one).reports), one) for name, one in drawn_apart(columns, drew).items()}
    one = next(one for one in drew.mechanisms if isinstance(one, Mechanism))
    kind = pa.struct([("level", drew.levels.values.type), ("report", type_of(certify(one).reports))])
    return dict.fromkeys(columns, (kind, None))


def _parts(table: Table, name: str, kind: pa.DataType, value: Any = None) -> Iterator[Value | None]:
    """Yield the expressions from which `_built` makes the reports of a column; the first of a struct is whether it is NULL.

    That is None for a struct that is spread over columns.
    """
    if value is None and name in table.columns:
        value = table[name]
        if value.type().is_struct() and is_record(value.type().to_pyarrow()):
            value = value[value.type().names[0]]
    spread = value is None and pa.types.is_struct(kind)
    if spread or (pa.types.is_struct(kind) and value.type().is_struct()):
        yield None if spread else value.isnull()
        for field in kind:
            yield from _parts(table, f"{name}_{field.name}", field.type, None if spread else _field(value, field.name))
        return
    if value is None:
        check_columns([name], table.columns)
    yield value


def _field(value: Value, name: str) -> Value:
    """Return a field of a struct; some engines change the case of names."""
    names = {one.casefold(): one for one in value.type().names}
    check_columns([name.casefold()], list(names), hint_names=False)
    return value[names[name.casefold()]]


def _built(parts: Iterator[pa.Array | None], kind: pa.DataType, mechanism: Mechanism | None) -> pa.Array:
    """Return the reports of a column from the columns that the engine returned for them."""
    first = next(parts)
    if not pa.types.is_struct(kind):
        return _fitted(first, kind, mechanism)
    fields = [_built(parts, field.type, None) for field in kind]
    if first is not None:
        return pa.StructArray.from_arrays(fields, [field.name for field in kind], mask=first.cast(pa.bool_()))
    dummies = mechanism is not None and isinstance(certify(mechanism).reports, PairReports)  # their fields are NULL
    missing = np.logical_and.reduce([field.is_null().to_numpy(zero_copy_only=False) for field in fields]) & (not dummies)
    return pa.StructArray.from_arrays(fields, [field.name for field in kind], mask=pa.array(missing))


def _fitted(column: pa.Array, kind: pa.DataType, mechanism: Mechanism | None) -> pa.Array:
    """Return reports in a type in which they can be compared, if the engine has changed it on the way."""
    own = column.type
    if pa.types.is_list(kind) and mechanism is not None and family(own) == "text":
        certified, drawn = read_foreign(mechanism, column.drop_null(), "bits")
        return with_nulls(plain(certified.shown(drawn)), column.is_valid().to_numpy(zero_copy_only=False))
    fits = (
        (pa.types.is_integer(kind) and pa.types.is_decimal(own))
        or (
            pa.types.is_boolean(kind)
            and pa.types.is_integer(own)
            and pc.all(pc.is_in(column.drop_null(), pa.array([0, 1], own))).as_py()
        )
        or (pa.types.is_temporal(kind) and family(own) == "text")
        or (pa.types.is_date(kind) and pa.types.is_timestamp(own))
    )
    if fits:
        with suppress(pa.ArrowException):  # then they are no reports of this mechanism, which the next reader says
            return column.cast(kind)
    return column


def _sums(table: Table, weight: str | None, counts: str | None) -> dict[str, Value]:
    """Return what is added up over the rows of each combination."""
    if not weight:
        return {"n": table[counts].sum() if counts else table.count()}
    each = table[weight].cast("float64")
    wrong = (each >= 0).ifelse(0, 1)  # NULL is wrong, too; NaN and infinity remain in the sums
    return {"n": (each > 0).ifelse(1, 0).sum(), "w": each.sum(), "ww": (each * each).sum(), "wrong": wrong.sum()}


def _weights(fetched: pa.Table, there: NDArray[np.bool_]) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Return the sums of the weights of each combination, and which have a report with a weight above 0."""
    if pc.any(pc.greater(fetched.column("wrong").filter(pa.array(there)), 0)).as_py():
        raise bad_weights()
    sums = [plain(fetched.column(name)).cast(pa.float64()).to_numpy(zero_copy_only=False) for name in SUMS]
    there = there & (sums[0] > 0)
    return pa.StructArray.from_arrays([np.where(there, one, 1.0) for one in sums], SUMS), there


def _warn(table: Table, numbers: pa.ChunkedArray) -> None:
    """Warn if the rows that were fetched are hardly fewer than those of which they are the counts."""
    if len(numbers) >= _MANY and 2 * len(numbers) >= pc.sum(numbers).as_py():
        warnings.warn(
            f"nearly all reports differ, so {len(numbers):,} rows came from {_backend(table).name}, not few counts",
            FetchedReports,
            stacklevel=4,
        )


def _backend(table: Table) -> Any:
    """Return the backend of a table.

    Raises:
        SourceRefused: if it has none.

    """
    with _asking(None):
        return table._find_backend(use_default=True)


@contextmanager
def _asking(table: Table | None) -> Iterator[None]:
    """Replace an error of the backend within a ``with`` block, whose message may hold values."""
    try:
        yield
    except LdpError:
        raise
    except Exception as error:  # noqa: BLE001  # whatever the backend raises
        named = "the backend of the table" if table is None else _backend(table).name
        refusal = SourceRefused(
            f"{named} could not count the reports ({type(error).__name__})",
            "is it connected, and do the tables and columns of the expression exist, with types that it can group by?",
        )
    else:
        return
    raise refusal
