"""Sums of raw columns for each distinct report: all that outcomes, weighted shares and regressions need of the rows.

With the raw columns u = (1, y, x_1, ...) and the weight w of a row, these are the sums of w m for the products m of two of
them, and of w^2 m for the products of four, which give sandwich errors. They are plain ``sum()``s under GROUP BY, and add up.
They are not counts, and have another type: structs with the fields of `SUMS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.channels import Floats
from ldpsql.domains.columns import as_numbers, distinct, plain, struct_parts, taken
from ldpsql.errors import BadCounts, InvalidParameter
from ldpsql.quoting import quoted, text_literal
from ldpsql.reports import of_octets

REPORT, WEIGHT = "report", "weight"  # the fields of a report among its sums, and of the weight of a row
SUMS = (REPORT, "n", "refused", "least", "most", "names", "w", "ww")
MOST_COLUMNS = 8  # raw columns: there are 715 products of four of 1 and nine numbers


def products(columns: int, degree: int) -> list[tuple[int, ...]]:
    """Return the products of ``degree`` of (1, y, x_1, ...), each as the places of its factors."""
    return list(combinations_with_replacement(range(columns + 1), degree))


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums for each distinct report of each group; rows whose report or outcome is NULL are left out.

    Args:
        reports: the distinct reports, one for each row.
        group: the position in ``groups`` of each row.
        groups: the caller's number of each group.
        n: how many rows were added up, shape (rows,).
        first: the sums of w m, shape (rows, products of two).
        second: the sums of w^2 m, shape (rows, products of four).
        ends: the least and the largest outcome y, shape (rows, 2).
        names: the names of x_1, x_2, ...

    """

    reports: pa.Array
    group: NDArray[np.int64]
    groups: NDArray[np.int64]
    n: Floats
    first: Floats
    second: Floats
    ends: Floats
    names: tuple[str, ...] = ()

    @classmethod
    def of_lists(cls, lists: pa.ListArray, rows: NDArray[np.int64]) -> Moments:
        """Return the sums in some rows of an SQL column of lists of structs of `SUMS`, none of which is NULL.

        Raises:
            BadCounts: if the sums are of different columns, or a weight is negative, NULL or not finite.

        """
        cells, group = _flattened(lists.take(pa.array(rows)))
        number = dict(zip(cells.type.names, struct_parts(cells), strict=True))
        own, names = number[REPORT], number["names"].unique().drop_null()
        if pc.sum(number["refused"]).as_py():
            raise not_numbers()
        n = number["n"].cast(pa.float64()).fill_null(0.0).to_numpy()
        used = np.flatnonzero(own.is_valid().to_numpy(zero_copy_only=False) & (n > 0))
        at = pa.array(used)
        first, second = (_table(number[name].take(at), len(used)) for name in ("w", "ww"))
        if not (np.isfinite(first).all() and np.isfinite(second).all()):
            raise _not_finite()
        ends = np.stack([number[name].take(at).cast(pa.float64()).to_numpy() for name in ("least", "most")], axis=1)
        reports = of_octets(own) if pa.types.is_binary(own.type) else own
        regressors = tuple(one for text in names.to_pylist() for one in str(text).split("\n") if one)
        if len(names) > 1 or {first.shape[1:], second.shape[1:]} != {(len(products(len(regressors) + 1, d)),) for d in (2, 4)}:
            raise BadCounts("the sums are of different raw columns", "add up sums of the same columns")
        return cls(reports.take(at), group[used], rows, n[used], first, second, ends, regressors)

    def sums(self) -> Moments:
        """Return the sums."""
        return self

    def each(self) -> Iterator[Moments]:
        """Yield the sums of each group."""
        for groups, at in _each(self.group, self.groups):
            own = (self.n[at], self.first[at], self.second[at], self.ends[at], self.names)
            yield Moments(self.reports.take(pa.array(at)), np.zeros(len(at), dtype=np.int64), groups, *own)


