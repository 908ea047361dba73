"""Counts of reports in the engine that holds them: one query of Ibis, which any of its backends runs; only counts travel."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import reduce
from itertools import islice
from operator import and_, mul
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.bulk.columns import drawn_apart
from ldpsql.bulk.engines import RECORDS
from ldpsql.bulk.sources import check_columns
from ldpsql.domains.columns import family, is_record, plain, with_nulls
from ldpsql.errors import FetchedReports, SourceRefused
from ldpsql.errors.boundary import replaced
from ldpsql.inference.counts import SUMS, bad_weights
from ldpsql.inference.mixed import Mixed
from ldpsql.mechanisms.base import Mechanism, certify
from ldpsql.mechanisms.foreign import read_foreign
from ldpsql.outcomes import moments
from ldpsql.registry.agreement import KEY, NONE, Fingerprints, of_text
from ldpsql.reports import PairReports, type_of

if TYPE_CHECKING:
    from ibis.expr.types import Table, Value

N = "ldp n"  # the column of the numbers of rows, or of the sums of their weights; no column of a user has this name
MOST_CELLS = 20_000_000  # combinations of groups and reports that are fetched
_MANY = 100_000  # combinations from which on a warning follows if they are at least half of the rows
_ROWS_AT_ONCE = 1 << 16
_DEGREES = ((1, 2), (2, 4))  # of the sums of raw columns: the power of the weight, and how many factors a product has
_SUM = "s{}_{}"
_DRAWN_BY = "_drawn_by"  # the end of the name of a column that records the mechanism, for engines without comments
_FIRST = ("seed", "key", "level")  # the first of the columns of a report that is spread
_MOST_RECORDS = 1000
PART = "c{}"  # the columns of the query: in some engines, names do not differ by their case


def is_expression(data: object) -> TypeGuard[Table]:
    """Return whether this is a table of Ibis: that of a backend, or what filters, joins and the like make of it."""
    ibis = sys.modules.get("ibis")  # without it there is none
    return ibis is not None and hasattr(ibis, "Table") and isinstance(data, ibis.Table)


def recorded_in(table: Table, column: str) -> Fingerprints | None:
    """Return the fingerprints of a column of reports, which its type, a column next to it or a comment of its table records.

    The column next to it is named after it, ``city_drawn_by``. Comments are those of the tables that the column may come from.
    Returns None if nothing records them.
    """
    kind = table[column].type() if column in table.columns else None
    if kind is not None and kind.is_struct() and is_record(kind.to_pyarrow()):
        return of_text(kind.names[0])
    import ibis.expr.operations as ops  # noqa: PLC0415  # an extra, imported by the user of such a table

    found, beside = NONE, f"{column}{_DRAWN_BY}"
    names = [column] if column in table.columns else [f"{column}_{field}" for field in _FIRST]
    with _asking(table):
        if beside in table.columns:
            written = _fetched(table.select(c0=table[beside].cast("string")).distinct().limit(_MOST_RECORDS))
            found = found.union(*map(of_text, written.column(0).to_pylist()))
        for base in table.op().find(ops.DatabaseTable):
            found = found.union(*map(of_text, _remarks(base, names)))
    return found or None


def _remarks(base: Any, columns: Sequence[str]) -> list[str | None]:
    """Return what a table of a backend records of columns: comments, metadata of Spark, the lines of `perturb` in SQLite."""
    backend = base.source
    if backend.name == "pyspark":
        fields = backend._session.table(".".join(f"`{part}`" for part in [*_path(base), base.name])).schema
        return [field.metadata.get(KEY[:-1]) for field in fields if field.name in columns]
    if backend.name not in _COMMENTS or (backend.name == "sqlite" and RECORDS not in backend.list_tables()):
        return []
    from sqlglot import exp  # noqa: PLC0415  # slow to import; Ibis has it

    wanted = {"table": base.name, "schema": base.namespace.database}
    literals = {name: exp.convert(text).sql(dialect=backend.dialect) for name, text in wanted.items()}
    named = ", ".join(exp.convert(name).sql(dialect=backend.dialect) for name in columns)
    result = backend.raw_sql(_COMMENTS[backend.name].format(columns=named, **literals))
    return [text for (text,) in (result.result_rows if hasattr(result, "result_rows") else result.fetchall())]


def _path(base: Any) -> list[str]:
    return [part for part in (base.namespace.catalog, base.namespace.database) if part]


_COMMENTS = {
    "duckdb": (
        "SELECT comment FROM duckdb_columns() WHERE table_name = {table} AND column_name IN ({columns}) "
        "AND schema_name = coalesce({schema}, current_schema())"
    ),
    "postgres": (
        "SELECT d.description AS comment FROM pg_catalog.pg_description AS d JOIN pg_catalog.pg_attribute AS a "
        "ON a.attrelid = d.objoid AND a.attnum = d.objsubid JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid "
        "JOIN pg_catalog.pg_namespace AS s ON s.oid = c.relnamespace WHERE d.classoid = 'pg_catalog.pg_class'::regclass "
        "AND c.relname = {table} AND a.attname IN ({columns}) AND s.nspname = coalesce({schema}, current_schema())"
    ),
    "clickhouse": (
        "SELECT comment FROM system.columns WHERE table = {table} AND name IN ({columns}) "
        "AND database = coalesce({schema}, currentDatabase())"
    ),
    "sqlite": f"SELECT record FROM {RECORDS} WHERE table_name = {{table}} COLLATE NOCASE AND column_name IN ({{columns}})",  # noqa: S608
}


def counted_there(
    table: Table,
    columns: Sequence[str],
    drew: Mechanism | Mixed,
    *,
    keys: Sequence[str] = (),
    weight: str | None = None,
    raw: Sequence[str] = (),
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
        raw: raw columns, the outcome first, whose sums are asked for instead of counts.
        records: the fingerprints of columns, which become the metadata of the result.

    Returns:
        The keys and the reports under their names, and `N`: structs of n, with weights of n, w and ww, and with raw columns of
        `ldpsql.outcomes.moments.SUMS`.

    Raises:
        UnknownName: if there is no such column.
        BadCounts: if a weight is negative, NULL or not finite.
        SourceRefused: if the backend cannot count them, or there are more than `MOST_CELLS` combinations.

    Warns:
        FetchedReports: if nearly all reports differ, so that they were fetched rather than counted.

    """
    forms = _forms(columns, drew)
    counted, parts = cells(table, {name: kind for name, (kind, _) in forms.items()}, keys=keys, weight=weight, raw=raw)
    with _asking(table):
        fetched = _fetched(counted.limit(MOST_CELLS + 1))
    _check_few(len(fetched), "combinations of groups and reports")
    made = _made(fetched, keys, forms, parts)
    alone = made[columns[0]] if len(columns) == 1 else None  # several columns are a row, of which none need be reported
    there = np.ones(len(fetched), dtype=np.bool_) if alone is None else alone.is_valid().to_numpy(zero_copy_only=False)
    _warn(table, fetched.column("n").filter(pa.array(there)))
    if alone is not None and isinstance(drew, Mechanism):
        _check_empty(alone, certify(drew).reports)
    if raw:
        of = alone if alone is not None else pa.StructArray.from_arrays([made[name] for name in columns], columns)
        made[N] = _moments(fetched, of, raw)
    elif weight is None:
        made[N] = pa.StructArray.from_arrays([plain(fetched.column("n")).cast(pa.uint64())], SUMS[:1])
    else:
        made[N], there = _weights(fetched, there)
    result = pa.table(made, metadata=_metadata(records))
    if alone is None:
        return result.filter(pa.array(there))
    # A group of which nothing is left stays in the answer.
    at = result.column_names.index(columns[0])
    return result.set_column(at, result.field(at), alone.take(pa.array(np.arange(len(there)), mask=~there)))


