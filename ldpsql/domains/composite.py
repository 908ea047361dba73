"""Domains whose values have parts: rows that take one value from each of several domains, and sets of key-value pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from math import prod
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BeforeValidator, PlainSerializer

from ldpsql.channels import Codes, Sets
from ldpsql.domains.columns import plain, struct_parts
from ldpsql.domains.domain import MOST_LISTED, Domain
from ldpsql.domains.sql_types import shown_type
from ldpsql.domains.unlisted import doubles
from ldpsql.errors import DuplicateKey, InvalidParameter, MissingValue, OutsideDomain, WrongType
from ldpsql.errors.boundary import withheld

_MOST = 1 << 62
_REPLACE = "declare the value, or replace it before: a whole row is perturbed here, and rules for values need ldp.row"


class Product(Domain):
    """The cells of a table: all rows of one value of each column, in the order of the columns, the last one fastest.

    >>> table = Product(("city", "adult"), (Domain.of(["Lima", "Oslo"]), Domain.of([False, True])))
    >>> table.codes(pa.array([{"city": "Oslo", "adult": False}])).tolist(), table.texts[2]
    ([2], "{'city': 'Oslo', 'adult': 'false'}")
    """

    def __init__(self, names: tuple[str, ...], parts: tuple[Domain, ...]) -> None:
        self.names, self.parts, self.rounding = names, parts, 0.0

    @property
    def cells(self) -> int:
        """Number of rows, however many they are."""
        return prod(map(len, self.parts))

    def __len__(self) -> int:
        return min(self.cells, _MOST)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Product) and self.names == other.names and self.parts == other.parts

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.names, self.parts))

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values of each column."""
        return tuple(map(len, self.parts))

    @property
    def type(self) -> pa.DataType:
        return pa.struct([(name, part.values.type) for name, part in zip(self.names, self.parts, strict=True)])

    def _check_listed(self) -> None:
        if self.cells > MOST_LISTED:
            raise InvalidParameter(
                f"a table of {self.cells:,} cells is too large: at most {MOST_LISTED:,}",
                "estimate fewer columns together: name them in a row mechanism of their own",
            )

    @cached_property
    def _places(self) -> tuple[np.ndarray, ...]:
        """The position of the value of each column in every row."""
        self._check_listed()
        return self.places(np.arange(len(self)))

    def places(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the position of the value of each column in some rows, given by their numbers."""
        return np.unravel_index(rows, self.shape)

    @cached_property
    def values(self) -> pa.Array:  # listed when they are first needed
        """All rows, as structs."""
        self._check_listed()
        return self.taken(pa.array(np.arange(len(self))))

    def taken(self, positions: pa.Array) -> pa.Array:
        at = self.places(np.asarray(positions))
        columns = [part.values.take(pa.array(own)) for part, own in zip(self.parts, at, strict=True)]
        return pa.StructArray.from_arrays(columns, list(self.names))

    @cached_property
    def written(self) -> pa.Array:
        """All rows as SQL writes structs, with every value as text."""
        columns = [
            pc.binary_join_element_wise(pa.scalar(f"{_quoted(name)}: "), _escaped(part.written), "").take(pa.array(at))
            for name, part, at in zip(self.names, self.parts, self._places, strict=True)
        ]
        inside = pc.binary_join_element_wise(*columns, ", ")
        return pc.binary_join_element_wise(pa.scalar("{"), inside, pa.scalar("}"), "")

    @cached_property
    def digits(self) -> str:
        """The fingerprint of the table: a digest of the names and the domains of its columns."""
        digest = blake2b(digest_size=16)
        for name, part in zip(self.names, self.parts, strict=True):
            digest.update(f"{len(name)} {name} {part.digits}".encode())
        return digest.hexdigest()

    def to_json(self) -> dict[str, Any]:
        return {name: part.to_json() for name, part in zip(self.names, self.parts, strict=True)}

    @property
    def rising(self) -> bool:
        """Rows have no order."""
        return False

    def margin(self, places: Sequence[int]) -> Product:
        """Return the table of some of the columns, given by their places."""
        return Product(tuple(self.names[place] for place in places), tuple(self.parts[place] for place in places))

    def fields(self, column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
        """Return the column of each name in a column of structs.

        Raises:
            WrongType: if it does not hold structs with exactly these names.

        """
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if pa.types.is_null(whole.type):
            return [pa.nulls(len(whole), part.values.type) for part in self.parts]
        names = [field.name.casefold() for field in whole.type] if pa.types.is_struct(whole.type) else []
        if sorted(names) != sorted(name.casefold() for name in self.names):
            raise WrongType(
                f"the column has type {shown_type(whole.type)}, and the mechanism perturbs structs of {', '.join(self.names)}",
                "write {" + ", ".join(f"{name}: {name}" for name in self.names) + "}",
            )
        parts = dict(zip(names, struct_parts(whole), strict=True))
        return [parts[name.casefold()] for name in self.names]

    def locate(self, column: pa.Array | pa.ChunkedArray) -> pa.Array:
        self._check_listed()
        at = [part.locate(field) for part, field in zip(self.parts, self.fields(column), strict=True)]
        valid = np.logical_and.reduce([one.is_valid().to_numpy(zero_copy_only=False) for one in at])
        places = [one.fill_null(0).to_numpy(zero_copy_only=False) for one in at]
        return pa.array(np.ravel_multi_index(places, self.shape).astype(np.int32), mask=~valid)

    @withheld
    def codes(
        self,
        column: pa.Array | pa.ChunkedArray,
        *,
        null_code: int | None = None,  # noqa: ARG002  # rules belong to columns
        outside_code: int | None = None,  # noqa: ARG002
    ) -> Codes:
        """Return the position of every row; an error names the column."""
        at = []
        for name, part, child in zip(self.names, self.parts, self.fields(column), strict=True):
            try:
                at.append(part.codes(child))
            except (MissingValue, OutsideDomain) as error:
                raise type(error)(error.message, _REPLACE).of_column(name) from None
        return np.ravel_multi_index(at, self.shape).astype(np.int32)


def of_columns(columns: object) -> Product:
    """Return the table of domains by the names of their columns.

    Raises:
        InvalidParameter: if it is not a mapping, there are fewer than two columns, two names differ only in case, or the table
            has too many cells.
        InvalidDomain: if a column has no domain.

    """
    if isinstance(columns, Product):
        return columns
    if not isinstance(columns, Mapping):
        raise InvalidParameter(
            "the columns must be lists of values by the names of the columns", "write {city: ['a', 'b'], ...}"
        )
    names = tuple(columns)
    check_names(names)
    product = Product(names, tuple(Domain.of(part) for part in columns.values()))
    product._check_listed()  # positions must fit into 32 bits
    return product


def check_names(names: tuple[str, ...]) -> None:
    """Check the names of the columns of a row."""
    if len(names) < 2 or not all(type(name) is str and name for name in names):
        raise InvalidParameter("a row needs at least two columns, each with a name", "write {city: ..., age: ...}")
    if len({name.casefold() for name in names}) < len(names):
        raise InvalidParameter(
            "two columns of a row have names that differ only in case", "SQL ignores case: rename one of them"
        )


ProductField = Annotated[Product, BeforeValidator(of_columns), PlainSerializer(Product.to_json)]


def _quoted(name: str) -> str:
    return str(_escaped(pa.array([name]))[0])


def _escaped(texts: pa.Array) -> pa.Array:
    """Return texts in quotation marks, as DuckDB reads them inside a struct in text."""
    doubled = pc.replace_substring(texts, pattern="\\", replacement="\\\\")
    marked = pc.replace_substring(doubled, pattern="'", replacement="\\'")
    return pc.binary_join_element_wise(pa.scalar("'"), marked, pa.scalar("'"), "")


_SHOWN = 3  # pairs of a set in a text
_EXAMPLE = "[{'key': 'book', 'value': 4}], or MAP {'book': 4}"


@dataclass(frozen=True)
class PairSets:
    """Sets of pairs of a declared key and a number from ``low`` to ``high``; equal if keys and range are.

    With ``clip``, numbers beyond the range count as the nearer end. With ``drop_missing``, a NULL set counts as an empty set
    and pairs with a NULL are left out. With ``drop_unknown``, pairs with any other key are left out. Otherwise these values
    are refused.

    Raises:
        InvalidParameter: unless low < high.

    """

    keys: Domain
    low: float
    high: float
    clip: bool = field(default=False, compare=False)
    drop_missing: bool = field(default=False, compare=False)
    drop_unknown: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if not (self.low < self.high and np.isfinite(self.high - self.low)):
            raise InvalidParameter("the range of the values must go from low to a larger high")

    @property
    def listed(self) -> Domain:
        """The keys: sets cannot be listed, but their keys can."""
        return self.keys

    def text(self, held: Sets) -> str:
        """Return a set as SQL writes a map; of a large set only the first pairs."""
        values = self.low + (self.high - self.low) * held.places
        pairs = [f"{self.keys.texts[key]!r}: {value:.6g}" for key, value in zip(held.keys[:_SHOWN], values, strict=False)]
        more = [f"... {len(held.keys)} pairs"] if len(held.keys) > _SHOWN else []
        return f"MAP {{{', '.join(pairs + more)}}}"

    @withheld
    def sets(self, column: pa.Array | pa.ChunkedArray) -> Sets:
        """Return the sets: the positions of their keys, and where in the range their values lie.

        Raises:
            WrongType: if the column holds neither lists of (key, value) nor maps.
            MissingValue, OutsideDomain, DuplicateKey: if a set breaks a rule.

        """
        ends, row, keys, values = self._flat(plain(column))
        at, numbers = self.keys.locate(keys), doubles(plain(values))
        missing = (keys.is_null().to_numpy(zero_copy_only=False)) | (values.is_null().to_numpy(zero_copy_only=False))
        unknown = at.is_null().to_numpy(zero_copy_only=False) & ~missing
        if missing.any() and not self.drop_missing:
            raise MissingValue("a key or a value in a set is NULL", "nulls := 'drop' in the mechanism leaves such pairs out")
        if unknown.any() and not self.drop_unknown:
            raise OutsideDomain(
                "a key to be perturbed is not among the declared keys",
                "add it, or outside := 'drop' in the mechanism leaves it out",
            )
        kept = ~(missing | unknown)
        if not kept.all():
            row, numbers = row[kept], numbers[kept]
            ends = np.searchsorted(row, np.arange(len(ends)))
        codes = at.drop_null().to_numpy(zero_copy_only=False) if kept.all() else at.filter(pa.array(kept)).to_numpy()
        cells = row * len(self.keys) + codes  # a value that is twice in a set would be drawn twice as often, and leak more
        if (np.diff(cells) <= 0).any():
            cells.sort()
            if (np.diff(cells) == 0).any():
                raise DuplicateKey(
                    "a set holds a key twice",
                    "aggregate first: one value for each key, such as max_by or avg GROUP BY user, key",
                )
        return Sets(ends, codes, self._places(numbers))

    def _flat(self, column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64], pa.Array, pa.Array]:
        """Return where the sets end, and for each pair the number of its set, its key and its value."""
        if pa.types.is_null(column.type):
            column = pa.nulls(len(column), pa.map_(self.keys.values.type, pa.float64()))
        if not (pa.types.is_map(column.type) or pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
            raise WrongType(f"the column has type {shown_type(column.type)}, the mechanism perturbs sets of pairs", _EXAMPLE)
        if column.null_count and not self.drop_missing:
            raise MissingValue(
                "a NULL was to be perturbed instead of a set", "nulls := 'drop' in the mechanism makes it an empty set"
            )
        pairs, sizes = _pairs(column)
        if pa.types.is_null(pairs.type) and not len(pairs):  # the literal []
            pairs = pa.array([], pa.struct([("key", self.keys.values.type), ("value", pa.float64())]))
        if not pa.types.is_struct(pairs.type) or {field.name for field in pairs.type} != {"key", "value"}:
            raise WrongType("the members of a set must be structs of a key and a value", _EXAMPLE)
        fields = [field.name for field in pairs.type]
        parts = struct_parts(pairs)
        ends = np.concatenate([[0], np.cumsum(sizes)])
        row = np.repeat(np.arange(len(sizes)), sizes)
        return ends, row, parts[fields.index("key")], parts[fields.index("value")]

    def _places(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.clip:
            numbers = np.clip(numbers, self.low, self.high)
        if not ((numbers >= self.low) & (numbers <= self.high)).all():
            raise OutsideDomain(
                "a value in a set is outside the declared range", "widen low and high of the mechanism, or give it clip := true"
            )
        return np.minimum((numbers - self.low) / (self.high - self.low), 1.0)


def _pairs(column: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the members of all sets as structs, and the sizes of the sets; a NULL set is empty."""
    starts = column.offsets.to_numpy()
    sizes = np.diff(starts).astype(np.int64)
    if pa.types.is_map(column.type):
        column_keys, items = column.keys, column.items  # of the whole array, even if the column is a slice of it
        members = pa.StructArray.from_arrays([column_keys, items], ["key", "value"])
    else:
        members = column.values
    if column.null_count:  # a NULL may hide members
        hidden = column.is_null().to_numpy(zero_copy_only=False)
        visible = np.repeat(~hidden, sizes)
        members = members.slice(int(starts[0]), int(starts[-1] - starts[0])).filter(pa.array(visible))
        return members, np.where(hidden, 0, sizes)
    return members.slice(int(starts[0]), int(starts[-1] - starts[0])), sizes
