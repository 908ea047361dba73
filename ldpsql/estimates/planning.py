"""The error to expect before anything is collected: by mechanism and epsilon, for one column and for tables of several.

The error is that of the unbiased inversion under the uniform distribution, in which no share is near the border. The maximum
likelihood estimate has the same error there and a smaller one for shares near zero. For key-value mechanisms it is the error
of a key's frequency, if all keys are equally frequent and everybody has as many pairs as the padding. For strings that are not
listed it is the error of a rare string of the largest length; shorter ones have smaller errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import singledispatch
from math import inf, pi, prod, sqrt

import numpy as np

from ldpsql.channels import KeepOrSpread, OrthogonalHash, SetChannel
from ldpsql.channels.costs import Cost
from ldpsql.channels.hashed import quicker_symbols
from ldpsql.errors import DataError, InternalError, InvalidParameter, LdpError, NotPrivate, UnknownName, UsageError
from ldpsql.estimates.conditions import scale_of
from ldpsql.inference.counting import operator_of
from ldpsql.inference.operators import Floats
from ldpsql.mechanisms.base import (
    CategoricalMechanism,
    CertifiedMechanism,
    CertifiedOne,
    CertifiedPairs,
    CertifiedRow,
    CertifiedStrings,
    CertifiedValues,
    Mechanism,
    certify,
    certify_values,
)
from ldpsql.mechanisms.families import JointMechanism, NumberMechanism, RowMechanism
from ldpsql.names import ROW
from ldpsql.privacy.claims import Epsilon

MAX_VALUES = 1 << 20
_ALIKE, _CHEAP = 1.02, 5.0  # errors within two percent are equal, and costs up to five times the least
_DEVIATIONS = 1.96  # of the interval that is to be short


@dataclass(frozen=True)
class Expected:
    """The expected error of one mechanism at one epsilon.

    ``std_error`` is the root mean square over the values of a share's standard error, or over the keys of a frequency's;
    ``total_variation`` is the expected distance to the truth, None for frequencies, which do not form a distribution;
    ``reports_needed`` is how many reports make the standard error one percent. These are None if the reports do not determine
    the shares. ``mean_error`` is the standard error of the mean of numbers, in their unit; None for other mechanisms.
    """

    mechanism: str
    epsilon: float
    std_error: float | None
    total_variation: float | None
    reports_needed: int | None
    mean_error: float | None = None


def expected_error(mechanism: Mechanism, reports: int) -> Expected:
    """Return the error to expect from this many reports of a mechanism."""
    if reports < 1:
        raise InvalidParameter("a plan needs at least one report", "for example 100000")
    certified = certify(mechanism)
    one = _single(certified)  # of a single report: errors fall with the root of their number
    epsilon, mean = float(certified.certificate.claim.epsilon), mean_error(mechanism, reports)
    root_mean_square = float(np.sqrt(np.mean(one**2)))
    if not root_mean_square < np.sqrt(reports):  # an error above 1 says nothing about a share
        return Expected(mechanism.name, epsilon, None, None, None, mean)
    return Expected(
        mechanism=mechanism.name,
        epsilon=epsilon,
        std_error=root_mean_square / np.sqrt(reports),
        total_variation=_total_variation(one, reports) if isinstance(certified, CertifiedValues | CertifiedRow) else None,
        reports_needed=int(np.ceil((root_mean_square / 0.01) ** 2)),
        mean_error=mean,
    )


def share_error(certified: CertifiedMechanism, reports: int) -> float:
    """Return the root mean square over the values of a share's standard error."""
    return float(np.sqrt(np.mean(_single(certified) ** 2) / reports))


