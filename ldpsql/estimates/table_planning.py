"""The error to expect of tables of several columns, for each way to spend one epsilon on the columns of a row.

Errors are those of the unbiased inversion under the uniform distribution, as in `ldpsql.estimates.planning`. Estimates that
shrink, such as best, have smaller ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf, pi, prod, sqrt

from ldpsql.channels import KeepOrSpread, SetChannel
from ldpsql.errors import InvalidParameter, LdpError, UnknownName
from ldpsql.estimates.planning import expected_error
from ldpsql.mechanisms.base import CategoricalMechanism, Mechanism, certify
from ldpsql.mechanisms.rows import JointMechanism, RowMechanism
from ldpsql.names import ROW
from ldpsql.privacy.claims import Epsilon

_DECIMALS = 10**12


@dataclass(frozen=True)
class PlannedTable:
    """What one way makes of one table.

    ``way`` is 'split' if each column has a mechanism of its own and an equal part of epsilon, 'one' if each row reports one
    column, drawn at random, with all of epsilon, 'joint' if one mechanism draws whole rows, 'tables' if a mechanism draws the
    rows of each table with an equal part. ``mechanism`` is how it is written, without the values. ``l1`` is the expected sum
    of the absolute errors of the cells; it and ``std_error`` are None if the reports do not determine the table. ``best`` marks
    the way with the smallest sum of ``l1`` over all tables.
    """

    way: str
    mechanism: str
    table: str
    cells: int
    std_error: float | None
    l1: float | None
    best: bool = False


@dataclass(frozen=True)
class _Question:
    """The columns with their numbers of values, the number of reports, epsilon, and the tables that are asked for."""

    columns: Mapping[str, int]
    reports: int
    epsilon: Epsilon
    tables: Sequence[tuple[str, ...]]

    def part(self, parts: int) -> Epsilon:
        """Return an equal part of epsilon, rounded down to what an epsilon can be."""
        return Epsilon(Fraction(int(self.epsilon.value / parts * _DECIMALS), _DECIMALS))

    def sizes(self, table: Sequence[str]) -> dict[str, int]:
        """Return the numbers of values of some columns."""
        return {name: self.columns[name] for name in table}


def plan_tables(
    classes: Mapping[str, type[Mechanism]],
    columns: Mapping[str, int],
    reports: int,
    epsilon: str,
    tables: Sequence[Sequence[str]] = (),
) -> list[PlannedTable]:
    """Return what each way to spend an epsilon makes of each table, the best way first.

    Args:
        classes: the mechanisms that may be chosen, by name.
        columns: the number of values of each column.
        reports: how many persons there are.
        epsilon: the epsilon of a whole row.
        tables: the columns of each table that is asked for; by default one table of all columns.

    Raises:
        InvalidParameter: if there are fewer than two columns, a column has fewer than two values, or there are no reports.
        UnknownName: if a table has a column that is not among the columns.

    """
    if len(columns) < 2 or min(columns.values()) < 2 or reports < 1:
        raise InvalidParameter(
            "a plan of tables needs at least two columns of two values each, and a report", "for example education=16 income=2"
        )
    asked = [tuple(dict.fromkeys(table)) for table in tables] or [tuple(columns)]
    for name in (name for table in asked for name in table if name not in columns):
        raise UnknownName("column", name, columns)
    question = _Question(columns, reports, Epsilon.parse(epsilon), asked)
    each = (_split(question, classes), _one(question, classes), *_joint(question, classes), _apart(question, classes))
    ways = [list(way) for way in each]
    ordered = sorted((way for way in ways if way), key=_total)
    return [replace(table, best=place == 0) for place, way in enumerate(ordered) for table in way]


def _total(way: Sequence[PlannedTable]) -> float:
    return sum(inf if table.l1 is None else table.l1 for table in way)


def _split(question: _Question, classes: Mapping[str, type[Mechanism]]) -> Iterator[PlannedTable]:
    """Yield what a mechanism for each column makes of the tables: in each column the one with the smallest error."""
    simple = [kind for kind in classes.values() if issubclass(kind, CategoricalMechanism)]
    epsilon = question.part(len(question.columns))
    chosen = {name: _best(simple, epsilon, {"domain": range(size)}) for name, size in question.columns.items()}
    if not all(chosen.values()):
        return
    parts = {name: mechanism for name, mechanism in chosen.items() if mechanism is not None}
    written = ", ".join(f"{name}={mechanism.name}({epsilon}, ...)" for name, mechanism in parts.items())
    for table in question.tables:
        own = {name: parts[name] for name in table}
        mechanism = classes[ROW].model_validate({"columns": own}) if len(own) > 1 else next(iter(own.values()))
        error = expected_error(mechanism, question.reports).std_error
        yield _table("split", f"{ROW}({written})", table, prod(question.sizes(table).values()), error)


def _one(question: _Question, classes: Mapping[str, type[Mechanism]]) -> Iterator[PlannedTable]:
    """Yield what reports of one column a person make of the tables: nothing of tables of several columns."""
    simple = [kind for kind in classes.values() if issubclass(kind, CategoricalMechanism)]
    singles = [name for name, kind in classes.items() if issubclass(kind, RowMechanism) and kind.single]
    reports = question.reports // len(question.columns)
    for table in question.tables if singles and reports else ():
        cells, own = prod(question.sizes(table).values()), None
        if len(table) == 1:
            own = _best(simple, question.epsilon, {"domain": range(cells)})
        error = None if own is None else expected_error(own, reports).std_error
        written = f"{singles[0]}({', '.join(question.columns)}: ...), each with epsilon {question.epsilon}"
        yield _table("one", written, table, cells, error)


def _joint(question: _Question, classes: Mapping[str, type[Mechanism]]) -> Iterator[list[PlannedTable]]:
    """Yield what each mechanism over whole rows makes of the tables."""
    for name, kind in classes.items():
        if issubclass(kind, JointMechanism):
            whole = _made(kind, question.epsilon, {"columns": _domains(question.columns)})
            if whole is not None:
                written = f"{name}({question.epsilon}, {{{', '.join(question.columns)}: ...}})"
                yield [_margin("joint", written, whole, question, table) for table in question.tables]


def _apart(question: _Question, classes: Mapping[str, type[Mechanism]]) -> Iterator[PlannedTable]:
    """Yield what a mechanism for the rows of each table makes of it."""
    kinds = [kind for kind in classes.values() if issubclass(kind, JointMechanism)]
    if len(question.tables) < 2 or min(map(len, question.tables)) < 2:
        return
    epsilon = question.part(len(question.tables))
    for table in question.tables:
        own = _best(kinds, epsilon, {"columns": _domains(question.sizes(table))})
        if own is not None:
            yield _margin("tables", f"{own.name}({epsilon}, {{{', '.join(table)}: ...}})", own, question, table)


def _domains(sizes: Mapping[str, int]) -> dict[str, range]:
    return {name: range(size) for name, size in sizes.items()}


def _made(kind: type[Mechanism], epsilon: Epsilon, values: Mapping[str, object]) -> Mechanism | None:
    """Return a certified mechanism, None if it does not exist for so many values or such an epsilon."""
    try:
        made = kind(**{"epsilon": epsilon, **values})
        certify(made)
    except LdpError:
        return None
    return made


def _best(kinds: Sequence[type[Mechanism]], epsilon: Epsilon, values: Mapping[str, object]) -> Mechanism | None:
    """Return the mechanism with the smallest error."""
    made = [one for one in (_made(kind, epsilon, values) for kind in kinds) if one is not None]
    return min(made, key=lambda one: expected_error(one, 1 << 50).std_error or inf, default=None)


def _margin(way: str, written: str, whole: Mechanism, question: _Question, table: tuple[str, ...]) -> PlannedTable:
    """Return what a mechanism over more columns makes of a table: each of its cells is a sum of cells."""
    channel, cells = certify(whole).response, prod(question.sizes(table).values())
    together = channel.inputs / cells
    error = None
    if isinstance(channel, KeepOrSpread):
        lift = float(channel.keep - channel.spread) / 2**64
        chance = lift / cells + float(channel.spread) / 2**64 * together
        error = sqrt(chance * (1 - chance) / question.reports) / lift
    elif isinstance(channel, SetChannel):
        hit, miss = float(channel.hit), float(channel.miss)
        chance = miss + (hit - miss) / channel.inputs
        error = sqrt(together * chance * (1 - chance) / question.reports) / (hit - miss)
    return _table(way, written, table, cells, error)


def _table(way: str, written: str, table: Sequence[str], cells: int, error: float | None) -> PlannedTable:
    fits = error is not None and error < 1
    total = float(cells * error * sqrt(2 / pi)) if fits and error is not None else None
    return PlannedTable(way, written, " x ".join(table), cells, float(error) if fits and error is not None else None, total)
