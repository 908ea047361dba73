"""Finite domains: the values that may be perturbed, and the reports that may come out.

A domain is declared, never inferred from data, and keeps the type of its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BeforeValidator, PlainSerializer

from ldpsql.channels import Codes
from ldpsql.errors import InvalidDomain, MissingValue, OutsideDomain, WrongType

_FAMILIES = {
    "text": (pa.types.is_string, pa.types.is_large_string),
    "number": (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    "boolean": (pa.types.is_boolean,),
    "time": (pa.types.is_date, pa.types.is_timestamp, pa.types.is_time),
}
_NAMED_TYPES = {str(t): t for t in (pa.string(), pa.large_string(), pa.bool_(), pa.date32(), pa.time64("us"))} | {
    str(t): t
    for t in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float32(), pa.float64()),
        *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    )
}


def family(arrow_type: pa.DataType) -> str | None:
    """Return which values a type can be compared with: text, number, boolean or time; None for anything else."""
    return next((name for name, tests in _FAMILIES.items() if any(test(arrow_type) for test in tests)), None)


def plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the column as one array (DuckDB hands over chunks), text in the form that Arrow can look up."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return whole.cast(pa.string()) if pa.types.is_string_view(whole.type) else whole


class Domain:
    """At least two distinct, non-NULL values of one type, in a fixed order.

    >>> Domain.of(["Lima", "Oslo"]).codes(pa.array(["Oslo", "Oslo", "Lima"])).tolist()
    [1, 1, 0]
    """

    def __init__(self, values: pa.Array) -> None:
        self.values = values
        self._as_type: dict[pa.DataType, pa.Array | None] = {}

    @classmethod
    def of(cls, given: object) -> Domain:
        """Read a list, a range, an Arrow array, a Polars series, or the form that `to_json` writes.

        Raises:
            InvalidDomain: for fewer than two values, duplicates, NULL, NaN, or a type that has no exact equality.

        """
        if isinstance(given, Domain):
            return given
        values = _to_arrow(given)
        if len(values) < 2:
            raise InvalidDomain("a domain must hold at least two values", "declare every value that may occur")
        if family(values.type) is None:
            raise InvalidDomain(
                "the values of a domain must be text, numbers, booleans, dates or times", "cast them in the domain"
            )
        if values.null_count:
            raise InvalidDomain("a domain must not hold NULL", "declare a value for it and use nulls := 'as:VALUE'")
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            raise InvalidDomain("a domain must not hold NaN", "declare finite numbers only")
        if len(pc.unique(values)) < len(values):
            raise InvalidDomain("a domain must not hold a value twice", "list every value once")
        return cls(values)

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Domain) and self.values.equals(other.values)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((str(self.values.type), *self.values.to_pylist()))

    def __repr__(self) -> str:
        return repr(self.to_json())

    @cached_property
    def texts(self) -> list[str]:
        """The values as text, in order."""
        return list(self.values.cast(pa.string()).to_pylist())

    def to_json(self) -> list[Any] | dict[str, Any]:
        """Return a plain list where that says it all, else the type beside the values as text."""
        plain_list = self.values.to_pylist()
        if pa.array(plain_list).type == self.values.type:
            return list(plain_list) if family(self.values.type) != "time" else self._typed()
        return self._typed()

    def _typed(self) -> dict[str, Any]:
        return {"type": str(self.values.type), "values": self.texts}

    def position(self, text: str) -> int | None:
        """Return the position of the value that reads like this, None if there is none."""
        return self.texts.index(text) if text in self.texts else None

    def locate(self, column: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Return the position of every value as int32, null where it is NULL or not in the domain.

        Raises:
            WrongType: where the column's type cannot be compared with the domain's.

        """
        column = plain(column)
        if pa.types.is_dictionary(column.type):
            return pc.take(self.locate(column.dictionary), column.indices)
        if pa.types.is_null(column.type):
            return pa.nulls(len(column), pa.int32())
        if column.type not in self._as_type:
            self._as_type[column.type] = self._cast(column.type)
        values = self._as_type[column.type]
        if values is not None:
            return pc.index_in(column, value_set=values)
        try:
            return pc.index_in(column.cast(self.values.type), value_set=self.values)
        except pa.ArrowException:
            raise OutsideDomain(*OUTSIDE) from None

    def _cast(self, column_type: pa.DataType) -> pa.Array | None:
        """Return the domain in a column's type (the domain is public, so it is the side that is cast); None if inexact."""
        if family(column_type) != family(self.values.type):
            raise WrongType(
                f"the column has type {column_type}, the domain has type {self.values.type}",
                "declare the domain in the column's type, or cast the column",
            )
        try:
            return self.values.cast(column_type)
        except pa.ArrowException:
            return None

    @cached_property
    def _first_of_range(self) -> int | None:
        """The first value, where the values are consecutive rising integers; then a position is a difference."""
        if not pa.types.is_integer(self.values.type):
            return None
        first, last = self.values[0].as_py(), self.values[-1].as_py()
        consecutive = pc.all(pc.equal(pc.pairwise_diff(self.values)[1:], 1)).as_py()
        return int(first) if consecutive and -(2**62) < first < last < 2**62 else None

    def _range_codes(self, column: pa.Array) -> Codes | None:
        """Return the positions in a range of integers by subtraction; None where that does not settle it."""
        if self._first_of_range is None or column.type != pa.int64() or column.null_count:
            return None
        offset = column.to_numpy() - self._first_of_range
        return None if (offset.view(np.uint64) >= len(self)).any() else offset.astype(np.int32)

    def codes(
        self, column: pa.Array | pa.ChunkedArray, *, null_code: int | None = None, outside_code: int | None = None
    ) -> Codes:
        """Return the position of every value, the given codes standing for NULL and for values outside.

        Raises:
            MissingValue: for a NULL without ``null_code``.
            OutsideDomain: for a value outside the domain without ``outside_code``.

        """
        column = plain(column)
        direct = self._range_codes(column)
        if direct is not None:
            return direct
        at = self.locate(column)
        if at.null_count:
            missing = column.is_null().to_numpy(zero_copy_only=False)
            outside = at.is_null().to_numpy(zero_copy_only=False) & ~missing
            if null_code is None and missing.any():
                raise MissingValue(*MISSING)
            if outside_code is None and outside.any():
                raise OutsideDomain(*OUTSIDE)
            known = at.fill_null(0).to_numpy(zero_copy_only=False)
            return np.select([missing, outside], [np.int32(null_code or 0), np.int32(outside_code or 0)], known)
        return at.to_numpy(zero_copy_only=False)