def rows_there(
    table: Table,
    columns: Sequence[str],
    drew: Mechanism | Mixed,
    *,
    others: Sequence[str],
    records: Mapping[str, Fingerprints | None],
) -> pa.Table:
    """Return the reports and other columns of all rows, for a question that no sums answer; see `counted_there`.

    Raises:
        SourceRefused: if the backend cannot return them, or there are more than `MOST_CELLS` rows.

    Warns:
        FetchedReports: if there are many.

    """
    forms = _forms(columns, drew)
    own, parts = _named_parts(table, {name: kind for name, (kind, _) in forms.items()}, others)
    with _asking(table):
        fetched = _fetched(table.select(**own).limit(MOST_CELLS + 1))
    _check_few(len(fetched), "rows")
    _warn(table, pa.chunked_array([pa.array(np.ones(len(fetched)))]))
    return pa.table(_made(fetched, others, forms, parts), metadata=_metadata(records))


def _check_empty(reports: pa.Array, possible: Any) -> None:
    """Refuse reports that the engine may have changed: some store an empty string as NULL."""
    kind = type_of(possible)
    if not reports.null_count or not pa.types.is_string(kind) or family(reports.type) != "text":
        return
    if possible.locate(pa.array([""])).is_valid()[0].as_py() and not pc.any(pc.equal(reports, "")).as_py():
        raise SourceRefused(
            "some reports are NULL, and none is the empty string, which the engine may store as NULL",
            "leave out rows without a report if there are any, or declare another value in place of the empty string",
        )


