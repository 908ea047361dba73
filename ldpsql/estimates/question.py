"""What is asked about the values behind reports: one object that SQL, Python and commands share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
import pyarrow as pa

from ldpsql.domains.domain import Domain
from ldpsql.domains.product import Product
from ldpsql.errors import InternalError, InvalidParameter
from ldpsql.estimates.conditions import TableCells, condition, named_place, python_scalar, values_of
from ldpsql.estimates.measures import FIELDS, Functional
from ldpsql.estimates.scale import check_ordered
from ldpsql.inference.counting import ReportSource
from ldpsql.inference.mixed import Mixed
from ldpsql.inference.operators import Floats
from ldpsql.mechanisms.base import Mechanism

if TYPE_CHECKING:
    from ldpsql.estimates.estimate import Estimates

Argument: TypeAlias = pa.Scalar
Source: TypeAlias = Mechanism | ReportSource  # what drew reports
NULL: Argument = pa.scalar(None)
REQUIRED = MISSING  # the default of an argument that has none


def is_table(source: Source) -> bool:
    """Return whether the values behind reports are the cells of a table of several columns."""
    return isinstance(values_of(source), Product)


class Shown(Enum):
    """How SQL shows the estimate and the ends of its interval."""

    NUMBER = "as numbers"
    MEAN = "as numbers, or as times if the values are dates or times"
    VALUE = "as values: the numbers are positions in the domain"


@dataclass(frozen=True)
class Question(ABC):
    """A question about the values behind reports: a frozen dataclass whose fields are its arguments.

    Arguments come from SQL, from Python and from the command line, each as an Arrow scalar; those with a default are optional.
    The question then is an aggregate of SQL, ``estimate.ask("name", ...)`` in Python, and ``ldpsql ask --question name``.

    Attributes:
        name: the name of the question, that of the aggregate in SQL.
        summary: what it returns, in one sentence without a full stop.
        shown: how SQL shows the numbers.
        fields: the names of the numbers, attributes of what the functional measures.
        rows: whether the answer is a list, of several numbers.

    """

    name: ClassVar[str]
    summary: ClassVar[str]
    shown: ClassVar[Shown] = Shown.NUMBER
    fields: ClassVar[tuple[str, ...]] = FIELDS
    rows: ClassVar[bool] = False
    kind: ClassVar[str] = "question"

    @abstractmethod
    def about(self, values: Domain) -> Functional:
        """Return the number that is asked for.

        Args:
            values: the values behind the reports, or the cells of a table of several columns.

        Raises:
            InvalidParameter: if the arguments do not fit the values.

        """

    def unit(self, values: Domain) -> Domain:
        """Return the values whose unit the answer has."""
        return values

    def check(self, source: Source) -> None:  # noqa: B027  # most questions can be asked of all sources
        """Refuse reports of which this cannot be asked."""

    @classmethod
    def measured(cls, functional: Functional, estimates: Estimates) -> tuple[Floats, float]:
        """Return the numbers of every group, shape (groups, numbers, fields), and how far values reach beyond positions."""
        measure = functional.measure(estimates)
        fields = [np.asarray(getattr(measure, field, getattr(functional, field, None)), np.float64) for field in cls.fields]
        table = np.stack(np.broadcast_arrays(*fields), axis=-1)
        return (table if cls.rows else table[:, None]), measure.rounding

    @classmethod
    def parameters(cls) -> dict[str, object]:
        """Return the arguments by name, each with its default as a plain value, required ones first with `REQUIRED`."""
        own = {field.name: field.default for field in fields(cls)}
        plain = {name: default.as_py() if isinstance(default, pa.Scalar) else default for name, default in own.items()}
        return dict(sorted(plain.items(), key=lambda item: item[1] is not REQUIRED))

    @classmethod
    def asked(cls, **arguments: Any) -> Self:
        """Return the question with these arguments: Arrow scalars or plain values of Python."""
        given = {name: value if isinstance(value, pa.Scalar) else python_scalar(value) for name, value in arguments.items()}
        return cls(**given)


@dataclass(frozen=True, kw_only=True)
class QuestionOfColumn(Question):
    """A question about a column of ordered values, the only one or ``of``, of all or where the condition ``given`` holds."""

    of: Argument = NULL
    given: Argument = NULL

    def check(self, source: Source) -> None:
        """Refuse values without order, and positions if levels have different domains: they are positions in one of them."""
        if is_table(source):
            return
        check_ordered(source)
        apart = isinstance(source, Mixed) and any(level.values != source.values for level in source.each)
        if apart and self.shown is Shown.VALUE:
            raise InvalidParameter("the mechanisms of the levels have different domains", "quantiles need the same one")

    def unit(self, values: Domain) -> Domain:
        """Return the values of the column."""
        place = named_place(values, self.of)
        return values.parts[place] if isinstance(values, Product) and place is not None else values

    def where(self, values: Domain) -> tuple[int | None, TableCells | None]:
        """Return the place of the column, and the cells in which the condition holds; None if it holds in all."""
        cells = condition(values, self.given)
        return named_place(values, self.of), None if cells is None or np.all(cells.inside(values)) else cells


_QUESTIONS: list[Callable[[str], type[Question]]] = []


def found_by(function: Callable[[str], type[Question]]) -> None:
    """Set the function that finds a question by its name."""
    _QUESTIONS[:] = [function]


def question_named(name: str) -> type[Question]:
    """Return the question of this name.

    Raises:
        UnknownName: if no plugin offers it.

    """
    if not _QUESTIONS:
        raise InternalError("no registry of questions was loaded", "import ldpsql first")
    return _QUESTIONS[0](name)