@dataclass(frozen=True, eq=False)
class RawRows:
    """Rows with a report, raw columns and a weight, none of them NULL.

    Args:
        reports: the report of each row.
        group: the position in ``groups`` of each row.
        groups: the caller's number of each group.
        raw: the raw columns, the outcome first, shape (rows, columns).
        weights: the weight of each row.
        names: the names of the raw columns after the outcome.

    """

    reports: pa.Array
    group: NDArray[np.int64]
    groups: NDArray[np.int64]
    raw: Floats
    weights: Floats
    names: tuple[str, ...]

    @classmethod
    def of_lists(cls, reports: pa.ListArray, lists: pa.ListArray, rows: NDArray[np.int64]) -> RawRows:
        """Return the rows in lists of structs: raw columns or structs of them, outcome first, and `WEIGHT`, or NULL for 1."""
        own, group = _flattened(reports.take(pa.array(rows)))
        cells, _ = _flattened(lists.take(pa.array(rows)))
        if len(cells) != len(own):
            raise BadCounts("there must be as many reports as rows", "call the aggregate of a question in ldp")
        columns = _raw_columns(cells)
        w = columns.pop(WEIGHT)
        check_columns(len(columns))
        there = own.is_valid()
        for column in columns.values():
            there = pc.and_(there, column.is_valid())
        at = pa.array(np.flatnonzero(there.to_numpy(zero_copy_only=False)))
        raw = np.stack([as_numbers(column.take(at)) for column in columns.values()], axis=1)
        weights = np.ones(len(at)) if pa.types.is_null(w.type) else as_numbers(w.take(at))
        if not np.isfinite(weights).all() or (weights < 0).any():
            raise not_numbers()
        if not np.isfinite(raw).all():
            raise _not_finite()
        return cls(own.take(at), group[at.to_numpy()], rows, raw, weights, tuple(columns)[1:])

    def sums(self) -> Moments:
        """Return the sums over the rows of each report of each group."""
        first, number = distinct(self.reports)
        cells, row, cell = np.unique(self.group * len(first) + number, return_index=True, return_inverse=True)
        u = np.column_stack([np.ones(len(self.raw)), self.raw])

        def added(weight: Floats, degree: int) -> Floats:
            sums = [weight * u[:, list(places)].prod(axis=1) for places in products(self.raw.shape[1], degree)]
            return np.stack([np.bincount(cell, weights=one, minlength=len(cells)) for one in sums], axis=1)

        ends = np.stack([np.full(len(cells), np.inf), np.full(len(cells), -np.inf)], axis=1)
        np.minimum.at(ends[:, 0], cell, self.raw[:, 0])
        np.maximum.at(ends[:, 1], cell, self.raw[:, 0])
        n = np.bincount(cell, minlength=len(cells)).astype(np.float64)
        sums = (n, added(self.weights, 2), added(self.weights**2, 4), ends, self.names)
        return Moments(taken(self.reports, row), self.group[row], self.groups, *sums)

    def each(self) -> Iterator[RawRows]:
        """Yield the rows of each group."""
        for groups, at in _each(self.group, self.groups):
            own = (self.raw[at], self.weights[at], self.names)
            yield RawRows(self.reports.take(pa.array(at)), np.zeros(len(at), dtype=np.int64), groups, *own)


def rows_of(column: pa.ChunkedArray, handles: pa.ChunkedArray) -> Iterator[tuple[int, RawRows | Moments]]:
    """Yield each handle with the rows of its groups, or their sums; groups without reports are left out.

    Args:
        column: structs of lists, ``reports`` and ``rows``; if the reports are sums, their rows do not matter.
        handles: what the caller knows about each group.

    """
    reports, rows = _lists(column)
    if reports is None:
        return
    by_group, filled = plain(handles).to_numpy(zero_copy_only=False), np.flatnonzero(pc.list_value_length(reports).fill_null(0))
    for handle in np.unique(by_group[filled]):
        groups = filled[by_group[filled] == handle]
        yield int(handle), Moments.of_lists(reports, groups) if rows is None else RawRows.of_lists(reports, rows, groups)


def people(column: pa.ChunkedArray) -> pa.Array:
    """Return how many rows each struct of `rows_of` stands for: those whose report and raw columns are not NULL."""
    out = np.zeros(len(column), dtype=np.int64)
    for _, rows in rows_of(column, pa.chunked_array([pa.array(out)])):
        out[rows.groups] = np.bincount(rows.group, rows.n if isinstance(rows, Moments) else None, len(rows.groups))
    return pa.array(out)


def _lists(column: pa.ChunkedArray) -> tuple[pa.ListArray | None, pa.ListArray | None]:
    """Return the lists of reports and of rows; None for rows if the reports are sums, and for both if there are none."""
    if not pa.types.is_struct(column.type) or column.type.names != ["reports", "rows"]:
        raise BadCounts("these are not reports and their rows", "call the aggregate of a question in ldp")
    reports, rows = struct_parts(plain(column))
    if pa.types.is_map(reports.type):
        raise InvalidParameter("counts have no raw columns", "pass the reports, or ldp.sums(report, outcome)")
    if not pa.types.is_list(reports.type):
        return None, None
    kind = reports.type.value_type
    if pa.types.is_struct(kind) and set(SUMS) <= set(kind.names):
        return reports, None
    row = rows.type.value_type if pa.types.is_list(rows.type) else rows.type
    if not pa.types.is_struct(row) or WEIGHT not in row.names or pa.types.is_null(row.field(0).type):
        raise InvalidParameter("this question is about a raw column, and none is named", "ldp.outcome(report, m, premium)")
    return reports, rows


