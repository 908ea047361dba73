"""What every form of reports offers, words or numbered, and what reading them needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Drawn, Weights
from ldpsql.errors import ImpossibleReport

Floats: TypeAlias = NDArray[np.float64]


class FormedReports(ABC):
    """Reports in another form than a list of values.

    ``counted`` says in SQL how aggregates count a column ``report`` of them, of the type ``sql_type``, where ``keep`` is true:
    by default equal reports are counted together, in a MAP.
    """

    sql_type: ClassVar[str | None] = None
    counted: ClassVar[str] = "ldp.counts(report, keep := keep)"

    @abstractmethod
    def to_arrow(self, drawn: Drawn) -> pa.Array:
        """Return draws of the channel as a column."""

    @abstractmethod
    def possible(self, column: pa.Array) -> NDArray[np.bool_]:
        """Tell which rows of a column have the form of a report.

        Raises:
            ImpossibleReport: where the column's type cannot hold reports.

        """

    @abstractmethod
    def text(self, report: int) -> str:
        """Return one report, given as a number, as text."""


class WordReports(FormedReports):
    """Reports made of unsigned 64-bit words; ``type`` is that of a column of them."""

    type: ClassVar[pa.DataType]

    @abstractmethod
    def read(self, column: pa.Array) -> Weights:
        """Return the words of a column without NULLs, shape ``(rows, words)``.

        Raises:
            ImpossibleReport: where the column cannot hold such reports.

        """


class NumberedReports(FormedReports):
    """Reports that are few enough to be numbered: they are drawn as positions."""

    @property
    @abstractmethod
    def type(self) -> pa.DataType:
        """The type of a column of such reports."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def counts(self, column: pa.Array, numbers: Floats, group: NDArray[np.int64], groups: int) -> Floats:
        """Count the reports of each group, shape (groups, reports): each row of the column ``numbers`` times.

        Raises:
            ImpossibleReport: where the column cannot hold such reports.

        """


def counted(cells: NDArray[np.int64], numbers: Floats, groups: int, outputs: int) -> Floats:
    """Return the sums of the numbers of equal cells, shape (groups, outputs)."""
    counted: Floats = np.bincount(cells, weights=numbers, minlength=groups * outputs).astype(np.float64)
    return counted.reshape(groups, outputs)


def unsigned(column: pa.Array) -> Weights:
    """Return whole numbers as words.

    Raises:
        ImpossibleReport: where they are none.

    """
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
