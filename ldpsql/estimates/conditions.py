"""What a question is about: positions of ordered values on a line, and conditions on values of a column or cells of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.domains.columns import family
from ldpsql.domains.composite import Product
from ldpsql.domains.domain import Domain
from ldpsql.domains.sql_types import shown_type
from ldpsql.domains.unlisted import Bins, Bounds, Numbers, Steps
from ldpsql.errors import InvalidDomain, InvalidParameter, MissingValue, OutsideDomain, WrongType
from ldpsql.inference.counting import ReportSource
from ldpsql.inference.operators import Floats, Ranges
from ldpsql.mechanisms.base import CertifiedRow, Mechanism, certify, certify_values

_DAY = 86_400.0


def scale_of(values: Domain) -> Floats:
    """Return the positions of the values: numbers as they are, dates in days and times in seconds since 1970.

    Raises:
        InvalidDomain: if the values have no order.

    """
    return positions_of(values.values)


def positions_of(column: pa.Array) -> Floats:
    """Return the positions of the values in a column without NULL, as `scale_of` does."""
    kind = family(column.type)
    if kind == "number":
        return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    if kind == "date":
        return np.asarray(column.cast(pa.timestamp("s")).cast(pa.int64()).to_numpy() / _DAY)
    if kind in ("timestamp", "timestamp with time zone"):
        microseconds = pa.timestamp("us", tz=column.type.tz)
        return np.asarray(column.cast(microseconds, safe=False).cast(pa.int64()).to_numpy() / 1e6)
    hint = "this needs numbers, dates or times"
    if kind == "boolean":
        hint = "ask for ldp.share(..., of := true), or cast booleans to 0 and 1 before they are perturbed"
    raise InvalidDomain("the values of this domain have no order", hint)


def between(values: Domain, low: float | None, high: float | None) -> Bounds:
    """Return which values stand only for numbers from ``low`` to ``high``, and which may stand for one of these.

    They are the same values, except for bins that an end cuts. Ends are on the scale of `scale_of`; None means no bound.

    Raises:
        InvalidDomain: if the values have no order.

    """
    if isinstance(values, Bins | Steps):
        return values.between(-np.inf if low is None else low, np.inf if high is None else high)
    inside = within(scale_of(values), low, high)
    return inside, inside


class Spans(NamedTuple):
    """The values of several ranges: those that stand only for numbers in it, those that may, and of these those inside it."""

    certain: Ranges
    possible: Ranges
    centred: Ranges

    @property
    def exact(self) -> bool:
        """Whether no end cuts a bin."""
        return all(np.array_equal(one, other) for one, other in zip(self.certain, self.possible, strict=True))


def spans_between(values: Domain, ends: Sequence[tuple[float | None, float | None]]) -> Spans:
    """Return the values of several ranges; see `between`. The values are rising."""
    low = np.array([-np.inf if first is None else first for first, _ in ends])
    high = np.array([np.inf if last is None else last for _, last in ends])
    scale = scale_of(values)
    centred = np.searchsorted(scale, low), np.searchsorted(scale, high, side="right")
    certain, possible = values.spans(low, high) if isinstance(values, Numbers) else (centred, centred)
    within_both = np.maximum(centred[0], possible[0]), np.minimum(centred[1], possible[1])
    return Spans(*(Ranges(first, np.maximum(first, end)) for first, end in (certain, possible, within_both)))


def within(scale: Floats, low: float | None, high: float | None) -> NDArray[np.bool_]:
    """Return which numbers lie from ``low`` to ``high``, both included; None means no bound."""
    return (scale >= (-np.inf if low is None else low)) & (scale <= (np.inf if high is None else high))


def check_ordered(source: Mechanism | ReportSource) -> None:
    """Refuse reports of values that have no order; see `check_line`."""
    of: Any = certify_values(source) if isinstance(source, Mechanism) else source
    check_line(of.values, getattr(of, "layout", ()))


def check_line(values: Domain, layout: tuple[int, ...]) -> None:
    """Refuse the cells of a grid, which are numbered but not ordered."""
    if len(layout) == 2 and min(layout) > 1:
        raise InvalidDomain(
            "the cells of a grid have no order", "this needs values on a line; for a rectangle pass grid := to ldp.range_share"
        )
    scale_of(values)


def bound_of(bound: pa.Scalar, values: Domain) -> float | None:
    """Return the end of a range on the scale of the values; None for NULL.

    Raises:
        WrongType: if it cannot be compared with them.

    """
    if not bound.is_valid:
        return None
    kind = values.values.type
    if pa.types.is_struct(bound.type):
        raise WrongType("points are the corners of a rectangle of a grid", "pass it: grid := ldp.grid(...)")
    try:
        if pa.types.is_string(bound.type) and family(kind) in ("date", "timestamp", "timestamp with time zone"):
            bound = bound.cast(kind)  # a literal
        if family(kind) == "date" and pa.types.is_timestamp(bound.type):
            return float(bound.cast(pa.timestamp("us"), safe=False).value / 1e6 / _DAY)
        if family(bound.type) == family(kind) and family(kind) is not None:
            position = float(positions_of(pa.repeat(bound, 1))[0])
            if not np.isnan(position):
                return position
    except (pa.ArrowException, ValueError, OverflowError):
        pass
    raise WrongType(f"the ends of the range must be like the values, of type {shown_type(kind)}", "cast them")


_EXAMPLE = "write {city: 'Lima'}, {city: ['Lima', 'Oslo']}, or {age: {low: 18, high: 65}} for a range"
_ONE = "write 'Lima', ['Lima', 'Oslo'], or {low: 18, high: 65} for a range"
_ENDS = {"low", "high"}


class _Part(NamedTuple):
    """The condition on one column: the domain, and how messages name it and write an example."""

    values: Domain
    name: str = "the condition"
    example: str = _ONE


@dataclass(frozen=True)
class TableCells:
    """The cells of a table in which each of some columns has one of its values; the values of one column are column 0.

    Args:
        sets: the positions of the values of each column that has a condition, by the place of the column.

    """

    sets: tuple[tuple[int, tuple[int, ...]], ...]

    @property
    def places(self) -> frozenset[int]:
        """The places of the columns that have a condition."""
        return frozenset(place for place, _ in self.sets)

    def among(self, places: Sequence[int]) -> TableCells:
        """Return the same cells of a table that has the columns at these places only."""
        return TableCells(tuple((places.index(place), positions) for place, positions in self.sets))

    def inside(self, values: Domain) -> Floats:
        """Return 1 for the cells in which all conditions hold and 0 for others, shape (cells,)."""
        table = np.ones(shape_of(values))
        for place, positions in self.sets:
            own = np.zeros(table.shape[place])
            own[list(positions)] = 1.0
            table *= own.reshape([-1 if axis == place else 1 for axis in range(table.ndim)])
        return np.asarray(table.ravel())


def values_of(source: Mechanism | ReportSource) -> Domain:
    """Return the cells of the table behind reports of several columns, or the values behind those of one column."""
    if isinstance(source, Mechanism):
        certified = certify(source)
        return certified.values if isinstance(certified, CertifiedRow) else certify_values(source).values
    if not isinstance(source.values, Domain):
        raise InvalidParameter("these are reports of sets or strings that are not listed", "ask about reports of values")
    return source.values


def shape_of(values: Domain) -> tuple[int, ...]:
    """Return the number of values of each column of a table, or of the one column."""
    return values.shape if isinstance(values, Product) else (len(values),)


def column_place(values: Domain, name: str) -> int:
    """Return the place of a column of a table; letters may be of either case."""
    table = _several(values)
    folded = [one.casefold() for one in table.names]
    if name.casefold() not in folded:
        alike = get_close_matches(name.casefold(), folded, n=1)
        meant = f"did you mean {table.names[folded.index(alike[0])]}? " if alike else ""
        raise InvalidParameter("the mechanism has no column of this name", f"{meant}its columns are {', '.join(table.names)}")
    return folded.index(name.casefold())


def _several(values: Domain) -> Product:
    """Return the values if they are the cells of a table, whose columns can be named."""
    if not isinstance(values, Product):
        raise InvalidParameter(
            "this mechanism has one column, which has no name",
            "leave the name out, such as ldp.mean(report, m); ldp.ibu(report, m) returns all shares",
        )
    return values


def named_place(values: Domain, name: object) -> int | None:
    """Return the place of a column of a table; None if none is named.

    Raises:
        InvalidParameter: if it is not the name of a column.

    """
    if isinstance(name, pa.Scalar):
        text = isinstance(name, pa.StringScalar | pa.LargeStringScalar | pa.DictionaryScalar)
        name = name.as_py() if text or not name.is_valid else name
    if name is not None and not isinstance(name, str):
        raise InvalidParameter("this needs the name of a column", "such as of := 'age'")
    return None if name is None else column_place(values, name)


def column_of_table(values: Domain, place: int | None) -> tuple[Domain, Floats]:
    """Return the domain of a column of a table, and for each cell its position on a line.

    Raises:
        InvalidParameter: if there are several columns and none is named.
        InvalidDomain: if the values have no order.

    """
    if not isinstance(values, Product):
        return values, scale_of(values)
    if place is None:
        raise InvalidParameter("this mechanism has several columns", f"name one of {', '.join(values.names)}: of := 'column'")
    scale = scale_of(values.parts[place])
    shape = [-1 if axis == place else 1 for axis in range(len(values.parts))]
    return values.parts[place], np.broadcast_to(scale.reshape(shape), values.shape).ravel()


def condition(values: Domain, given: pa.Scalar) -> TableCells | None:
    """Return what a condition says about the cells of a table, or about the values of one column; None for NULL.

    Args:
        values: the cells, or the values.
        given: for a table, a struct with a value, a list of values or a range {low, high} for some of the columns; for one
            column, a value, a list or a range. A bin belongs to a range if its centre does.

    Raises:
        InvalidParameter: if it is something else, is empty, or holds a value that the domain does not have.
        WrongType: if a value cannot be compared with those of the domain.

    """
    if not given.is_valid:
        return None
    if not isinstance(values, Product):
        return TableCells(((0, _positions(_Part(values), given)),))
    if not isinstance(given, pa.StructScalar) or not len(given.type.names):
        raise InvalidParameter("a condition on several columns must name the columns", _EXAMPLE)
    return TableCells(tuple(sorted(_of_column(values, name, given[name]) for name in given.type.names)))


def _of_column(values: Product, name: str, one: pa.Scalar) -> tuple[int, tuple[int, ...]]:
    """Return the place of a column of a table, and the positions of the values that a condition names."""
    place = column_place(values, name)
    return place, _positions(_Part(values.parts[place], f"the condition on {values.names[place]}", _EXAMPLE), one)


def python_scalar(given: Any) -> pa.Scalar:
    """Return a Python value, a list, a dictionary of these, or an Arrow scalar as an Arrow scalar."""
    if isinstance(given, pa.Scalar):
        return given
    with suppress(pa.ArrowException):  # it quotes the value
        return pa.scalar(_plainer(given))
    raise InvalidParameter("a condition holds values of different types, or no values", _EXAMPLE)


def _plainer(given: Any) -> Any:
    if isinstance(given, dict):
        return {name: _plainer(one) for name, one in given.items()}
    return list(given) if isinstance(given, tuple | range | set | frozenset) else given


def _positions(part: _Part, given: pa.Scalar) -> tuple[int, ...]:
    """Return the positions of a value, a list of values or a range."""
    if isinstance(given, pa.StructScalar) and given.is_valid:
        values = part.values
        if not set(given.type.names) <= _ENDS or not given.type.names:
            raise InvalidParameter(f"{part.name} is a struct, and a range has the fields low and high only", part.example)
        low, high = (bound_of(given[end], values) if end in given.type.names else None for end in ("low", "high"))
        _, possible = between(values, low, high)
        places = np.flatnonzero(possible & within(scale_of(values), low, high))
    else:
        places = np.unique(_located(part, items_of(given)))
    if not len(places):
        raise InvalidParameter(f"{part.name} must hold for at least one value of the domain", part.example)
    return tuple(places.tolist())


def items_of(given: pa.Scalar) -> pa.Array:
    """Return the items of a list, or one value as an array."""
    if isinstance(given, pa.ListScalar | pa.LargeListScalar) and given.is_valid:
        return given.values
    return pa.repeat(given, 1)


def _located(part: _Part, column: pa.Array) -> NDArray[np.int64]:
    kind = part.values.values.type
    if pa.types.is_string(column.type) and (pa.types.is_temporal(kind)):  # a literal
        column = _moments(part, column, kind)
    try:
        return np.asarray(part.values.codes(column), dtype=np.int64)
    except (MissingValue, OutsideDomain):
        error: Exception = InvalidParameter(f"{part.name} holds NULL or a value that the domain does not have", part.example)
    except WrongType:
        error = WrongType(
            f"{part.name} has values of type {shown_type(column.type)}, the domain has type {shown_type(kind)}",
            "write or cast them in the domain's type",
        )
    raise error


def _moments(part: _Part, column: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return column.cast(kind)
    except pa.ArrowException:
        pass
    raise InvalidParameter(f"{part.name} holds text that is not a date or time", "write DATE '2013-01-31'")


def table_of(values: Domain, places: Sequence[int]) -> Product:
    """Return the cells of a margin over some columns."""
    if not isinstance(values, Product) or not places or len(set(places)) < len(places):
        raise InvalidParameter("a margin needs different columns of a table", "columns := ['city', 'age']")
    return values.margin(places)


def groups_of(values: Domain, places: Sequence[int]) -> tuple[Product, NDArray[np.int64]]:
    """Return the cells of a margin over some columns, and for each cell of the table the one that it belongs to."""
    margin = table_of(values, places)
    at = np.unravel_index(np.arange(len(values)), shape_of(values))
    return margin, np.ravel_multi_index([at[place] for place in places], margin.shape)


def columns_named(values: Domain, names: object) -> tuple[int, ...]:
    """Return the places of columns from a list of their names, or from one name."""
    _several(values)
    listed = [names] if isinstance(names, str) else names
    if not isinstance(listed, Sequence) or not listed or not all(isinstance(name, str) for name in listed):
        raise InvalidParameter(
            "columns and given of a table take names of columns",
            "columns := ['city', 'age'], given := ['city']; ldp.share takes conditions, given := {city: 'Lima'}",
        )
    places = tuple(column_place(values, name) for name in listed)
    if len(set(places)) < len(places):
        raise InvalidParameter("a column is named twice", "name each column once")
    return places


def blocks(count: int, cells: int, most: int = 1 << 23) -> Iterator[slice]:
    """Yield slices of so many functionals that they fill ``most`` numbers together."""
    step = max(1, most // max(cells, 1))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))
