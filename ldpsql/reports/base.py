"""The base classes of forms of reports, as words or numbered, and the functions for reading them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Drawn, Floats, Weights
from ldpsql.errors import ImpossibleReport
from ldpsql.names import COUNTS


class FormedReports(ABC):
    """Reports in a form other than the values of a domain."""

    @abstractmethod
    def to_arrow(self, drawn: Drawn) -> pa.Array:
        """Return draws of the channel as a column."""

    @abstractmethod
    def possible(self, column: pa.Array) -> NDArray[np.bool_]:
        """Return which rows of a column have the form of a report.

        Raises:
            ImpossibleReport: if the column's type cannot hold reports.

        """

    @abstractmethod
    def text(self, report: int) -> str:
        """Return one report, given as a number, as text."""


class MarkedReports(FormedReports):
    """Reports that are too many for SQL to list: a mark identifies their form, and all columns of the form have one type.

    A form declares ``mark``, ``sql_type``, ``type`` and perhaps ``counted``; forms with the same mark share all of these. SQL
    derives the rest from them, see `ldpsql.engine.forms`.
    """

    mark: ClassVar[str]
    marker: ClassVar[str]  # the constructor's ``reports`` field in SQL: its type alone tells ``ldp.perturb`` what to return
    sql_type: ClassVar[str]
    type: ClassVar[pa.DataType]
    # The counts of a column ``report`` where ``keep`` is true, as aggregates take them: by default of equal reports, a MAP.
    counted: ClassVar[str] = f"{COUNTS}(report, keep := keep)"

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Derive the marker from the mark."""
        super().__init_subclass__(**arguments)
        if hasattr(cls, "mark"):
            cls.marker = f"{{'{cls.mark}': 1}}"


class WordReports(MarkedReports):
    """Reports made of unsigned 64-bit words."""

    def read(self, column: pa.Array) -> Weights:
        """Return the words of a column without NULLs, shape ``(rows, words)``.

        Raises:
            ImpossibleReport: if the column holds anything but such reports.

        """
        if not self.possible(column).all():
            raise impossible()
        return self.words_of(column)

    @abstractmethod
    def words_of(self, column: pa.Array) -> Weights:
        """Return the words of a column that has the type of such reports."""


class NumberedReports(FormedReports):
    """Reports that are few enough to be numbered, and are drawn as positions."""

    @property
    @abstractmethod
    def type(self) -> pa.DataType:
        """The type of a column of such reports."""

    @abstractmethod
    def __len__(self) -> int: ...

    def told_apart(self, drawn: Drawn) -> Drawn:
        """Return draws of the channel as positions among the distinct reports; by default all reports are distinct."""
        return drawn

    def distinct(self) -> pa.Array:
        """Return the distinct reports, in the order of those positions; SQL lists them unless they are marked."""
        return self.to_arrow(np.arange(len(self), dtype=np.int32))

    @property
    def differing(self) -> int:
        """Number of distinct reports."""
        return len(self)

    def positions(self, column: pa.Array) -> NDArray[np.int64]:  # noqa: ARG002  # forms whose reports have numbers read it
        """Return the positions of the reports of a column among the distinct reports.

        Raises:
            ImpossibleReport: if the column cannot hold such reports.

        """
        raise impossible()

    def spread(self, counts: Floats) -> Floats:
        """Return the counts of all reports from those of the distinct reports; the last axis changes."""
        return counts


def is_word(kind: pa.DataType) -> bool:
    """Return whether a type can hold words: whole numbers, or text as in JSON, whose readers round numbers above 2^53."""
    return (
        pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def unsigned(column: pa.Array) -> Weights:
    """Return a column of whole numbers, or of such numbers as text, as words; NULL is 0.

    Raises:
        ImpossibleReport: if they are not unsigned 64-bit whole numbers.

    """
    try:
        return column.cast(pa.uint64()).fill_null(0).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        raise impossible() from None


def impossible() -> ImpossibleReport:
    """Return the error for impossible reports; it shows no report, since reports may be raw values by mistake."""
    return ImpossibleReport(
        "some reports cannot occur under this mechanism",
        "check that these are its reports, and not another column or mechanism",
    )