def _check_few(number: int, what: str) -> None:
    if number > MOST_CELLS:
        raise SourceRefused(
            f"there are more than {MOST_CELLS:,} {what}, too many to be fetched",
            "group by fewer values, or perturb with a mechanism whose reports are few, such as hadamard_response",
        )


def _metadata(records: Mapping[str, Fingerprints | None] | None) -> dict[str, str]:
    return {f"{KEY}{name}": "\n".join(sorted(record)) for name, record in (records or {}).items() if record}


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
    table: Table,
    kinds: Mapping[str, pa.DataType],
    *,
    keys: Sequence[str],
    weight: str | None = None,
    counts: str | None = None,
    raw: Sequence[str] = (),
) -> tuple[Table, dict[str, list[Value | None]]]:
    """Return the expression that counts, and the parts of each column of reports from which `_built` makes these.

    Args:
        table: the table.
        kinds: the columns of reports, and the types of these.
        keys: the columns that define groups.
        weight: the column of the weights of the rows, if they have any.
        counts: the column of the numbers of the reports, if the table has counts of them.
        raw: raw columns, the outcome first.

    Returns:
        A row for each combination: its keys and its parts as `PART`, from 0, and its sums. The parts that are not None.

    """
    check_columns([*raw, *([weight] if weight else [])], table.columns)
    named, parts = _named_parts(table, kinds, keys)
    sums = _sums_of_rows(table, raw, weight) if raw else _sums(table, weight, counts)
    return table.group_by(**named).aggregate(**sums), parts


def _named_parts(
    table: Table, kinds: Mapping[str, pa.DataType], others: Sequence[str]
) -> tuple[dict[str, Value], dict[str, list[Value | None]]]:
    """Return other columns and then the parts of reports, as `PART`; and these parts of each column of reports."""
    check_columns(others, table.columns)
    parts = {name: list(_parts(table, name, kind)) for name, kind in kinds.items()}
    grouped = [table[name] for name in others] + [part for own in parts.values() for part in own if part is not None]
    return {PART.format(place): value for place, value in enumerate(grouped)}, parts


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


