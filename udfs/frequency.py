"""Counts of reports, the checks of tables of reports, and raw columns next to a perturbed one: sums and weights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

from ldpsql.bulk.fingerprints import check_files, check_view, compare_comments
from ldpsql.engine.arguments import Takes, structs_with
from ldpsql.engine.forms import counted_by_form, listed_by, weighed_by
from ldpsql.engine.identity import parts
from ldpsql.engine.sql_struct import columns_of
from ldpsql.errors import WrongType
from ldpsql.estimates.conditions import values_of
from ldpsql.functions import (
    MECHANISMS,
    Column,
    Handles,
    Lists,
    Macros,
    Scalar,
    Texts,
    Wholes,
    by_row,
    check_counts,
    guarded,
    hookimpl,
    one_thread,
    plain,
)
from ldpsql.inference.counting import check_reports
from ldpsql.inference.counts import weighed
from ldpsql.mechanisms import InvalidParameter, Mechanism
from ldpsql.outcomes import corrected
from ldpsql.outcomes.moments import people as people_of_rows
from ldpsql.outcomes.moments import sums_sql
from ldpsql.questions import GroupedCounts, Mixed, named_place
from ldpsql.registry.handles import ASKED
from ldpsql.reports import octets

_NAME = r'(?:(\w+)|"((?:[^"]|"")*)")'
_COLUMN = re.compile(rf"{_NAME} := (?:{_NAME}\.)*{_NAME}(?:, |\)$)")
_COLUMNS = re.compile(rf"struct_pack\((?:{_COLUMN.pattern})+")  # a struct of columns, as DuckDB names it
_FIELD = re.compile(rf"STRUCT\({_NAME} ")  # of a type; the name is in quotes if it must be
_Places = Annotated[Column, Takes("a table", structs_with("name", "place", "catalog", "search_path", "columns"))]


@by_row(Lists, Lists, returns=pa.struct([("positions", pa.list_(pa.int64())), ("n", pa.list_(pa.uint64()))]))
def merge(keys: pa.Scalar, sizes: pa.Scalar) -> dict[str, Any] | None:
    """Return the positions of the distinct reports of a group of counts, and the sums of their numbers; NULL is left out."""
    if not (keys.is_valid and sizes.is_valid):
        return None
    reports, numbers = keys.values, sizes.values
    if len(reports) != len(numbers):
        raise InvalidParameter("each report needs its number", "pass the keys and the values of one map")
    rows = np.flatnonzero(reports.is_valid().to_numpy(zero_copy_only=False))
    if len(reports) and not len(rows):
        return None  # as histogram() of nothing else
    first, sums = GroupedCounts.of(reports.take(pa.array(rows)), numbers.take(pa.array(rows))).merge()
    return {"positions": rows[first] + 1, "n": sums.astype(np.uint64)}


@guarded
def weigh(reports: Lists, weights: Lists) -> pa.Array:
    """Return the positions of the distinct reports of each group, and the sums of their rows, weights and squared weights.

    Args:
        reports: lists of reports.
        weights: for each report the weight of its row, or such sums.

    """
    lists, numbers = plain(reports), plain(weights)
    filled = lists.is_valid().to_numpy(zero_copy_only=False) & numbers.is_valid().to_numpy(zero_copy_only=False)
    if not filled.any():
        return pa.nulls(len(lists))  # these may be no lists, but NULL without a type
    at = pa.array(np.flatnonzero(filled))
    own, given = lists.take(at), numbers.take(at)
    sizes = np.diff(own.offsets.to_numpy()).astype(np.int64)
    if not np.array_equal(sizes, np.diff(given.offsets.to_numpy())):
        raise InvalidParameter("each report needs its weight", "pass the keys and the values of one map")
    group = np.repeat(np.flatnonzero(filled), sizes)
    first, counts = weighed(own.flatten(), given.flatten(), group)
    begins = np.zeros(len(lists), dtype=np.int64)
    begins[filled] = np.cumsum(sizes) - sizes
    ends = np.concatenate([[0], np.bincount(counts.groups[counts.group], minlength=len(lists)).cumsum()])
    offsets, nothing = pa.array(ends, pa.int32()), pa.array(~filled)
    places = pa.array(first - begins[counts.groups[counts.group]] + 1)
    columns = [pa.ListArray.from_arrays(offsets, column, mask=nothing) for column in (places, counts.written())]
    return pa.StructArray.from_arrays(columns, ["positions", "n"])


@guarded
def people(counts: Column) -> pa.Array:
    """Return how many rows each group of counts, or of rows with raw columns, stands for; NULL for NULL."""
    if pa.types.is_struct(counts.type):
        return people_of_rows(counts)
    maps = plain(counts)
    check_counts(maps.type)
    if pa.types.is_null(maps.type):
        return maps.cast(pa.int64())
    of_rows = GroupedCounts.of(maps.keys, maps.items).people
    ends = np.concatenate([[0], np.cumsum(of_rows)])[maps.offsets.to_numpy()]
    return pa.array(np.diff(ends).astype(np.int64), mask=np.asarray(maps.is_null()))


@guarded
def octets_of_sets(reports: Lists) -> pa.Array:
    """Return reports that are sets as bytes, which DuckDB counts in a quarter of the memory that lists take."""
    column = plain(reports)
    return octets(column) if pa.types.is_list(column.type) else pa.nulls(len(column), pa.binary())  # NULL without a type


@guarded
def agreed(places: _Places, columns: Texts, handles: Handles) -> pa.Array:
    """Return true for each group of the reports of one place.

    Raises:
        OtherMechanism: if the comment of the column or the metadata of the file names another mechanism.

    """
    for row_type in filter(None, plain(columns).unique().to_pylist()):
        name = _FIELD.match(row_type)
        if name is not None:
            for column, mechanism in _drawn_as(_unquoted(*name.groups()), ASKED.thing(handles[0].as_py()).source):
                _compare(places[0].as_py(), column, mechanism)
    return pa.array([True] * len(columns))


def _unquoted(plain_name: str | None, quoted_name: str | None) -> str:
    return plain_name or (quoted_name or "").replace('""', '"')


def _drawn_as(name: str, mechanism: Mechanism | Mixed) -> Iterator[tuple[str, Mechanism]]:
    """Yield the columns of reports in an expression, and the mechanism of each; a struct of columns has that of a row.

    Reports with their levels are an expression, of which no column has a mechanism.
    """
    if not isinstance(mechanism, Mechanism):
        return
    parts = dict(columns_of(mechanism))
    if not parts or not _COLUMNS.fullmatch(name):
        yield name, mechanism
        return
    for field in _COLUMN.finditer(name):
        if (part := parts.get(_unquoted(field[1], field[2]))) is not None:
            yield _unquoted(field[5], field[6]), part


def _compare(place: dict[str, Any], column: str, mechanism: Mechanism) -> None:
    name, schema = place["name"], [part for part in place["place"] or [] if part is not None]
    if name is None or len(schema) != 2:
        raise InvalidParameter("a table has a name, in a catalog and a schema", "call ldp.estimate, which passes them")
    found = [(tuple(one["path"] or ()), one["column"], one["comment"]) for one in place["columns"] or [] if one]
    comments = [(path, comment) for path, own, comment in found if own == column.lower()]
    if not compare_comments(name, schema, comments, mechanism):
        check_files(place["catalog"], name, column, mechanism)
        if any(own is None and "".join(path[-1:]).casefold() == parts(name)[-1] for path, own, _ in found):
            check_view(place["catalog"], place["search_path"], name, column, mechanism)


@by_row(Handles, Wholes, returns=pa.bool_())
def few_reports(handle: int, number: int) -> bool:
    """Return true, after a check that the reports can be read.

    Raises:
        InvalidParameter: if there are certainly more reports than can be read.

    """
    source = ASKED.thing(handle).source
    if isinstance(source, Mechanism):
        check_reports(source, number)
    return True


_OUTCOME, _WEIGHT = {"outcome": "outcome"}, "ldp._weight(weight)"
_WEIGHTS = "STRUCT(value VARCHAR, weight DOUBLE)[]"


def _groups(reports: pa.ListArray, *others: pa.Array) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield different values of the other columns, with the rows that have them and a list of reports."""
    filled = np.flatnonzero(reports.is_valid().to_numpy(zero_copy_only=False))
    keys = [tuple(column[row] for column in others) for row in filled]
    for key in dict.fromkeys(keys):
        rows = filled[[one == key for one in keys]]
        yield tuple(column[rows[0]] for column in others), rows


