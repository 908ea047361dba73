"""Whole tables in SQL: lists of all values, drawn by one call each, and all rows in a random order."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.functions import (
    Booleans,
    Column,
    Drawn,
    Handles,
    Lists,
    Macros,
    Scalar,
    TextLists,
    Texts,
    ToColumn,
    WholeLists,
    Wholes,
    at_once,
    check_columns,
    drawing,
    drawn_by_form,
    fields_of,
    guarded,
    hookimpl,
    naming_column,
    of_column,
    plain,
    random_arrangement,
    random_order,
    random_parts,
)
from ldpsql.mechanisms import Cost, InvalidParameter, certify

_STRUCT = "write FROM ldp.perturb_rows(people, {city: ldp.krr(...), age: ldp.square_wave(...)})"
_PART = 1 << 18  # values that a thread draws at a time
_COLUMNS = 6  # that can be perturbed: the macro has a place for each
_OWN = "_ldpsql_"  # how the names begin that the macro uses
_IDENTICAL = re.compile(  # the types whose equal values are identical, strings by their bytes
    r"U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)|BOOLEAN|VARCHAR|BLOB|UUID|DATE|TIME|TIMESTAMP(_S|_MS|_NS| WITH TIME ZONE)?"
    r"|(DECIMAL|ENUM)\(.*\)",
    re.DOTALL,
)
_PARTS = 16  # at most, of rows that are counted: threads share them
_PART_NUMBER = 'SELECT *, {n} AS "_ldpsql_part" FROM counts WHERE {n} <= len("_ldpsql_parts")'
_PLACES = {
    "PADDING_EACH": "'_ldpsql_{n}': [{{'nothing': 1}}]",
    "NULL_EACH": "NULL",
    "EMPTY_EACH": 'NULL::INTEGER[] AS "_ldpsql_{n}"',
    "DRAWN_EACH": """ldp._drawn_rows(
        COLUMNS(lambda c: lower(c) = lower(struct_keys(ldp._padded(columns))[{n}])),
        "_ldpsql_places",
        "_ldpsql_counted",
        struct_keys(ldp._padded(columns))[{n}],
        struct_extract_at(ldp._padded(columns), {n})
    )""",
}


def drawing_rows(to_column: ToColumn, kind: pa.DataType) -> Callable[..., pa.Array]:
    """Return a function that draws a list of reports for each list of values: one report for each of the places in the list."""

    @guarded
    def perturb_rows(values: Lists, places: WholeLists, counted: Booleans, names: Texts, handles: Handles) -> pa.Array:
        further = (plain(column).to_pylist() for column in (counted, names, handles))
        drawn: list[pa.Array | None] = []
        for own, order, is_counted, name, handle in zip(_lists(values), _lists(places), *further, strict=True):
            with of_column(name):
                drawn.append(None if own is None or order is None else _drawn(own, order, is_counted, handle, to_column))
        return _as_lists(drawn, kind)

    return perturb_rows


def _drawn(values: pa.Array, places: pa.Array, counted: bool, handle: int, to_column: ToColumn) -> pa.Array:
    """Draw a report for the value at each place of a list, counted from 1; without counts, each place comes once."""
    mechanism, order = certify(drawing(handle, len(places))), places.to_numpy()
    with naming_column(handle):
        if counted:
            draw = mechanism.drawer(values)
            return to_column(mechanism, _joined(at_once(lambda part: draw(order[part] - np.int32(1)), _parts(len(order)))))
        drawn = _joined(at_once(lambda part: mechanism.draw(values[part]), _parts(len(values))))
    return to_column(mechanism, _joined(at_once(lambda part: drawn.take(order[part] - 1, axis=0), _parts(len(order)))))


def _parts(count: int) -> list[slice]:
    """Return the parts of a list that threads share."""
    return [slice(start, start + _PART) for start in range(0, max(count, 1), _PART)]


def _joined(parts: list[Drawn]) -> Drawn:
    """Return parts of draws as one."""
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def _lists(column: Column) -> list[pa.Array | None]:
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
def there(tables: Texts, columns: Texts, kept: TextLists) -> pa.Array:
    """Return a pattern that matches anything, if a table has the columns to be perturbed and to be kept.

    Args:
        tables: the type of the table's rows in SQL.
        columns: the type of the struct from columns to mechanisms.
        kept: the names of the columns to be kept.

    """
    for table, perturbed, names in zip(*(plain(column).to_pylist() for column in (tables, columns, kept)), strict=True):
        if not (table and perturbed and perturbed.startswith("STRUCT(")):
            raise InvalidParameter("the mechanisms of columns must be a struct", _STRUCT)
        _check([name.lower() for name in fields_of(table)], [name.lower() for name in fields_of(perturbed)], names)
    return pa.array([".*"] * len(tables), pa.string())


def _check(fields: list[str], perturbed: list[str], kept: list[str | None] | None) -> None:
    """Refuse columns that a table does not have or that are named twice, by their names in lowercase."""
    if "mechanism" in perturbed and "mechanism" not in fields:
        raise InvalidParameter(
            "this is a mechanism, not a struct from columns to mechanisms",
            _STRUCT,
        )
    check_columns(perturbed, fields)
    if len(perturbed) > _COLUMNS:
        raise InvalidParameter(
            f"ldp.perturb_rows perturbs at most {_COLUMNS} columns", "ldpsql.perturb_table perturbs any number"
        )
    if any(name.startswith(_OWN) for name in perturbed):
        raise InvalidParameter(f"a column whose name starts with {_OWN} cannot be perturbed here", "rename it in a view")
    free = {name for name in fields if name not in perturbed and not name.startswith(_OWN)}
    if kept is None or len(free & {name.lower() for name in kept if name is not None}) < len(kept):
        hint = "keep := ['region'] names columns of the table, each once, and none that is perturbed"
        raise InvalidParameter("a column to be kept does not exist, or is perturbed too", hint)


@guarded
def identical(rows: Texts) -> pa.Array:
    """Return whether values that are equal are identical in all columns of a table.

    The equal values 0.0 and -0.0 differ, and so do one month and 30 days.

    Args:
        rows: the type of the table's rows in SQL.

    """
    return pa.array(
        [all(map(_IDENTICAL.fullmatch, fields_of(row or "").values())) for row in plain(rows).to_pylist()], pa.bool_()
    )


@guarded
def parts_of(counts: WholeLists) -> pa.Array:
    """Return parts of rows that are counted, each row by chance in one of them: how often each row occurs in each part.

    Args:
        counts: how often each row occurs.

    """
    parts = [random_parts(some.to_numpy(), _PARTS) if some is not None else [] for some in _lists(counts)]
    return pa.array(parts, pa.list_(pa.list_(pa.int64())))


@guarded
def order_of(numbers: Wholes, counts: WholeLists) -> pa.Array:
    """Return the places of the rows of each list, from 1, in a uniformly random order: each as often as the row occurs.

    Args:
        numbers: how many rows each list has; of lists with counts, these say it.
        counts: how often each of these rows occurs; NULL stands for once.

    """
    each = zip(plain(numbers).to_pylist(), _lists(counts), strict=True)
    return _as_lists([pa.array(_places(number, some)) for number, some in each], pa.int32())


def _places(number: int | None, counts: pa.Array | None) -> NDArray[np.int32]:
    """Return the places of a number of rows, from 1, in a random order: each once, or as often as its count."""
    if number is None or number < 0 or (counts is not None and counts.null_count):
        raise InvalidParameter("an order needs the number of rows", "call ldp.perturb_rows")
    Cost(bytes=8.0 * number).check("a random order of these rows", "ldpsql.perturb_copy perturbs any number of rows")
    order = random_order(number) if counts is None else random_arrangement(counts.to_numpy())
    order += np.int32(1)
    return order


# Created once: DuckDB may call a function as long as the process lives, and does not keep it alive.
_BY_FORM = drawn_by_form("_report_rows", "__ldp_rows", ("x", "places", "counted", "name", "handle"), drawing_rows, rows=True)


def _macros() -> Macros:
    """Return the macros, with a place for each column that can be perturbed and a query for each part."""
    text = Macros.beside(__file__).text
    for word, sql in _PLACES.items():
        text = text.replace(word, ", ".join(sql.format(n=n) for n in range(1, _COLUMNS + 1)))
    return Macros(text.replace("EACH_PART", " UNION ALL ".join(_PART_NUMBER.format(n=n) for n in range(1, _PARTS + 1))))


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.perturb_rows``."""
    return [
        *_BY_FORM,
        Scalar("__ldp_there", there, "VARCHAR"),
        Scalar("__ldp_identical", identical, "BOOLEAN"),
        Scalar("__ldp_parts", parts_of, "BIGINT[][]", volatile=True, draws=False),
        Scalar("__ldp_order", order_of, "INTEGER[]", volatile=True, draws=False),
        _macros(),
    ]