def mean_error(mechanism: Mechanism, reports: int, shares: Floats | None = None) -> float | None:
    """Return the standard error of the mean of numbers, under the shares, shape (1, values), or the uniform distribution."""
    if not isinstance(mechanism, NumberMechanism):
        return None
    operator, x = operator_of(mechanism), scale_of(certify_values(mechanism).values)
    truth = np.full((1, len(x)), 1.0 / len(x)) if shares is None else shares
    law = operator.forward(truth)
    if operator.bounding_weights is None:
        _, variance = operator.functionals(law, np.array([float(reports)]), truth, x[:, None])
        return float(np.sqrt(variance[0, 0]))
    weights = operator.bounding_weights.majorants(x[:, None], reports, _DEVIATIONS, sets=False).weights[0]
    return float(np.sqrt((law[0] @ weights**2 - (law[0] @ weights) ** 2) / reports))


def _total_variation(one: np.ndarray, reports: int) -> float:
    return min(1.0, float(one.sum()) / np.sqrt(2 * np.pi * reports))  # E|N| = s sqrt(2/pi)


@singledispatch
def _single(certified: CertifiedMechanism) -> np.ndarray:
    """Return the standard errors of everything that is estimated, from a single report."""
    raise InternalError(f"{type(certified).__name__} is not registered here", "register it next to the other kinds")


@_single.register
def _(certified: CertifiedPairs) -> np.ndarray:
    """Return the standard error of every frequency: padding (C/n - other)/lift, for the binomial number C that show the key."""
    channel, law = certified.channel, certified.channel.response.key_law()
    chance = float(law.other + law.lift / max(channel.padding, channel.keys))
    return np.full(channel.keys, channel.padding * np.sqrt(chance * (1 - chance)) / float(law.lift))


@_single.register
def _(certified: CertifiedStrings) -> np.ndarray:
    """Return the standard error of the share of a rare string, which only reports of the last level show."""
    channel = certified.channel
    hit, miss = float(channel.hit), float(channel.miss)
    return np.array([np.sqrt(channel.levels * miss * (1 - miss)) / (hit - miss)])


@_single.register
def _(certified: CertifiedOne) -> np.ndarray:
    """Return infinite errors: reports of one column say nothing about cells."""
    return np.full(len(certified.parts), inf)


@_single.register
def _(certified: CertifiedRow) -> np.ndarray:
    """Return the standard error of every cell, under the uniform distribution: variances of the inverse are products."""
    second = np.ones(1)
    for part in certified.parts:
        single, size = _single(part), len(part.values)
        second = (second[:, None] * (single**2 + 1 / size**2)).ravel()
    return np.sqrt(np.maximum(second - 1 / len(second) ** 2, 0.0))


@_single.register
def _(certified: CertifiedValues) -> np.ndarray:
    """Return the standard error of every share, under the uniform distribution."""
    channel = certified.channel
    size = channel.inputs
    if isinstance(channel, SetChannel):
        # A share is (C/n - miss)/(hit - miss) for the number C of reports that support the value: C is binomial.
        hit, miss = float(channel.hit), float(channel.miss)
        chance = (hit + (size - 1) * miss) / size
        return np.full(size, np.sqrt(chance * (1 - chance)) / abs(hit - miss))
    model = operator_of(certified.mechanism)
    uniform = np.full((1, size), 1.0 / size)
    return model.interval(model.forward(uniform), np.ones(1), uniform, 1.0)[0][0]


def compare(epsilons: Sequence[str], reports: int, mechanisms: Sequence[Mechanism]) -> list[Expected]:
    """Return the expected errors of every mechanism at every epsilon (strings, so that they stay exact), the smallest first.

    If errors differ by less than two percent, a mechanism whose reports cost much less comes first.

    A mechanism that does not exist at an epsilon is left out there.

    Raises:
        InvalidParameter: if no mechanism exists at any epsilon.
        InvalidEpsilon: if a string is not an epsilon.

    """
    comparison: list[Expected] = []
    refusals: list[str] = []
    for epsilon in [Epsilon.parse(text) for text in epsilons]:
        comparison += _ranked(list(_at(mechanisms, epsilon, reports, refusals)))
    if not comparison:
        hint = next(iter(refusals), "name a mechanism")
        raise InvalidParameter("none of these mechanisms exists at any of these epsilons", hint)
    return comparison


