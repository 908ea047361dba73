"""Sums of raw columns for each distinct report: all that outcomes, weighted shares and regressions need of the rows.

With the raw columns u = (1, y, x_1, ...) and the weight w of a row, these are the sums of w m for the products m of two of
them, and of w^2 m for the products of four, which give sandwich errors. They are plain ``sum()``s under GROUP BY, and add up.
They are not counts, and have another type: structs with the fields of `SUMS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise
from math import comb

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.channels import Floats
from ldpsql.domains.columns import as_numbers, distinct, struct_parts, taken
from ldpsql.errors import BadCounts, InvalidParameter
from ldpsql.quoting import quoted
from ldpsql.reports import of_octets

SUMS = ("n", "refused", "least", "most", "w", "ww")
ROW = ("y", "w", "x")  # of a list of rows instead of sums
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

    """

    reports: pa.Array
    group: NDArray[np.int64]
    groups: NDArray[np.int64]
    n: Floats
    first: Floats
    second: Floats
    ends: Floats

    @property
    def columns(self) -> int:
        """The number of raw columns, the outcome included."""
        return next(c for c in range(1, MOST_COLUMNS + 1) if comb(c + 2, 2) == self.first.shape[1])

    @classmethod
    def of_rows(
        cls, reports: pa.Array, raw: Floats, weights: Floats, group: NDArray[np.int64], groups: NDArray[np.int64]
    ) -> Moments:
        """Return the sums over rows.

        Args:
            reports: the report of each row, none of which is NULL.
            raw: the raw columns, the outcome first, shape (rows, columns).
            weights: the weight of each row.
            group: the position in ``groups`` of each row.
            groups: the caller's number of each group.

        """
        first, number = distinct(reports)
        cells, row, cell = np.unique(group * len(first) + number, return_index=True, return_inverse=True)
        u = np.column_stack([np.ones(len(raw)), raw])

        def added(weight: Floats, degree: int) -> Floats:
            sums = [weight * u[:, list(places)].prod(axis=1) for places in products(raw.shape[1], degree)]
            return np.stack([np.bincount(cell, weights=one, minlength=len(cells)) for one in sums], axis=1)

        ends = np.stack([np.full(len(cells), np.inf), np.full(len(cells), -np.inf)], axis=1)
        np.minimum.at(ends[:, 0], cell, raw[:, 0])
        np.maximum.at(ends[:, 1], cell, raw[:, 0])
        n = np.bincount(cell, minlength=len(cells)).astype(np.float64)
        return cls(taken(reports, row), group[row], groups, n, added(weights, 2), added(weights**2, 4), ends)

    @classmethod
    def of_lists(cls, reports: pa.ListArray, lists: pa.ListArray, rows: NDArray[np.int64]) -> Moments:
        """Return the sums in some rows of SQL columns of lists.

        Args:
            reports: lists of reports.
            lists: for each report, its sums, a struct of `SUMS`, or one row, a struct of `ROW`.
            rows: the rows to read, none of which is NULL.

        Raises:
            BadCounts: if the lists are neither, or a weight is negative, NULL or not finite.

        """
        if set(_names(lists)) == set(ROW):
            flat = RawRows.of_lists(reports, lists, rows)
            return cls.of_rows(flat.reports, flat.raw, flat.weights, flat.group, rows)
        if not set(_names(lists)) >= set(SUMS):
            raise BadCounts("these are not sums of weights and outcomes", "use ldp.sums(report, y) under GROUP BY report")
        own, cells, group = _flattened(reports, lists, rows)
        number = dict(zip(cells.type.names, struct_parts(cells), strict=True))
        if pc.sum(number["refused"]).as_py():
            raise _bad_weights()
        n = number["n"].cast(pa.float64()).fill_null(0.0).to_numpy()
        used = np.flatnonzero(own.is_valid().to_numpy(zero_copy_only=False) & (n > 0))
        at = pa.array(used)
        first, second = (_table(number[name].take(at), len(used)) for name in ("w", "ww"))
        if not (np.isfinite(first).all() and np.isfinite(second).all()):
            raise _not_finite()
        ends = np.stack([number[name].take(at).cast(pa.float64()).to_numpy() for name in ("least", "most")], axis=1)
        return cls(own.take(at), group[used], rows, n[used], first, second, ends)

    def each(self) -> Iterator[Moments]:
        """Yield the sums of each group."""
        order = np.argsort(self.group, kind="stable")
        edges = np.searchsorted(self.group[order], np.arange(len(self.groups) + 1))
        for place, (start, end) in enumerate(pairwise(edges)):
            at = order[start:end]
            own = (self.n[at], self.first[at], self.second[at], self.ends[at])
            reports = self.reports.take(pa.array(at))
            yield Moments(reports, np.zeros(len(at), dtype=np.int64), self.groups[place : place + 1], *own)


