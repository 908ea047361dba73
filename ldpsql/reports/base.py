"""What every form of reports offers, words or numbered, and what reading them needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Drawn, Weights
from ldpsql.errors import ImpossibleReport
from ldpsql.names import COUNTS

Floats: TypeAlias = NDArray[np.float64]


class FormedReports(ABC):
    """Reports in another form than a list of values."""

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


class MarkedReports(FormedReports):
    """Reports that SQL does not list, as they are too many: it knows their form by a mark, and columns of them have one type.

    A form declares ``mark``, ``sql_type``, ``type`` and perhaps ``counted``; forms with one mark have the same of each. What
    SQL does with the reports follows from that, see `ldpsql.engine.forms`.
    """

    mark: ClassVar[str]
    marker: ClassVar[str]  # the constructor's ``reports`` field in SQL: its type alone tells ``ldp.perturb`` what to return
    sql_type: ClassVar[str]
    type: ClassVar[pa.DataType]
    # The counts of a column ``report`` where ``keep`` is true, as aggregates take them: here those of equal reports, a MAP.
    counted: ClassVar[str] = f"{COUNTS}(report, keep := keep)"

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Derive the marker from the mark."""
        super().__init_subclass__(**arguments)
        if hasattr(cls, "mark"):
            cls.marker = f"{{'{cls.mark}': 1}}"


class WordReports(MarkedReports):
    """Reports made of unsigned 64-bit words."""

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

    def told_apart(self, drawn: Drawn) -> Drawn:
        """Return draws of the channel as positions among the reports that differ: by default all do."""
        return drawn

    def distinct(self) -> pa.Array:
        """Return the reports that differ, in the order of those positions: SQL lists them unless they are marked."""
        return self.to_arrow(np.arange(len(self), dtype=np.int32))

    @property
    def differing(self) -> int:
        """How many reports differ."""
        return len(self)

    def positions(self, column: pa.Array) -> NDArray[np.int64]:  # noqa: ARG002  # forms whose reports have numbers read it
        """Return the positions of the reports of a column among those that differ.

        Raises:
            ImpossibleReport: if the column cannot hold such reports.

        """
        raise impossible()

    def spread(self, counts: Floats) -> Floats:
        """Return the counts of all reports from those of the reports that differ; the last axis changes."""
        return counts


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