def _made(
    fetched: pa.Table,
    others: Sequence[str],
    forms: Mapping[str, tuple[pa.DataType, Mechanism | None]],
    parts: Mapping[str, list[Value | None]],
) -> dict[str, pa.Array]:
    """Return the other columns and the reports of fetched rows, by their names."""
    columns = (plain(column) for column in fetched.columns)
    made = {name: next(columns) for name in others}
    for name, (kind, mechanism) in forms.items():
        own = iter([None if part is None else next(columns) for part in parts[name]])
        made[name] = _built(own, kind, mechanism) if len(parts[name]) > 1 else _fitted(next(own), kind, mechanism)
    return made


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
    each = _number(table, weight)
    wrong = (each >= 0).ifelse(0, 1)  # NULL is wrong, too; NaN and infinity remain in the sums
    return {"n": (each > 0).ifelse(1, 0).sum(), "w": each.sum(), "ww": (each * each).sum(), "wrong": wrong.sum()}


def _number(table: Table, name: str) -> Value:
    """Return a column as doubles, NULL if it holds something else.

    Raises:
        BadCounts: if its type is not one of numbers.

    """
    value = table[name]
    if any(backend.name == "sqlite" for backend in table._find_backends()[0]):
        # its columns hold values of any type, and it would cast text to 0
        return value.typeof().isin(["integer", "real"]).ifelse(value.cast("float64"), None)
    if value.type().is_boolean():
        return value.ifelse(1.0, (~value).ifelse(0.0, None))
    if not value.type().is_numeric():
        raise moments.not_numbers()
    return value.cast("float64")


def _sums_of_rows(table: Table, raw: Sequence[str], weight: str | None) -> dict[str, Value]:
    """Return what `ldpsql.outcomes.moments.sums_sql` adds up, in Ibis."""
    moments.check_columns(len(raw))
    factors, one = [_number(table, name) for name in raw], _number(table, weight) if weight else None
    used = reduce(and_, (table[name].notnull() for name in raw))
    fits = reduce(and_, (factor.notnull() for factor in factors))
    fits = fits if one is None else fits & (one >= 0)
    sums = {
        "n": used.ifelse(1, 0).sum(),
        "refused": used.ifelse(fits.ifelse(0, 1), 0).sum(),  # NULL is wrong, too; NaN and infinity remain in the sums
        "least": factors[0].min(),
        "most": factors[0].max(),
    }
    for power, degree in _DEGREES:
        for place, product in enumerate(moments.products(len(raw), degree)):
            own = [one] * power if one is not None else []
            each = [*own, *(factors[i - 1] for i in product if i)]
            total = reduce(mul, each).sum(where=used) if each else sums["n"].cast("float64")
            sums[_SUM.format(power, place)] = total
    return sums


def _moments(fetched: pa.Table, reports: pa.Array, raw: Sequence[str]) -> pa.Array:
    """Return the sums of raw columns by report, as `ldpsql.outcomes.moments` reads them."""
    fields = [reports, *(plain(fetched.column(name)) for name in moments.SUMS[1:5])]
    fields.append(pa.repeat("\n".join(raw[1:]), len(fetched)))
    for power, degree in _DEGREES:
        width = len(moments.products(len(raw), degree))
        each = [plain(fetched.column(_SUM.format(power, place))).cast(pa.float64()) for place in range(width)]
        table = np.stack([column.to_numpy(zero_copy_only=False) for column in each], axis=1)
        ends = np.arange(0, table.size + 1, width, dtype=np.int32)
        fields.append(pa.ListArray.from_arrays(pa.array(ends), pa.array(table.ravel())))
    return pa.StructArray.from_arrays(fields, moments.SUMS)


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
    """Return the backend of a table."""
    with _asking(None):
        return table._find_backend(use_default=True)


def _asking(table: Table | None) -> AbstractContextManager[None]:
    """Replace an error of the backend within a ``with`` block."""

    def refusal(error: Exception) -> SourceRefused:
        named = "the backend of the table" if table is None else _backend(table).name
        return SourceRefused(
            f"{named} could not count the reports ({type(error).__name__})",
            "is it connected, and do the tables and columns of the expression exist, with types that it can group by?",
        )

    return replaced(refusal)