@dataclass(frozen=True, eq=False)
class RawRows:
    """Rows with a report, raw columns and a weight, none of them NULL; ``group`` is the position of the group of each."""

    reports: pa.Array
    raw: Floats
    weights: Floats
    group: NDArray[np.int64]
    names: tuple[str, ...]

    @classmethod
    def of_lists(cls, reports: pa.ListArray, lists: pa.ListArray, rows: NDArray[np.int64]) -> RawRows:
        """Return the rows in lists of structs of `ROW`; ``x`` is a struct of raw regressors, or NULL.

        Raises:
            BadCounts: if a weight is negative, NULL or not finite, or a raw column is not finite.

        """
        own, cells, group = _flattened(reports, lists, rows)
        part = dict(zip(cells.type.names, struct_parts(cells), strict=True))
        y, w, x = (part[name] for name in ROW)
        columns, names = [y], []
        if pa.types.is_struct(x.type):
            names = [field.name for field in x.type]
            columns += struct_parts(x)
        elif not pa.types.is_null(x.type):
            raise InvalidParameter("raw regressors must be a STRUCT of numbers", "such as {age: age, hours: hours}")
        check_columns(len(columns))
        there = own.is_valid()
        for column in columns:
            there = pc.and_(there, column.is_valid())
        at = pa.array(np.flatnonzero(there.to_numpy(zero_copy_only=False)))
        raw = np.stack([as_numbers(column.take(at)) for column in columns], axis=1)
        weights = as_numbers(w.take(at)) if not w.take(at).null_count else np.full(len(at), np.nan)
        if not np.isfinite(weights).all() or (weights < 0).any():
            raise _bad_weights()
        if not np.isfinite(raw).all():
            raise _not_finite()
        return cls(own.take(at), raw, weights, group[at.to_numpy()], tuple(names))


def sums_sql(report: str, raw: Sequence[str], weight: str) -> str:
    """Return the SQL expression of a report and the sums of its rows, for a query that is grouped by the report.

    Args:
        report: the column of reports.
        raw: the raw columns, the outcome first.
        weight: the weight of each row; 1 for none.

    """
    check_columns(len(raw))
    used = " AND ".join(f"({column}) IS NOT NULL" for column in raw)
    # The message of a failed CAST would show the value.
    factors, weight = [f"TRY_CAST(({column}) AS DOUBLE)" for column in raw], f"TRY_CAST(({weight}) AS DOUBLE)"
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
        "report": report,
        "n": n,
        "refused": f"{n} - count(*) FILTER ({numbers} AND {weight} >= 0 AND {weight} < 'inf'::DOUBLE)",
        "least": f"min({factors[0]})",
        "most": f"max({factors[0]})",
        "w": added(1, 2),
        "ww": added(2, 4),
    }
    return "{" + ", ".join(f"{quoted(name)}: {sql}" for name, sql in parts.items()) + "}"


def check_columns(number: int) -> None:
    """Refuse more raw columns than `MOST_COLUMNS`.

    Raises:
        InvalidParameter: if there are more, or none.

    """
    if not 0 < number <= MOST_COLUMNS:
        raise InvalidParameter(f"there must be 1 to {MOST_COLUMNS} raw columns, and there are {number}", "leave some out")


def _bad_weights() -> BadCounts:
    return BadCounts(
        "some weights are negative, NULL or not finite, or a raw column holds other things than numbers",
        "leave these rows out, or give them a weight of 0",
    )


def _not_finite() -> BadCounts:
    return BadCounts("a raw column has numbers that are not finite", "leave these rows out")


def _names(lists: pa.ListArray) -> list[str]:
    return [field.name for field in lists.type.value_type] if pa.types.is_struct(lists.type.value_type) else []


def _flattened(
    reports: pa.ListArray, lists: pa.ListArray, rows: NDArray[np.int64]
) -> tuple[pa.Array, pa.Array, NDArray[np.int64]]:
    """Return the items of both columns, and the group of each."""
    own, chosen = reports.take(pa.array(rows)), lists.take(pa.array(rows))
    sizes = np.diff(chosen.offsets.to_numpy())
    if not np.array_equal(sizes, np.diff(own.offsets.to_numpy())):
        raise BadCounts("there must be as many reports as rows", "use ldp.outcome or ldp.regression")
    flat = own.flatten()
    flat = of_octets(flat) if pa.types.is_binary(flat.type) else flat
    return flat, chosen.flatten(), np.repeat(np.arange(len(rows)), sizes)


def _table(lists: pa.Array, rows: int) -> Floats:
    """Return lists of equal lengths as a table, NULL as NaN."""
    numbers = lists.flatten().cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
    return numbers.reshape(rows, -1) if rows else numbers.reshape(0, 3)