MISSING = ("a NULL was to be perturbed, and the mechanism has no rule for NULL", "declare nulls := 'as:VALUE'")
OUTSIDE = ("a value to be perturbed is outside the declared domain", "add it, or declare outside := 'as:VALUE'")


def _to_arrow(given: object) -> pa.Array:
    """Return the given values as one plain Arrow array."""
    try:
        if isinstance(given, dict):
            return pa.array(given["values"], pa.string()).cast(_named_type(given["type"]))
        if isinstance(given, pl.Series):
            given = given.to_arrow()
        if isinstance(given, pa.Array | pa.ChunkedArray):
            values = plain(given)
            return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        if isinstance(given, Sequence | np.ndarray) and not isinstance(given, str | bytes):
            return pa.array(given)
    except (pa.ArrowException, KeyError, TypeError, ValueError, OverflowError):
        pass
    raise InvalidDomain("a domain must be a list of values of one type", "for example ['Lima', 'Oslo', 'Rome']")


def _named_type(name: str) -> pa.DataType:
    if name.startswith("decimal128("):
        digits, scale = name.removeprefix("decimal128(").rstrip(")").split(",")
        return pa.decimal128(int(digits), int(scale))
    return _NAMED_TYPES[name]


DomainField = Annotated[Domain, BeforeValidator(Domain.of), PlainSerializer(Domain.to_json)]
