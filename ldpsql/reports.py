"""Reports that are too many to be listed: what they look like outside, and how they are read back.

Where the reports can be listed they are a `Domain`, and travel as positions in it. The others travel as rows of 64-bit words.
``marker`` is the constructor's ``reports`` field in SQL: its type alone tells ``ldp.perturb`` what to return.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
import pyarrow as pa

from ldpsql.channels import Drawn, Weights
from ldpsql.domain import Domain, plain
from ldpsql.errors import ImpossibleReport


class WordReports(ABC):
    """Reports made of unsigned 64-bit words; ``type`` is that of a column of them."""

    type: ClassVar[pa.DataType]

    @abstractmethod
    def to_arrow(self, drawn: Drawn) -> pa.Array:
        """Return draws of the channel as a column."""

    @abstractmethod
    def read(self, column: pa.Array) -> Weights:
        """Return the words of a column without NULLs, shape ``(rows, words)``.

        Raises:
            ImpossibleReport: where the column cannot hold such reports.

        """

    @abstractmethod
    def text(self, report: int) -> str:
        """Return one report, given as a number, as text."""


@dataclass(frozen=True)
class SetReports(WordReports):
    """Sets of values, one bit a value, as a list of words: UBIGINT[] in SQL."""

    size: int
    marker: ClassVar[str] = "{'words': 1}"
    type: ClassVar[pa.DataType] = pa.list_(pa.uint64())

    @property
    def words(self) -> int:
        """Number of words of a report."""
        return -(-self.size // 64)

    def to_arrow(self, drawn: Drawn) -> pa.Array:
        """Return a list of words a report."""
        ends = np.arange(0, drawn.size + 1, self.words, dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(ends), pa.array(drawn.ravel()))

    def read(self, column: pa.Array) -> Weights:
        """Return the words; bits beyond the last value must not be set."""
        lists = pa.types.is_list(column.type) or pa.types.is_large_list(column.type) or pa.types.is_fixed_size_list(column.type)
        if not lists or not pa.types.is_integer(column.type.value_type):
            raise impossible()
        flat = column.flatten()
        if column.null_count or flat.null_count or len(flat) != len(column) * self.words:
            raise impossible()
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        words = _unsigned(flat)
        rows = words.reshape(-1, self.words) if len(words) else np.empty((0, self.words), dtype=np.uint64)
        unused = np.uint64(0xFFFFFFFFFFFFFFFF) << np.uint64(self.size % 64) if self.size % 64 else np.uint64(0)
        if (lengths != self.words).any() or (rows[:, -1] & unused).any():
            raise impossible()
        return rows

    def text(self, report: int) -> str:
        """Return the words as a list."""
        return str([report >> 64 * i & (2**64 - 1) for i in range(self.words)])


@dataclass(frozen=True)
class HashReports(WordReports):
    """A seed and a symbol: STRUCT(seed UBIGINT, y UINTEGER) in SQL.

    With ``listed`` seeds there are only so many, and a report is the number seed * symbols + y.
    """

    symbols: int
    listed: int | None = None
    marker: ClassVar[str] = "{'hashed': 1}"
    type: ClassVar[pa.DataType] = pa.struct([("seed", pa.uint64()), ("y", pa.uint32())])

    def __len__(self) -> int:
        return (self.listed or 0) * self.symbols

    def to_arrow(self, drawn: Drawn) -> pa.Array:
        """Return seed and symbol of each report."""
        if self.listed is not None:
            drawn = np.stack(np.divmod(drawn, np.int32(self.symbols)), axis=1)
        seed, y = drawn[:, 0].astype(np.uint64), drawn[:, 1].astype(np.uint32)
        return pa.StructArray.from_arrays([pa.array(seed), pa.array(y)], ["seed", "y"])

    def read(self, column: pa.Array) -> Weights:
        """Return seed and symbol; both must be in range."""
        if not pa.types.is_struct(column.type) or {field.name for field in column.type} != {"seed", "y"}:
            raise impossible()
        parts = [column.field(name) for name in ("seed", "y")]
        if column.null_count or not all(pa.types.is_integer(part.type) and not part.null_count for part in parts):
            raise impossible()
        words = np.stack([_unsigned(part) for part in parts], axis=1)
        if (words[:, 1] >= self.symbols).any() or (self.listed is not None and (words[:, 0] >= self.listed).any()):
            raise impossible()
        return words

    def positions(self, column: pa.Array) -> np.ndarray:
        """Return the numbers of reports with listed seeds."""
        words = self.read(column).astype(np.int64)
        return words[:, 0] * self.symbols + words[:, 1]

    def text(self, report: int) -> str:
        """Return seed and symbol as SQL writes them."""
        seed, y = divmod(report, self.symbols)
        return f"{{'seed': {seed}, 'y': {y}}}"


Alphabet: TypeAlias = Domain | SetReports | HashReports


def type_of(alphabet: Alphabet) -> pa.DataType:
    """Return the type of a column of reports."""
    return alphabet.values.type if isinstance(alphabet, Domain) else alphabet.type


def distinct(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the first row of each distinct value of a column without NULLs, and for each row the number of its value.

    Lists and structs of whole numbers are compared word by word; Arrow itself cannot.
    """
    column = plain(column)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()  # a dictionary may hold values that no row has
    if pa.types.is_struct(column.type):
        keys = np.stack([_unsigned(part) for part in column.flatten()], axis=1)
    elif pa.types.is_list(column.type):
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        if len(set(lengths.tolist())) > 1:
            raise impossible()
        keys = _unsigned(column.flatten()).reshape(len(column), -1)
    else:
        coded = column.dictionary_encode()
        number = coded.indices.to_numpy(zero_copy_only=False)
        first = np.empty(len(coded.dictionary), dtype=np.int64)
        first[number[::-1]] = np.arange(len(number))[::-1]
        return first, number
    rows = np.ascontiguousarray(keys).view(np.dtype((np.void, keys.dtype.itemsize * keys.shape[1]))).ravel()
    _, first, number = np.unique(rows, return_index=True, return_inverse=True)
    return first, number.ravel()


def _unsigned(column: pa.Array) -> Weights:
    try:
        return column.cast(pa.uint64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        raise impossible() from None


def impossible() -> ImpossibleReport:
    """Return the refusal of reports; it names none, for they may be raw values."""
    return ImpossibleReport(
        "some reports cannot occur under this mechanism",
        "check that these are its reports, and not another column or mechanism",
    )