def over_declared_values(classes: Mapping[str, type[Mechanism]], values: int, only: Sequence[str] = ()) -> list[Mechanism]:
    """Return the mechanisms ``only``, or all that need only an epsilon and a domain, on this many values.

    A mechanism over sets of pairs has this many keys.
    """
    if not 2 <= values <= MAX_VALUES:
        raise InvalidParameter(f"a plan needs from 2 to {MAX_VALUES} values", "the size of the domain")
    if not only:
        only = [
            name for name, cls in sorted(classes.items()) if issubclass(cls, CategoricalMechanism) and _list_of(cls) == "domain"
        ]
    return [_on_values(classes[name], values) for name in only]


def _on_values(cls: type[Mechanism], values: int) -> Mechanism:
    parameter = _list_of(cls)
    if parameter is None:
        hint = f"write it with its parameters: {cls.signature()}"
        raise InvalidParameter(f"{cls.name} needs more than an epsilon and a number of values", hint)
    return cls(**{"epsilon": "1", parameter: np.arange(values)})


def _list_of(cls: type[Mechanism]) -> str | None:
    """Return the parameter that lists the values or the keys; None if the mechanism needs others besides it and epsilon."""
    needed = {p.name for p in cls.parameters() if p.required} - {"epsilon"}
    return next(iter(needed)) if needed in ({"domain"}, {"keys"}) else None


def _at(
    mechanisms: Sequence[Mechanism], epsilon: Epsilon, reports: int, refusals: list[str]
) -> Iterator[tuple[Expected, Cost]]:
    """Yield expected errors and the cost of a report; add a line to the refusals for each mechanism that refuses."""
    for mechanism in mechanisms:
        try:
            changed = mechanism.changed(epsilon=str(epsilon))
            yield expected_error(changed, reports), certify(changed).channel.per_report
        except (UsageError, NotPrivate, DataError) as refusal:
            refusals.append(f"{mechanism.name} at epsilon {epsilon}: {refusal.message}")


def _ranked(answers: Sequence[tuple[Expected, Cost]]) -> Iterator[Expected]:
    """Yield answers, the smallest error first; among errors that are as good as equal, those of cheap reports first."""
    left = sorted(answers, key=lambda answer: _by_error(answer[0]))
    while left:
        alike = [answer for answer in left if _by_error(answer[0]) <= _by_error(left[0][0]) * _ALIKE]
        cheap = _CHEAP * min(cost.seconds for _, cost in alike)
        yield from (one for one, _ in sorted(alike, key=lambda answer: answer[1].seconds > cheap))
        left = left[len(alike) :]


def _by_error(expected: Expected) -> float:
    return inf if expected.std_error is None else expected.std_error


# Symbols of orthogonal hashes with which estimates are much quicker, for those who have not collected reports yet.


def quicker(mechanisms: Sequence[Mechanism], epsilons: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each mechanism and epsilon for which other symbols make estimates far quicker."""
    for mechanism in mechanisms:
        for epsilon in epsilons:
            with suppress(UsageError, NotPrivate, DataError):
                if sentence := _advice(mechanism.changed(epsilon=epsilon)):
                    yield f"{mechanism.name} at epsilon {epsilon}: {sentence}"


def _advice(mechanism: Mechanism) -> str | None:
    certified = certify(mechanism)
    channel = certified.channel if isinstance(certified, CertifiedValues) else None
    if not isinstance(channel, OrthogonalHash):
        return None
    one = quicker_symbols(channel.ratio, channel.inputs, channel.response.size)
    return one and (
        f"with symbols={one.symbols}, estimates transform {one.fewer:.0f} times as few numbers, and errors are "
        f"{one.larger - 1:.0%} larger"
    )


# The error to expect of tables of several columns, for each way to spend one epsilon on the columns of a row.
#
# Errors are those of the unbiased inversion under the uniform distribution, as in `ldpsql.estimates.planning`. Estimates that
# shrink, such as best, have smaller ones.

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