@guarded
@one_thread
def weights(reports: Column, handles: Handles, ofs: Column) -> pa.Array:
    """Return for each report a list of all values with the weight that the report has for each; NULL for NULL."""
    column, kind = plain(reports), pa.list_(pa.struct([("value", pa.string()), ("weight", pa.float64())]))
    lists, place = [pa.nulls(1, kind)], np.zeros(len(column), dtype=np.int64)
    for (handle, of), rows in _groups(column, plain(handles), plain(ofs)):
        mechanism = MECHANISMS.thing(handle.as_py())
        named = named_place(values_of(mechanism), of)
        places = () if named is None else (named,)
        own = corrected.columns_of(mechanism, places)[0]
        there, q = corrected.contributions(mechanism, places, column.take(pa.array(rows)))
        values = own.written.take(pa.array(np.tile(np.arange(len(own)), len(there))))
        structs = pa.StructArray.from_arrays([values, pa.array(q.ravel())], fields=list(kind.value_type))
        place[rows[there]] = sum(map(len, lists)) + np.arange(len(there))
        lists.append(pa.ListArray.from_arrays(pa.array(np.arange(len(there) + 1) * len(own), pa.int32()), structs))
    return pa.concat_arrays(lists).take(pa.array(place))


_UNREAD = (  # after FROM without a mechanism, a macro has only the name of the column
    "cast the column; after FROM, pass the mechanism of the reports too: "
    "FROM ldp.outcome(reports, city, city(), outcome := ldp.unbiased(income, income()))"
)


