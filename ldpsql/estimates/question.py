"""What is asked about the values behind reports: one object that SQL, Python and commands share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from enum import Enum
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
import pyarrow as pa

from ldpsql.domains.columns import finite_or_null, struct_parts
from ldpsql.domains.composite import Product
from ldpsql.domains.domain import Domain
from ldpsql.errors import InternalError, InvalidParameter
from ldpsql.estimates.conditions import TableCells, check_ordered, condition, named_place, python_scalar, scale_of, values_of
from ldpsql.estimates.estimate import Answer, Estimates, estimated, estimator_of_shares
from ldpsql.estimates.functionals import FIELDS, Measure, TableFunctional
from ldpsql.estimates.tables import Difference, difference
from ldpsql.estimators.base import Estimator
from ldpsql.inference.counting import ReportSource, SomeColumns
from ldpsql.inference.mixed import Mixed
from ldpsql.inference.operators import Ints
from ldpsql.mechanisms.base import CertifiedMechanism, Mechanism

Argument: TypeAlias = pa.Scalar
Source: TypeAlias = Mechanism | ReportSource  # what drew reports
NULL: Argument = pa.NULL
REQUIRED = MISSING  # the default of an argument that has none


def is_table(source: Source) -> bool:
    """Return whether the values behind reports are the cells of a table of several columns."""
    return isinstance(values_of(source), Product)


class Kind(Enum):
    """What a field of an answer is, with its type in SQL."""

    NUMBER = "DOUBLE"
    WHOLE = "BIGINT"
    TEXT = "VARCHAR"
    FLAG = "BOOLEAN"
    VALUE = "value"  # a position in the values; SQL shows the value itself
    MEAN = "mean"  # a number on the scale of the values; SQL shows a time if these are dates or times


Fields: TypeAlias = Mapping[str, "Kind | Fields"]  # fields within a field are those of a list of structs
NUMBERS: Fields = dict.fromkeys(FIELDS, Kind.NUMBER)
TESTED: Fields = {**NUMBERS, "p_value": Kind.NUMBER}
RANGE = ("estimate", "low", "high")


class Lines(NamedTuple):
    """The answers for some groups, one after the other: each field as a column of all of their lines.

    Args:
        sizes: how many lines each group has, shape (groups,).
        columns: numbers, of which NaN and infinity stand for unknown ones, or Arrow columns.
        reach: how far the ends of an interval reach beyond the values at their positions.

    """

    sizes: Ints
    columns: Mapping[str, np.ndarray | pa.Array]
    reach: float = 0.0

    @classmethod
    def of_numbers(cls, columns: Mapping[str, Any], reach: float = 0.0) -> Lines:
        """Return the lines of columns that are broadcast to a shape: (groups, lines), or (groups,) for one line each."""
        arrays = np.broadcast_arrays(*map(np.asarray, columns.values()))
        groups = arrays[0].shape[0]
        sizes = np.full(groups, arrays[0].size // groups if groups else 0)
        return cls(sizes, dict(zip(columns, (array.ravel() for array in arrays), strict=True)), reach)

    @classmethod
    def of_records(cls, fields: Fields, groups: Sequence[Sequence[Mapping[str, Any]]]) -> Lines:
        """Return the lines of groups that are written out, each line with its fields by name."""
        flat = [line for group in groups for line in group]
        columns = {name: pa.array([line[name] for line in flat], arrow_type(kind)) for name, kind in fields.items()}
        return cls(np.array([len(group) for group in groups], dtype=np.int64), columns)


_ARROW = {Kind.NUMBER: pa.float64(), Kind.WHOLE: pa.int64(), Kind.TEXT: pa.string(), Kind.FLAG: pa.bool_()}


def arrow_type(kind: Kind | Fields) -> pa.DataType:
    """Return the Arrow type of a field; that of values is text."""
    if isinstance(kind, Kind):
        return _ARROW.get(kind, pa.string())
    return pa.list_(pa.struct([(name, arrow_type(own)) for name, own in kind.items()]))


_OF_TYPES = {
    "int": Kind.WHOLE,
    "int | None": Kind.WHOLE,
    "float": Kind.NUMBER,
    "float | None": Kind.NUMBER,
    "str": Kind.TEXT,
    "bool": Kind.FLAG,
}


def fields_of(record: type) -> Fields:
    """Return the fields of a dataclass of plain values."""
    return {field.name: _OF_TYPES[str(field.type)] for field in fields(record)}


@dataclass(frozen=True)
class Question(ABC):
    """A question about the values behind reports: a frozen dataclass whose fields are its arguments.

    Arguments come from SQL, from Python and from the command line, each as an Arrow scalar; those with a default are optional.
    The question then is an aggregate and a table function of SQL, ``estimate.ask("name", ...)`` in Python, and
    ``ldpsql ask name``.

    Attributes:
        name: the name of the question, that of the aggregate in SQL.
        summary: what it returns, in one sentence without a full stop.
        fields: the fields of an answer, and what each is.
        rows: whether the answer is a list, of several lines; or the argument that makes it one by being a list.
        options: the options of the estimator that SQL takes, each with its default as SQL.
        typed_by: the argument on which the type of values depends: the name of a column, or a list of names.
        two_groups: whether two groups of people are compared, each by the counts of its reports.
        lists: whether nearly all reports differ, so that lists of them are read faster than counts.
        raw: the raw columns next to the report that it takes, the outcome first, each with its default as SQL, or None if it
            is needed. ``estimated`` then gets rows, or their sums, instead of counts.
        of_ranges: whether it adds up neighbouring values, for which there is a mechanism of its own.

    """

    name: ClassVar[str]
    summary: ClassVar[str]
    fields: ClassVar[Fields] = NUMBERS
    rows: ClassVar[bool | str] = False
    options: ClassVar[Mapping[str, str]] = {"estimator": "NULL", "confidence": "NULL"}
    typed_by: ClassVar[str | None] = None
    two_groups: ClassVar[bool] = False
    lists: ClassVar[bool] = False
    raw: ClassVar[Mapping[str, str | None]] = {}
    of_ranges: ClassVar[bool] = False
    kind: ClassVar[str] = "question"

    @abstractmethod
    def about(self, values: Domain) -> Any:
        """Return the number that is asked for, a `Functional`, or whatever else `measured` takes.

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
    def estimator(cls, source: Source) -> str:
        """Return the estimator if nobody names one."""
        return estimator_of_shares(source)

    @classmethod
    def values(cls, source: Source) -> Any:
        """Return the values that the question is about."""
        return values_of(source)

    @classmethod
    def estimated(cls, asked: Asked, counts: Any) -> Iterator[tuple[Ints, Lines]]:
        """Yield the answers for all groups in parts, each with the groups in it, as ``counts.groups`` numbers them.

        Args:
            asked: the question with what it is asked of.
            counts: `GroupedCounts` of reports, or rows or their sums if the question has raw columns.

        """
        for groups, estimates in estimated(asked.source, counts, asked.estimator):
            yield groups, cls.measured(asked.functional, replace(estimates, recorded=asked.recorded))

    @classmethod
    def measured(cls, functional: Any, estimates: Estimates) -> Lines:
        """Return the answers for all groups; of a functional of several numbers the first, unless the answer is a list."""
        measure = functional.measure(estimates)
        if isinstance(measure, Measure) and not cls.rows and measure.estimate.ndim > 1:
            measure = measure.at(0)
        columns = {name: getattr(measure, name) if hasattr(measure, name) else getattr(functional, name) for name in cls.fields}
        return Lines.of_numbers(columns, getattr(measure, "rounding", 0.0))

    @classmethod
    def adds_up(cls, arguments: Mapping[str, Any]) -> bool:  # noqa: ARG003  # most do
        """Return whether sums over the rows of each report suffice, if the question has raw columns."""
        return True

    @classmethod
    def is_list(cls, arguments: Mapping[str, Any]) -> bool:
        """Return whether the answer with these arguments is a list."""
        return cls.rows if isinstance(cls.rows, bool) else isinstance(python_scalar(arguments[cls.rows]), pa.ListScalar)

    @classmethod
    def parameters(cls) -> dict[str, object]:
        """Return the arguments by name, each with its default as a plain value, required ones first with `REQUIRED`."""
        own = {field.name: field.default for field in fields(cls)}
        plain = {name: default.as_py() if isinstance(default, pa.Scalar) else default for name, default in own.items()}
        return dict(sorted(plain.items(), key=lambda item: item[1] is not REQUIRED))

    @classmethod
    def check_arguments(cls, names: Iterable[str], options: Iterable[str] = ()) -> None:
        """Refuse names that are neither arguments of the question nor options, and that one is missing which it needs.

        Raises:
            InvalidParameter: with the names of those that it takes.

        """
        own: dict[str, object] = {name: default or REQUIRED for name, default in cls.raw.items()} | cls.parameters()
        named = set(names)
        needed = {name for name, default in own.items() if default is REQUIRED}
        known = named <= {*own, *options}
        if not known or not needed <= named:
            takes = ", ".join(name + " (needed)" * (name in needed) for name in [*own, *options])
            missing = " and ".join(name for name in own if name in needed - named)
            refused = f"needs {missing}" if known else "does not take these arguments"
            raise InvalidParameter(f"'{cls.name}' {refused}", f"it takes {takes or 'none'}")

    @classmethod
    def asked(cls, **arguments: Any) -> Self:
        """Return the question with these arguments: Arrow scalars or plain values of Python."""
        return cls(**{name: python_scalar(value) for name, value in arguments.items()})


