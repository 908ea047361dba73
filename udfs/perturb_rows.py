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
def there(tables: pa.ChunkedArray, columns: pa.ChunkedArray) -> pa.Array:
    """Return a pattern that matches anything, if the columns to be perturbed are in the table, both as types in SQL."""
    for table, perturbed in zip(plain(tables).to_pylist(), plain(columns).to_pylist(), strict=True):
        names, declared = [name.lower() for name in fields_of(table)], [name.lower() for name in fields_of(perturbed)]
        if "mechanism" in declared and "mechanism" not in names:
            raise InvalidParameter(
                "this is a mechanism, not a struct from columns to mechanisms",
                "write FROM ldp.perturb_rows(people, {city: ldp.krr(...), age: ldp.square_wave(...)})",
            )
        check_columns(declared, names)
    return pa.array([".*"] * len(tables), pa.string())


@guarded
def order_of(counts: pa.ChunkedArray, kept: pa.ChunkedArray, wanted: pa.ChunkedArray, perturbed: pa.ChunkedArray) -> pa.Array:
    """Return the numbers from 1 to each count in a uniformly random order; check first that no column is left out.

    Args:
        counts: how many rows there are.
        kept: how many columns of the table are kept.
        wanted: how many columns are to be kept.
        perturbed: how many columns are to be perturbed.

    """
    if max(plain(perturbed).to_pylist(), default=0) > _COLUMNS:
        raise InvalidParameter(
            f"ldp.perturb_rows perturbs at most {_COLUMNS} columns", "ldpsql.perturb_table perturbs any number"
        )
    if not plain(kept).equals(plain(wanted)):
        hint = "keep := ['region'] names columns of the table, each once, and none that is perturbed"
        raise InvalidParameter("a column to be kept does not exist, or is perturbed too", hint)
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