@guarded
@one_thread
def unbiased(reports: Column, handles: Handles) -> pa.Array:
    """Return for each report a number whose expectation is the value behind it; NULL for NULL."""
    column, out = plain(reports), np.full(len(reports), np.nan)
    for (handle,), rows in _groups(column, plain(handles)):
        try:
            there, numbers = corrected.unbiased(MECHANISMS.thing(handle.as_py()), column.take(pa.array(rows)))
        except WrongType as error:
            raise WrongType(error.message, _UNREAD if pa.types.is_string(column.type) else error.hint) from None
        out[rows[there]] = numbers
    return pa.array(out, mask=np.isnan(out))


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.counts`` and what tables of reports need, ``ldp.sums``, ``ldp.weights`` and ``ldp.unbiased``."""
    return [
        Scalar("__ldp_agreed", agreed, "BOOLEAN"),
        Scalar("__ldp_few", few_reports, "BOOLEAN"),
        Scalar("__ldp_weigh", weigh, "STRUCT(positions BIGINT[], n STRUCT(n UBIGINT, w DOUBLE, ww DOUBLE)[])"),
        Scalar("__ldp_people", people, "BIGINT"),
        Scalar("__ldp_merge", merge, "STRUCT(positions BIGINT[], n UBIGINT[])"),
        Scalar("__ldp_weights", weights, _WEIGHTS),
        Scalar("__ldp_unbiased", unbiased, "DOUBLE"),
        Macros(
            f"CREATE OR REPLACE MACRO ldp.sums(report, outcome, weight := NULL) AS {sums_sql('report', _OUTCOME, _WEIGHT)};"
        ),
        Macros.beside(__file__),
        Scalar("__ldp_octets", octets_of_sets, "BLOB"),
        counted_by_form(),
        listed_by(),
        weighed_by(),
    ]