@dataclass(frozen=True)
class Asked:
    """A question with what it is asked of: what drew the reports, the estimator, the number, and the values of its unit."""

    question: type[Question]
    source: Any
    estimator: Estimator
    functional: Any
    unit: Any
    recorded: bool = True

    @classmethod
    def of(cls, question: Question, source: Source, estimator: Estimator, *, recorded: bool = True) -> Asked:
        """Return a question that is asked of reports; if it is about few columns of a table, of the reports of these.

        Raises:
            InvalidParameter: if the arguments do not fit the values.

        """
        question.check(source)
        values = question.values(source)
        functional, unit = question.about(values), question.unit(values)
        # If an option of the estimator has a number for each cell, the whole table is estimated.
        if isinstance(functional, TableFunctional) and isinstance(source, Mechanism) and not estimator.over_all_values:
            some = SomeColumns.of(source, tuple(functional.touched))
            if some is not None:
                source, functional = some, functional.among(some.places)
        return cls(type(question), source, estimator, functional, unit, recorded)


@dataclass(frozen=True, kw_only=True)
class QuestionOfColumn(Question):
    """A question about a column of ordered values, the only one or ``of``, of all or where the condition ``given`` holds."""

    typed_by = "of"
    of: Argument = NULL
    given: Argument = NULL

    def check(self, source: Source) -> None:
        """Refuse values without order, and positions if levels have different domains: they are positions in one of them."""
        if is_table(source):
            return
        check_ordered(source)
        apart = isinstance(source, Mixed) and any(level.values != source.values for level in source.each)
        if apart and self.fields["estimate"] is Kind.VALUE:
            raise InvalidParameter("the mechanisms of the levels have different domains", "quantiles need the same one")

    def unit(self, values: Domain) -> Domain:
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
    """Return the question of this name."""
    if not _QUESTIONS:
        raise InternalError("no registry of questions was loaded", "import ldpsql first")
    return _QUESTIONS[0](name)


