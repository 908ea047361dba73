"""Reports that are a key and a sign or a bin of its value."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Drawn, Floats
from ldpsql.domains.columns import plain, struct_parts
from ldpsql.domains.domain import Domain
from ldpsql.domains.sql_types import counted
from ldpsql.quoting import quoted
from ldpsql.reports.base import NumberedReports, impossible

_MOST = 1 << 22  # symbols; see ldpsql.mechanisms.families


@dataclass(frozen=True)
class PairReports(NumberedReports):
    """A key and a number that stands for a cell of it: STRUCT(key, ``field``) in SQL.

    Both are NULL in the report of a dummy; the ``dummies`` are indistinguishable.
    """

    keys: Domain
    dummies: int
    field: ClassVar[str]
    number_type: ClassVar[pa.DataType]

    @property
    @abstractmethod
    def cells(self) -> int:
        """Number of cells of a key."""

    @abstractmethod
    def numbers_of(self, cells: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the numbers that stand for cells."""

    @abstractmethod
    def cells_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the cells that numbers stand for, -1 for a number that stands for none."""

    def __len__(self) -> int:
        return (len(self.keys) + self.dummies) * self.cells

    @property
    def type(self) -> pa.DataType:
        return pa.struct([("key", self.keys.values.type), (self.field, self.number_type)])

    def told_apart(self, drawn: Drawn) -> Drawn:
        """Return draws of the channel as positions among the distinct reports; all dummies share the last one."""
        return np.minimum(drawn, np.int32(len(self.keys) * self.cells))

    @classmethod
    def _listed(cls, keys: str, numbers: str) -> str:
        """Return the SQL for the list of `distinct`, from the parameter of the keys and the list of all numbers of a key."""
        # Python refuses more. The keys are outside of the lambda, in which DuckDB would compute them for each key.
        some = f"CASE WHEN len({quoted(keys)}) * len({numbers}) > {_MOST} THEN [] ELSE {quoted(keys)} END"
        pairs = f"list_transform({numbers}, lambda c: {{'key': k, '{cls.field}': c}})"
        return f"list_concat(flatten(list_transform({some}, lambda k: {pairs})), [{{'key': NULL, '{cls.field}': NULL}}])"

    def distinct(self) -> pa.Array:
        """Return the distinct reports, in the order of those positions."""
        return self.to_arrow(np.arange(len(self.keys) * self.cells + 1, dtype=np.int32))

    def parts(self, drawn: Drawn) -> tuple[pa.Array, pa.Array]:
        """Return the positions of the keys, and the numbers; NULL for dummies."""
        key, cell = np.divmod(drawn.astype(np.int32), np.int32(self.cells))
        dummy = key >= len(self.keys)
        return pa.array(key, mask=dummy), pa.array(self.numbers_of(cell), mask=dummy).cast(self.number_type)

    def to_arrow(self, drawn: Drawn) -> pa.Array:
        key, number = self.parts(drawn)
        return pa.StructArray.from_arrays([self.keys.values.take(key), number], ["key", self.field])

    @property
    def differing(self) -> int:
        """Number of cells of all keys, and one for the dummies."""
        return len(self.keys) * self.cells + 1

    def positions(self, column: pa.Array) -> NDArray[np.int64]:
        symbol = self._symbols(column)
        if (symbol < 0).any():
            raise impossible()
        return symbol

    def spread(self, counts: Floats) -> Floats:
        """Return the counts of all reports: those of dummies, which are indistinguishable, are spread evenly."""
        spread = self.dummies * self.cells
        return np.concatenate([counts[..., :-1], np.repeat(counts[..., -1:] / spread, spread, axis=-1)], axis=-1)

    def possible(self, column: pa.Array) -> NDArray[np.bool_]:
        """Return which rows hold a declared key and the number of a cell, or the report of a dummy."""
        return self._symbols(column) >= 0

    def _symbols(self, column: pa.Array) -> NDArray[np.int64]:
        """Return the positions among the distinct reports, -1 for impossible reports."""
        if not pa.types.is_struct(column.type) or {part.name for part in column.type} != {"key", self.field}:
            raise impossible()
        fields = dict(zip([part.name for part in column.type], struct_parts(column), strict=True))
        key, number = plain(fields["key"]), fields[self.field]
        if pa.types.is_decimal(number.type) and number.type.scale == 0:  # HUGEINT: so DuckDB reads 1 and -1 from JSON
            number = _words(number)
        if not pa.types.is_integer(number.type) and not pa.types.is_null(number.type):
            raise impossible()
        at = _numbers(self.keys.locate(key))
        cell = self.cells_of(_numbers(number))
        no_key, no_number = _missing(key), _missing(number)
        real = len(self.keys) * self.cells
        symbol = np.where((at >= 0) & ~no_number & (cell >= 0), at * self.cells + cell, -1)
        return np.where(no_key & no_number & ~_missing(column), real, symbol)

    def text(self, report: int) -> str:
        """Return one report, given as a number, as SQL writes it."""
        key, number = (part[0].as_py() for part in self.parts(np.array([report])))
        pair = ["NULL", "NULL"] if key is None else [repr(self.keys.texts[key]), str(number)]
        return f"{{'key': {pair[0]}, '{self.field}': {pair[1]}}}"


@dataclass(frozen=True)
class SignReports(PairReports):
    """A key and a sign, 1 or -1: STRUCT(key, sign TINYINT) in SQL."""

    field = "sign"
    number_type = pa.int8()

    @classmethod
    def sql(cls, keys: str) -> str:
        """Return the list of `distinct` in SQL, in terms of the parameter that gives the keys."""
        return cls._listed(keys, "[1::TINYINT, -1::TINYINT]")

    @property
    def cells(self) -> int:
        """Two signs."""
        return 2

    def numbers_of(self, cells: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return 1 for the first cell, -1 for the second."""
        return 1 - 2 * cells

    def cells_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return 0 for 1, 1 for -1."""
        return np.where(np.isin(numbers, [-1, 1]), (1 - numbers) // 2, -1)


@dataclass(frozen=True)
class BinReports(PairReports):
    """A key and the number of a bin, counted from 0: STRUCT(key, bin SMALLINT) in SQL."""

    bins: int
    field = "bin"
    number_type = pa.int16()

    @classmethod
    def sql(cls, keys: str, bins: str) -> str:
        """Return the list of `distinct` in SQL, in terms of the parameters that give keys and bins."""
        return cls._listed(keys, f"try_cast({counted(quoted(bins), 1 << 12)} AS SMALLINT[])")

    @property
    def cells(self) -> int:
        return self.bins

    def numbers_of(self, cells: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the cells themselves."""
        return cells

    def cells_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of bins."""
        return np.where((numbers >= 0) & (numbers < self.bins), numbers, -1)


def _words(column: pa.Array) -> pa.Array:
    """Return whole numbers of 128 bits as numbers of 64 bits."""
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        raise impossible() from None


def _numbers(column: pa.Array) -> NDArray[np.int64]:
    """Return whole numbers, -1 for NULL."""
    return np.asarray(column.cast(pa.int64(), safe=False).fill_null(-1).to_numpy(zero_copy_only=False))


def _missing(column: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False))
