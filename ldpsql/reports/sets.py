"""Reports that are sets of values, in words of 64 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.channels import Drawn, Weights
from ldpsql.names import KEPT, OCTETS
from ldpsql.reports.base import WordReports, impossible, is_word, unsigned


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
        """Return one list of words per report."""
        ends = np.arange(0, drawn.size + 1, self.words, dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(ends), pa.array(drawn.ravel()))

    def read(self, column: pa.Array) -> Weights:
        """Return the words; bits beyond the last value must not be set."""
        if not self.possible(column).all():
            raise impossible()
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
        """Return the words as a list."""
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