def answered(question: Question, estimates: Estimates, group: int) -> Any:
    """Return the answer for one group as a named tuple, or a list of them; values of dates and times are numbers.

    Raises:
        InvalidParameter: if the arguments do not fit the values.

    """
    own, asked = _asked_of(question, estimates, group)
    lines = question.measured(asked.functional, own)
    columns = [_in_python(lines, name, kind, asked.unit) for name, kind in question.fields.items()]
    kind: Any = Answer if tuple(question.fields) == Answer._fields else namedtuple("Answer", question.fields)
    each = [kind(*line) for line in zip(*columns, strict=True)]
    return each if question.is_list(vars(question)) else each[0]


def answer_table(question: Question, estimates: Estimates, group: int) -> pa.Table:
    """Return the answer for one group as a table with a column for each field, and for each column of a table's values.

    Raises:
        InvalidParameter: if the arguments do not fit the values.

    """
    own, asked = _asked_of(question, estimates, group)
    lines = question.measured(asked.functional, own)
    columns: dict[str, pa.Array] = {}
    for name, kind in question.fields.items():
        column: Any = lines.columns[name]
        if kind is not Kind.VALUE:
            columns[name] = finite_or_null(np.where(np.isnan(column), np.inf, column))
            continue
        values = asked.unit.values.take(pa.array(column.astype(np.int64)))
        parts = struct_parts(values) if pa.types.is_struct(values.type) else [values]
        columns |= dict(zip(getattr(values.type, "names", [name]), parts, strict=True))
    return pa.table(columns)


def answered_apart(question: Question, one: tuple[Estimates, int], other: tuple[Estimates, int]) -> Difference:
    """Return the difference of the number between two groups of people, each the group of some estimates."""
    (first, asked), (second, of_others) = (_asked_of(question, *each) for each in (one, other))
    return difference(first, asked.functional, second, of_others.functional)


def _asked_of(question: Question, estimates: Estimates, group: int) -> tuple[Estimates, Asked]:
    """Return the estimates of the columns that a question is about, or all if others cannot be left out, and what is asked."""
    source: Any = estimates.source
    asked = Asked.of(question, source.mechanism if isinstance(source, CertifiedMechanism) else source, estimates.estimator)
    own = estimates.only(group)
    if not isinstance(asked.source, SomeColumns):
        return own, asked
    some = own.of_columns(asked.source)
    return (own, replace(asked, functional=question.about(estimates.values))) if some is None else (some, asked)


def _in_python(lines: Lines, name: str, kind: Kind | Fields, unit: Domain) -> list[Any]:
    column: Any = lines.columns[name]
    if isinstance(kind, Mapping):
        values = dict(zip(unit.texts, unit.values.to_pylist(), strict=True))
        typed = [one for one, own in kind.items() if own is Kind.VALUE]
        return [[line | {one: values[line[one]] for one in typed} for line in lines] for lines in column.to_pylist()]
    if not isinstance(column, np.ndarray):
        return list(column.to_pylist())
    if kind is not Kind.VALUE:
        return [int(number) for number in column] if kind is Kind.WHOLE and np.isfinite(column).all() else column.tolist()
    at = column.astype(np.int64)
    if name not in RANGE:
        return list(unit.values.take(pa.array(at)).to_pylist())
    reach = {"low": -lines.reach, "high": lines.reach}.get(name, 0.0)
    return [float(f"{end:.15g}") for end in scale_of(unit)[at] + reach]  # 7.7, not 7.699999999999999
