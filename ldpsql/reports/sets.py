"""Reports that are sets of values, in words of 64 bits: bits, numbers, or a seed and a hash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.channels import Drawn, Weights
from ldpsql.names import KEPT, OCTETS
from ldpsql.reports.base import MarkedReports, NumberedReports, WordReports, impossible, is_word, unsigned


@dataclass(frozen=True)
class SetReports(WordReports):
    """Sets of values, one bit per value, as a list of words: UBIGINT[] in SQL."""

    size: int
    mark = "words"
    sql_type = "UBIGINT[]"
    counted = f"histogram({OCTETS}(report)) FILTER (WHERE {KEPT}(keep))"
    type: ClassVar[pa.DataType] = pa.list_(pa.uint64())

    @property
    def words(self) -> int:
        """Number of words of a report."""
        return -(-self.size // 64)

    def to_arrow(self, drawn: Drawn) -> pa.Array:
        ends = np.arange(0, drawn.size + 1, self.words, dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(ends), pa.array(drawn.ravel()))

    def words_of(self, column: pa.Array) -> Weights:
        return unsigned(column.flatten()).reshape(-1, self.words)

    def possible(self, column: pa.Array) -> NDArray[np.bool_]:
        """Return which lists have the right length and no bit set beyond the last value."""
        lists = pa.types.is_list(column.type) or pa.types.is_large_list(column.type) or pa.types.is_fixed_size_list(column.type)
        if not lists or not is_word(column.type.value_type):
            raise impossible()
        fits = pc.equal(column.value_lengths(), self.words).fill_null(False).to_numpy(zero_copy_only=False).copy()
        flat = (column if fits.all() else column.filter(pa.array(fits))).flatten()
        whole = np.ones(int(fits.sum()), dtype=np.bool_)
        if flat.null_count:
            whole = flat.is_valid().to_numpy(zero_copy_only=False).reshape(-1, self.words).all(axis=1)
        last = unsigned(flat).reshape(-1, self.words)[:, -1]
        unused = np.uint64(0xFFFFFFFFFFFFFFFF) << np.uint64(self.size % 64) if self.size % 64 else np.uint64(0)
        fits[fits] = whole & ((last & unused) == 0)
        return fits

    def text(self, report: int) -> str:
        return str([report >> 64 * i & (2**64 - 1) for i in range(self.words)])


def octets(column: pa.Array) -> pa.Array:
    """Return lists of unsigned words as bytes in the same order; no bytes for a list with NULL, which is not a report."""
    lists = pa.concat_arrays([column]) if column.offset else column
    sizes, words = np.diff(lists.offsets.to_numpy()), lists.values
    if words.null_count:
        missing = np.concatenate([[0], np.cumsum(words.is_null().to_numpy(zero_copy_only=False))])
        whole = np.diff(missing[lists.offsets.to_numpy()]) == 0
        words, sizes = words.filter(pa.array(np.repeat(whole, sizes))), np.where(whole, sizes, 0)
        ends = np.concatenate([[0], np.cumsum(sizes)])
    else:
        ends = lists.offsets.to_numpy()
    bits = pa.py_buffer(unsigned(words).astype(">u8"))
    return pa.Array.from_buffers(pa.binary(), len(lists), [lists.buffers()[0], pa.py_buffer((ends * 8).astype(np.int32)), bits])


def of_octets(column: pa.Array) -> pa.Array:
    """Return what `octets` made of lists of words as such lists again.

    Raises:
        ImpossibleReport: if these are not bytes of words.

    """
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset :][: len(column) + 1]
    if (ends % 8).any():
        raise impossible()
    words = np.frombuffer(data or b"", ">u8", int(ends[-1]) // 8).astype(np.uint64)
    return pa.ListArray.from_arrays(pa.array(ends // np.int32(8)), pa.array(words))


# Reports that are numbers, in the form of sets.


@dataclass(frozen=True)
class SymbolReports(MarkedReports, NumberedReports):
    """Reports as numbers, each in a list of one word: for a mechanism that may report words or symbols, UBIGINT[] in SQL."""

    symbols: int
    mark = SetReports.mark
    sql_type = SetReports.sql_type
    counted = SetReports.counted
    type: ClassVar[pa.DataType] = SetReports.type

    def __len__(self) -> int:
        return self.symbols

    def to_arrow(self, drawn: Drawn) -> pa.Array:
        """Return draws of the channel as a column."""
        return pa.ListArray.from_arrays(pa.array(np.arange(len(drawn) + 1, dtype=np.int32)), pa.array(drawn.astype(np.uint64)))

    def positions(self, column: pa.Array) -> NDArray[np.int64]:
        if not self.possible(column).all():
            raise impossible()
        return SetReports(64).read(column)[:, 0].astype(np.int64)

    def possible(self, column: pa.Array) -> NDArray[np.bool_]:
        """Return which rows hold the number of a symbol."""
        fits = SetReports(64).possible(column)
        fits[fits] = SetReports(64).read(column.filter(pa.array(fits)))[:, 0] < np.uint64(self.symbols)
        return fits

    def text(self, report: int) -> str:
        return f"[{report}]"


# Reports that are a seed and a hash.


@dataclass(frozen=True)
class HashReports(WordReports):
    """A seed of 64 bits and one of ``symbols`` symbols: STRUCT(seed UBIGINT, y UINTEGER) in SQL."""

    symbols: int
    mark = "hashed"
    sql_type = "STRUCT(seed UBIGINT, y UINTEGER)"
    type: ClassVar[pa.DataType] = pa.struct([("seed", pa.uint64()), ("y", pa.uint32())])

    def to_arrow(self, drawn: Drawn) -> pa.Array:
        seed, y = drawn[:, 0].astype(np.uint64), drawn[:, 1].astype(np.uint32)
        return pa.StructArray.from_arrays([pa.array(seed), pa.array(y)], ["seed", "y"])

    def possible(self, column: pa.Array) -> NDArray[np.bool_]:
        """Return which symbols are in range."""
        if not pa.types.is_struct(column.type) or {field.name for field in column.type} != {"seed", "y"}:
            raise impossible()
        if not all(is_word(column.field(name).type) for name in ("seed", "y")):
            raise impossible()
        valid = [part.is_valid().to_numpy(zero_copy_only=False) for part in (column, column.field("seed"), column.field("y"))]
        fits: NDArray[np.bool_] = np.logical_and.reduce([*valid, self.words_of(column)[:, 1] < np.uint64(self.symbols)])
        return fits

    def words_of(self, column: pa.Array) -> Weights:
        """Return seeds and symbols."""
        return np.stack([unsigned(column.field(name)) for name in ("seed", "y")], axis=1)

    def text(self, report: int) -> str:
        """Return the report seed * symbols + y as SQL writes it."""
        seed, y = divmod(report, self.symbols)
        return f"{{'seed': {seed}, 'y': {y}}}"


@dataclass(frozen=True)
class ListedHashReports(MarkedReports, NumberedReports):
    """One of ``seeds`` seeds, counted from 0, and a symbol: in the form of `HashReports`, numbered seed * symbols + y."""

    symbols: int
    seeds: int
    mark = HashReports.mark
    sql_type = HashReports.sql_type
    type: ClassVar[pa.DataType] = HashReports.type

    def __len__(self) -> int:
        return self.seeds * self.symbols

    @property
    def _form(self) -> HashReports:
        return HashReports(self.symbols)

    def to_arrow(self, drawn: Drawn) -> pa.Array:
        return self._form.to_arrow(np.stack(np.divmod(drawn, np.int32(self.symbols)), axis=1))

    def positions(self, column: pa.Array) -> NDArray[np.int64]:
        words = self._form.read(column)
        if (words[:, 0] >= np.uint64(self.seeds)).any():
            raise impossible()
        seeds, symbols = words.astype(np.int64).T
        return seeds * self.symbols + symbols

    def possible(self, column: pa.Array) -> NDArray[np.bool_]:
        """Return which rows have seed and symbol in range."""
        fits = self._form.possible(column)
        fits[fits] = self._form.read(column.filter(pa.array(fits)))[:, 0] < np.uint64(self.seeds)
        return fits

    def text(self, report: int) -> str:
        return self._form.text(report)
