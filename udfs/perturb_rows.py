"""Whole tables in SQL: lists of all values, drawn by one call each, and all rows in a random order."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from threading import local
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.bulk.orders import random_arrangement, random_order, random_parts
from ldpsql.bulk.sources import check_columns
from ldpsql.engine.forms import ToColumn, kind_in_type, kind_of_reports, scalar_of_kind, scalars_by_form
from ldpsql.engine.functions import qualified
from ldpsql.engine.groups import at_once
from ldpsql.engine.sql_struct import struct_sql
from ldpsql.errors import of_column
from ldpsql.functions import (
    MECHANISMS,
    Booleans,
    Column,
    Handles,
    Lists,
    Macros,
    Scalar,
    Settings,
    TextLists,
    Texts,
    WholeLists,
    Wholes,
    by_row,
    guarded,
    hookimpl,
    plain,
    quoted,
    text_literal,
)
from ldpsql.ledger.guard import drawing, naming_column
from ldpsql.mechanisms import Cost, InvalidParameter, Mechanism, certify
from ldpsql.quoting import fields_of
from ldpsql.registry.documents import record_name
from ldpsql.registry.handles import is_mechanism, mechanism_number

_STRUCT = "write FROM ldp.perturb_rows(people, {city: ldp.krr(...), age: ldp.square_wave(...)})"
_ONE_COLUMN = "that of a whole row needs a view in which the row is one column: SELECT {city: city, age: age} AS person"
_PART = 1 << 18  # values that a thread draws at a time
_KEEP = "keep := ['region'] names columns of the table, each once, and none that is perturbed"
_DECLARE = "declare it first: SELECT ldp.declare('city', (SELECT ...)); then ldp.declared('city') is the mechanism"
_OWN = "_ldpsql_"  # how the names begin that the macro uses
_IDENTICAL = re.compile(  # the types whose equal values are identical, strings by their bytes
    r"U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)|BOOLEAN|VARCHAR|BLOB|UUID|DATE|TIME|TIMESTAMP(_S|_MS|_NS| WITH TIME ZONE)?"
    r"|(DECIMAL|ENUM)\(.*\)",
    re.DOTALL,
)
_LOWER = "system.main.lower"  # not a macro of the user's
_PARTS = 16  # at most, of rows that are counted: threads share them
_PART_NUMBER = 'SELECT *, {n} AS "_ldpsql_part" FROM counts WHERE {n} <= len("_ldpsql_parts")'
_QUERY = qualified(
    Path(__file__)
    .with_name("perturb_rows_query.sql")
    .read_text(encoding="utf-8")
    .replace("EACH_PART", " UNION ALL ".join(_PART_NUMBER.format(n=n) for n in range(1, _PARTS + 1)))
)
_WORDS = re.compile(r"\b(DRAWN|SHOWN|OR_PLACES|PLACED_KEPT|TAKEN_KEPT|PERTURBED|ALL_NAMES|KEPT_NAMES|TABLE|ldp\.)")
_NOTED = local()  # `columns` of this thread, between the two functions that DuckDB calls in turn while it binds one statement


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
    Cost(bytes=2 * mechanism.channel.per_report.bytes * len(order)).check(  # in the order of the rows, and in a random one
        f"the reports of {len(order):,} rows by {mechanism.name}, held together,",
        "use olh, whose reports are short, or ldpsql.perturb_copy, which perturbs any number of rows",
    )
    with naming_column(handle):
        if counted:
            draw = mechanism.drawer(values)
            reports = at_once(lambda part: to_column(mechanism, draw(order[part] - np.int32(1))), _parts(len(order)))
            return _joined(reports)
        drawn = np.concatenate(at_once(lambda part: mechanism.draw(values[part]), _parts(len(values))))
    return _joined(at_once(lambda part: to_column(mechanism, drawn.take(order[part] - 1, axis=0)), _parts(len(order))))


def _parts(count: int) -> list[slice]:
    """Return the parts of a list that threads share."""
    return [slice(start, start + _PART) for start in range(0, max(count, 1), _PART)]


def _joined(columns: list[pa.Array]) -> pa.Array:
    """Return columns one after the other; Arrow does not join views of strings."""
    return columns[0] if len(columns) == 1 else pa.concat_arrays([plain(column) for column in columns])


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
    return pa.ListArray.from_arrays(pa.array(ends), _joined(there) if there else pa.array([], kind), mask=missing)


@by_row(Texts, TextLists, TextLists)
def there(table: str | None, perturbed: list[str] | None, kept: list[str | None] | None) -> str:
    """Return a type, as from_json reads it, if a table has the columns to be perturbed and to be kept, each named once.

    Args:
        table: the type of the table's rows in SQL.
        perturbed: the names of the columns to be perturbed, in lowercase.
        kept: the names of the columns to be kept.

    """
    if not table or perturbed is None:
        raise InvalidParameter("the columns of a table have names", _STRUCT)
    fields = [name.lower() for name in fields_of(table)]
    check_columns(perturbed, fields)
    if any(name.startswith(_OWN) for name in perturbed):
        raise InvalidParameter(f"a column whose name starts with {_OWN} cannot be perturbed here", "rename it in a view")
    free = {name for name in fields if name not in perturbed and not name.startswith(_OWN)}
    if absent := [name for name in kept or [] if name is not None and name.lower() not in fields]:
        raise InvalidParameter(f"there is no column named '{absent[0]}' to be kept", _KEEP)
    if kept is None or len(free & {name.lower() for name in kept if name is not None}) < len(kept):
        raise InvalidParameter("a column to be kept is perturbed too, or named twice", _KEEP)
    return '"VARCHAR"'


@by_row(Texts, returns=pa.bool_())
def identical(row: str | None) -> bool:
    """Return whether values that are equal are identical in all columns of a table, whose rows have this type in SQL.

    The equal values 0.0 and -0.0 differ, and so do one month and 30 days.
    """
    return all(map(_IDENTICAL.fullmatch, fields_of(row or "").values()))


@guarded
def parts_of(counts: WholeLists) -> pa.Array:
    """Return parts of rows that are counted, each row by chance in one of them: how often each row occurs in each part.

    Args:
        counts: how often each row occurs.

    """
    parts = [random_parts(_counted(some), _PARTS) if some is not None else [] for some in _lists(counts)]
    return pa.array(parts, pa.list_(pa.list_(pa.int64())))


def _counted(counts: pa.Array) -> NDArray[np.int64]:
    """Return how often each row occurs."""
    if counts.null_count or (len(counts) and not 0 <= pc.min(counts).as_py() <= pc.max(counts).as_py() < 1 << 31):
        raise InvalidParameter("counts must be whole numbers from 0 to 2,147,483,647", "call ldp.perturb_rows")
    numbers: NDArray[np.int64] = counts.cast(pa.int64()).to_numpy()
    return numbers


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
    if number is None or number < 0:
        raise InvalidParameter("an order needs the number of rows", "call ldp.perturb_rows")
    often = None if counts is None else _counted(counts)
    Cost(bytes=8.0 * (number if often is None else int(often.sum()))).check(
        "a random order of these rows", "ldpsql.perturb_copy perturbs any number of rows"
    )
    order = random_order(number) if often is None else random_arrangement(often)
    order += np.int32(1)
    return order


# Created once: DuckDB may call a function as long as the process lives, and does not keep it alive.
_BY_KIND = scalars_by_form("__ldp_rows", drawing_rows, rows=True)


@dataclass(frozen=True)
class _Columns:
    """The columns to be perturbed: the types of their mechanisms in SQL, and the mechanisms unless subqueries return them."""

    types: dict[str, str]
    mechanisms: dict[str, Mechanism] = field(default_factory=dict)

    def drawn(self, name: str, kept: list[str], catalog: str) -> str:
        """Return the SQL of a list of reports of a column, which policies must allow next to the kept columns."""
        own = f'(SELECT m.{quoted(name)} FROM "_ldpsql_columns")'  # noqa: S608  # quoted
        mechanism, kind = self.mechanisms.get(name), kind_in_type(self.types[name]) if "(" in self.types[name] else None
        if self.types[name] == "UNKNOWN":  # a parameter of a prepared statement, which DuckDB binds again with its value
            return f"({own}).reports"
        if kind is None and mechanism is not None:  # it is written as text
            own, kind = struct_sql(mechanism), kind_of_reports(mechanism)
        if kind is None:
            raise InvalidParameter("a subquery must return a mechanism as a struct", _DECLARE)
        if kind.startswith("STRUCT(") and not kind.endswith("[]") and kind not in _BY_KIND:
            raise InvalidParameter("a row has several columns", "name the columns of the row, each with its own mechanism")
        handle = f"system.main.__ldp_drawn({own})" if mechanism is None else str(MECHANISMS.number(mechanism))
        scalar, text = scalar_of_kind(_BY_KIND, kind), text_literal(name)
        drawn = text_literal(json.dumps({"column": name, "keep": kept}))
        arguments = f'{_column(name)}, "_ldpsql_places", "_ldpsql_counted", {text}, {catalog}_draws_by({handle}, {drawn})'
        call = f"system.main.{scalar.name}({arguments})"
        if scalar is _BY_KIND[""]:
            call = f"list_select(({own}).reports, {call})"
        elif scalar.returns != kind and kind.endswith("[]"):
            call = f"CAST({call} AS {kind})"
        return call

    def shown(self, name: str) -> str:
        """Return the SQL of a report of a column, which says what drew it if that is known."""
        mechanism = self.mechanisms.get(name)
        return _column(name) if mechanism is None else f"{{{text_literal(record_name(mechanism))}: {_column(name)}}}"


def _column(name: str) -> str:
    return f"COLUMNS(lambda c: {_LOWER}(c) = {_LOWER}({text_literal(name)}))"


@guarded
def forget(rows: Column) -> pa.Array:
    """Forget what another statement may have noted before it failed; return a path in JSON."""
    _NOTED.columns = None
    return pa.array(['"VARCHAR"'] * len(rows))


@guarded
def note(columns: Column, types: Texts) -> pa.Array:
    """Read and note the mechanisms of columns while a statement is bound, for `rows_query`; return a path in JSON.

    Args:
        columns: a struct from columns to mechanisms.
        types: its type in SQL.

    """
    for spec, kind in zip(plain(columns), plain(types).to_pylist(), strict=True):
        _NOTED.columns = _noted(spec, kind)
    return pa.array(['"VARCHAR"'] * len(columns))


def _noted(spec: pa.Scalar, kind: str | None) -> _Columns:
    if not isinstance(spec, pa.StructScalar) or not spec.is_valid or not kind:
        raise InvalidParameter("the mechanisms of columns must be a struct", _STRUCT)
    if is_mechanism(spec):
        raise InvalidParameter("this is a mechanism, not a struct from columns to mechanisms", f"{_STRUCT}; {_ONE_COLUMN}")
    mechanisms = {}
    for name in spec.type.names:
        with of_column(name):
            mechanisms[name] = MECHANISMS.thing(mechanism_number(spec[name]))
            certify(mechanisms[name])
    return _Columns(fields_of(kind), mechanisms)


@guarded
def note_types(types: Texts) -> pa.Array:
    """Note the types of mechanisms that subqueries return; return a type, as from_json reads it.

    Args:
        types: the type in SQL of a struct from columns to mechanisms.

    """
    for kind in plain(types).to_pylist():
        _NOTED.columns = _Columns(fields_of(kind or ""))
    return pa.array(['"VARCHAR"'] * len(types))


@guarded
def rows_query(tables: Texts, kept: Settings, catalogs: Texts) -> pa.Array:
    """Return the query of ``ldp.perturb_rows``, of the columns that were noted before.

    Args:
        tables: the table.
        kept: the name of the column to be kept, or a list of names.
        catalogs: the catalog of the macros, with a dot.

    """
    columns, _NOTED.columns = getattr(_NOTED, "columns", None), None
    if isinstance(columns, Exception):
        raise columns
    rows = zip(*(plain(column).to_pylist() for column in (tables, kept, catalogs)), strict=True)
    return pa.array([_query(columns, *row) for row in rows], pa.string())


def _query(columns: _Columns | None, table: str | None, kept: Any, catalog: str | None) -> str:
    if table is None or catalog is None:
        raise InvalidParameter("the table is NULL", _STRUCT)
    keep = [kept] if isinstance(kept, str) else kept
    if not isinstance(keep, list) or not all(isinstance(name, str) for name in keep):
        raise InvalidParameter("keep must be the name of a column, or a list of names", _KEEP)
    names = f"[{', '.join(map(text_literal, keep))}]::VARCHAR[]"
    if columns is None:  # DuckDB knows the types of subqueries while it binds them, not what they return
        noted = 'system.main.__ldp_note_types(typeof((SELECT m FROM "_ldpsql_columns")))'
        again = f"query(system.main.__ldp_rows_query({text_literal(table)}, {names}, {text_literal(catalog)}))"
        none = f"""SELECT true AS "_ldpsql_none" WHERE from_json('null', {noted}) IS NOT NULL"""
        return f'SELECT * EXCLUDE ("_ldpsql_none") FROM ({none} UNION ALL BY NAME FROM {again})'  # noqa: S608  # quoted
    perturbed = [name.lower() for name in columns.types]
    if not perturbed:
        raise InvalidParameter("the mechanisms of columns must be a struct", _STRUCT)
    others = [name for name in map(str.lower, keep) if name not in perturbed and not name.startswith(_OWN)]
    kept_too = f"COLUMNS(lambda c: {_LOWER}(c) IN {_listed(others)})"
    words = {
        "DRAWN": ", ".join(columns.drawn(name, others, catalog) for name in columns.types),
        "SHOWN": ", ".join(map(columns.shown, columns.types)),
        "OR_PLACES": "OR c = '_ldpsql_places'" if others else "",
        "PLACED_KEPT": f", {kept_too}" if others else "",
        "TAKEN_KEPT": f', list_extract({kept_too}, "_ldpsql_places")' if others else "",
        "PERTURBED": _listed(perturbed),
        "ALL_NAMES": _listed([*perturbed, *others]),
        "KEPT_NAMES": names,
        "TABLE": text_literal(table),
        "ldp.": catalog,
    }
    return _WORDS.sub(lambda word: words[word[0]], _QUERY)


def _listed(names: Iterable[str]) -> str:
    return f"[{', '.join(f'{_LOWER}({text_literal(name)})' for name in names)}]"


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.perturb_rows``."""
    return [
        *dict.fromkeys(_BY_KIND.values()),
        Scalar("__ldp_forget", forget, "VARCHAR"),
        Scalar("__ldp_note", note, "VARCHAR"),
        Scalar("__ldp_note_types", note_types, "VARCHAR"),
        Scalar("__ldp_rows_query", rows_query, "VARCHAR", draws=True),
        Scalar("__ldp_there", there, "VARCHAR"),
        Scalar("__ldp_identical", identical, "BOOLEAN"),
        Scalar("__ldp_parts", parts_of, "BIGINT[][]", volatile=True, draws=False),
        Scalar("__ldp_order", order_of, "INTEGER[]", volatile=True, draws=False),
        Macros.beside(__file__),
    ]
