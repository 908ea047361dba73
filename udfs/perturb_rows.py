"""Whole tables in SQL: lists of all values, drawn by one call each, and all rows in a random order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ldpsql.functions import (
    Macros,
    Scalar,
    ToColumn,
    at_once,
    check_columns,
    drawing,
    drawn_by_form,
    fields_of,
    guarded,
    hookimpl,
    plain,
    random_order,
)
from ldpsql.mechanisms import InvalidParameter, certify

_PART = 1 << 18  # values that a thread draws at a time
_COLUMNS = 6  # that can be perturbed: the macro has a place for each
_OWN = "_ldpsql_"  # how the names begin that the macro uses
_PLACES = {
    "PADDING_EACH": "'_ldpsql_{n}': [{{'nothing': 1}}]",
    "EMPTY_EACH": 'NULL::INTEGER[] AS "_ldpsql_{n}"',
    "DRAWN_EACH": """ldp._drawn_rows(
        COLUMNS(lambda c: lower(c) = lower(struct_keys(ldp._padded(columns))[{n}])),
        struct_extract_at(ldp._padded(columns), {n})
    )""",
}


def drawing_rows(to_column: ToColumn, kind: pa.DataType) -> Callable[..., pa.Array]:
    """Return a function that draws a list of reports for each list of values."""

    @guarded
    def perturb_rows(values: pa.ChunkedArray, handles: pa.ChunkedArray) -> pa.Array:
        lists = zip(_lists(values), plain(handles).to_pylist(), strict=True)
        return _as_lists([None if some is None else _drawn(some, handle, to_column) for some, handle in lists], kind)

    return perturb_rows


def _drawn(values: pa.Array, handle: int, to_column: ToColumn) -> pa.Array:
    """Draw a report for each value of a list."""
    mechanism = certify(drawing(handle, len(values)))
    if len(values) <= _PART:
        return to_column(mechanism, mechanism.draw(values))
    parts = [values.slice(start, _PART) for start in range(0, len(values), _PART)]
    return to_column(mechanism, np.concatenate(at_once(mechanism.draw, parts)))


def _lists(column: pa.ChunkedArray) -> list[pa.Array | None]:
    """Return the values of each list, None for NULL."""
    lists = plain(column)
    if not pa.types.is_list(lists.type):
        return [None] * len(lists)
    extents = zip(pairwise(lists.offsets.to_pylist()), lists.is_valid().to_pylist(), strict=True)
    return [plain(lists.values.slice(begin, end - begin)) if valid else None for (begin, end), valid in extents]


def _as_lists(columns: list[pa.Array | None], kind: pa.DataType) -> pa.Array:
    """Return columns as lists, NULL for None."""
    there = [part for part in columns if part is not None]
    ends = np.cumsum([0, *(0 if part is None else len(part) for part in columns)]).astype(np.int32)
    missing = pa.array([part is None for part in columns], pa.bool_()) if len(there) < len(columns) else None
    if len(there) > 1:
        there = [pa.concat_arrays([plain(part) for part in there])]  # Arrow does not join views of strings
    return pa.ListArray.from_arrays(pa.array(ends), there[0] if there else pa.array([], kind), mask=missing)


@guarded
def there(tables: pa.ChunkedArray, columns: pa.ChunkedArray, kept: pa.ChunkedArray) -> pa.Array:
    """Return a pattern that matches anything, if a table has the columns to be perturbed and to be kept.

    Args:
        tables: the type of the table's rows in SQL.
        columns: the type of the struct from columns to mechanisms.
        kept: the names of the columns to be kept.

    """
    for table, perturbed, names in zip(*(plain(column).to_pylist() for column in (tables, columns, kept)), strict=True):
        _check([name.lower() for name in fields_of(table)], [name.lower() for name in fields_of(perturbed)], names)
    return pa.array([".*"] * len(tables), pa.string())


def _check(fields: list[str], perturbed: list[str], kept: list[str | None] | None) -> None:
    """Refuse columns that a table does not have or that are named twice, by their names in lowercase."""
    if "mechanism" in perturbed and "mechanism" not in fields:
        raise InvalidParameter(
            "this is a mechanism, not a struct from columns to mechanisms",
            "write FROM ldp.perturb_rows(people, {city: ldp.krr(...), age: ldp.square_wave(...)})",
        )
    check_columns(perturbed, fields)
    if len(perturbed) > _COLUMNS:
        raise InvalidParameter(
            f"ldp.perturb_rows perturbs at most {_COLUMNS} columns", "ldpsql.perturb_table perturbs any number"
        )
    free = {name for name in fields if name not in perturbed and not name.startswith(_OWN)}
    if kept is None or len(free & {name.lower() for name in kept if name is not None}) < len(kept):
        hint = "keep := ['region'] names columns of the table, each once, and none that is perturbed"
        raise InvalidParameter("a column to be kept does not exist, or is perturbed too", hint)


@guarded
def order_of(counts: pa.ChunkedArray) -> pa.Array:
    """Return for each count the numbers from 1 to it in a uniformly random order."""
    return _as_lists([pa.array(random_order(count) + np.int32(1)) for count in plain(counts).to_pylist()], pa.int32())


# Created once: DuckDB may call a function as long as the process lives, and does not keep it alive.
_BY_FORM = drawn_by_form("_report_rows", "__ldp_rows", ("x", "handle"), drawing_rows, rows=True)


def _macros() -> Macros:
    """Return the macros, with a place for each column that can be perturbed."""
    text = Macros.beside(__file__).text
    for word, sql in _PLACES.items():
        text = text.replace(word, ", ".join(sql.format(n=n) for n in range(1, _COLUMNS + 1)))
    return Macros(text)


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.perturb_rows``."""
    return [
        *_BY_FORM,
        Scalar("__ldp_there", there, "VARCHAR"),
        Scalar("__ldp_order", order_of, "INTEGER[]", volatile=True, draws=False),
        _macros(),
    ]