def _raw_columns(cells: pa.StructArray) -> dict[str, pa.Array]:
    """Return the columns of structs of a row, those of a struct in it by their own names, without those that are left out."""
    out: dict[str, pa.Array] = {}
    for field, column in zip(cells.type, struct_parts(cells), strict=True):
        own = (
            zip(column.type.names, struct_parts(column), strict=True)
            if pa.types.is_struct(column.type)
            else [(field.name, column)]
        )
        for name, each in own:
            if name in out:
                raise InvalidParameter("two raw columns have the same name", "give a raw column another name")
            if field.name == WEIGHT or not pa.types.is_null(each.type):
                out[name] = each
    return out


def sums_sql(report: str, raw: Mapping[str, str], weight: str) -> str:
    """Return the SQL expression of a report and the sums of its rows, for a query that is grouped by the report.

    Args:
        report: the column of reports.
        raw: the raw columns by their names, the outcome first.
        weight: the weight of each row; 1 for none.

    """
    check_columns(len(raw))
    used = " AND ".join(f"({column}) IS NOT NULL" for column in raw.values())
    # The message of a failed CAST would show the value.
    factors, weight = [f"TRY_CAST(({column}) AS DOUBLE)" for column in raw.values()], f"TRY_CAST(({weight}) AS DOUBLE)"
    numbers = " AND ".join(f"{factor} IS NOT NULL" for factor in factors)

    def added(power: int, degree: int) -> str:
        # FILTER costs as much as the sum: a product of all raw columns is NULL anyway if one of them is.
        sums = []
        for places in products(len(raw), degree):
            product = " * ".join([weight] * power + [factors[i - 1] for i in places if i])
            sums.append(f"sum({product})" + f" FILTER ({used})" * (len({*places} - {0}) < len(raw)))
        return "[" + ", ".join(sums) + "]"

    n = f"count(*) FILTER ({used})"
    parts = {
        REPORT: report,
        "n": n,
        "refused": f"{n} - count(*) FILTER ({numbers} AND {weight} >= 0 AND {weight} < 'inf'::DOUBLE)",
        "least": f"min({factors[0]})",
        "most": f"max({factors[0]})",
        "names": text_literal("\n".join(list(raw)[1:])),
        "w": added(1, 2),
        "ww": added(2, 4),
    }
    return "{" + ", ".join(f"{quoted(name)}: {sql}" for name, sql in parts.items()) + "}"


def check_columns(number: int) -> None:
    """Refuse more raw columns than `MOST_COLUMNS`."""
    if not 0 < number <= MOST_COLUMNS:
        raise InvalidParameter(f"there must be 1 to {MOST_COLUMNS} raw columns, and there are {number}", "leave some out")


def not_numbers() -> BadCounts:
    """Return the error for raw columns and weights that cannot be added up."""
    return BadCounts(
        "some weights are negative, NULL or not finite, or a raw column holds other things than numbers",
        "leave these rows out, or give them a weight of 0; for a raw column of reports pass ldp.unbiased(reports, mechanism)",
    )


def _not_finite() -> BadCounts:
    return BadCounts("a raw column has numbers that are not finite", "leave these rows out")


def _flattened(lists: pa.ListArray) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the items of lists, and the list of each."""
    flat = lists.flatten()
    sizes = pc.list_value_length(lists).fill_null(0).to_numpy()
    return of_octets(flat) if pa.types.is_binary(flat.type) else flat, np.repeat(np.arange(len(lists)), sizes)


def _each(group: NDArray[np.int64], groups: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the number of each group, as an array, and the places of its rows."""
    order = np.argsort(group, kind="stable")
    edges = np.searchsorted(group[order], np.arange(len(groups) + 1))
    for place, (start, end) in enumerate(pairwise(edges)):
        yield groups[place : place + 1], order[start:end]


def _table(lists: pa.Array, rows: int) -> Floats:
    """Return lists of equal lengths as a table, NULL as NaN."""
    numbers = lists.flatten().cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
    return numbers.reshape(rows, -1) if rows else numbers.reshape(0, 3)
