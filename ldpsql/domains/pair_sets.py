"""Columns of sets of key-value pairs: lists of (key, value), and maps."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Sets
from ldpsql.domains.columns import plain, struct_parts
from ldpsql.domains.domain import Domain
from ldpsql.domains.ranges import doubles
from ldpsql.domains.sql_types import shown_type
from ldpsql.errors import DuplicateKey, InvalidParameter, MissingValue, OutsideDomain, WrongType
from ldpsql.errors.boundary import withheld

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
