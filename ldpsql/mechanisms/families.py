"""Base classes of mechanisms whose values are not simply listed: numbers, intervals, grids, sets of pairs, rows of columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import date
from fractions import Fraction
from functools import cache, cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from ldpsql.channels import TOTAL, Channel, KeyValue, Rows, Weights, reduced
from ldpsql.channels.costs import Cost
from ldpsql.channels.dense import Window, two_reports
from ldpsql.channels.key_value import Response
from ldpsql.channels.levels import MOST_LEAVES
from ldpsql.channels.noise import PlanarDecay, planar_channel
from ldpsql.domains.composite import PairSets, Product, ProductField
from ldpsql.domains.domain import Domain, DomainField
from ldpsql.domains.sql_types import unless_null
from ldpsql.domains.unlisted import UNITS, Bins, Moments, Steps, Whole, cells, sql_cells, steps_to_bins, text_in_utc
from ldpsql.errors import InvalidParameter
from ldpsql.mechanisms.base import CertifiedRow, Mechanism, certify
from ldpsql.mechanisms.spec import EpsilonField, LengthField, Nested, NumberField, PartsField, WholeField, decimal_text, number
from ldpsql.names import MOMENTS, ROW_REPORTS, ROW_VALUES
from ldpsql.privacy.claims import Claim, Distances, Epsilon, Grid, Line, Metric, MetricLdp
from ldpsql.reports import Alphabet, RowReports

_CELL = Cost(3e-5, 1000)  # of a table of distances
MAX_CELLS = 4096  # with any distances
MOST_ON_MAP = 160_000  # cells of a grid
ClipRule = Annotated[str, Field(pattern=r"(?s)^(clip|as:.+)$")]


class NumberMechanism(Mechanism):
    """A mechanism over numbers. A number outside the range is refused, clipped, or replaced by a declared number."""

    outside: ClipRule | None = Field(
        None,
        description="'clip': the nearer end stands for a number outside; 'as:NUMBER': that number does; else it is refused",
    )


class RangeMechanism(NumberMechanism):
    """Noise on the whole numbers low .. high, private per unit: an implementation adds ``name`` and `channel`."""

    sql_domain = sql_reports = Whole.sql("low", "high")
    per_distance = True
    epsilon: EpsilonField = Field(description="privacy parameter per unit: numbers d apart keep d * epsilon")
    low: WholeField = Field(description="smallest value")
    high: WholeField = Field(description="largest value; at most 20,000 numbers")

    def values(self) -> Domain:
        """Return the range."""
        return Whole(self.low, self.high, clip=self.outside == "clip")

    def claim(self) -> Claim:
        """Return metric privacy on the line."""
        return MetricLdp(self.epsilon, Line(len(self.values())))


class IntervalMechanism(NumberMechanism):
    """A mechanism over an interval cut into bins; it reports bin numbers. An implementation adds ``name`` and `channel`."""

    sql_domain = unless_null("step", Steps.sql("low", "high", "step", "bins"), Bins.sql("low", "high", "bins"))
    sql_reports = unless_null("step", Steps.sql_numbers("low", "high", "step", "bins"), Bins.sql_numbers("bins"))
    added: ClassVar[tuple[str, ...]] = ("step",)
    epsilon: EpsilonField = Field(description="privacy parameter: no value makes a report more than e^epsilon times likelier")
    low: NumberField = Field(description="smallest value")
    high: NumberField = Field(description="largest value")
    bins: Annotated[WholeField, Field(ge=2, le=4096)] = Field(
        1024, description="number of bins, of values and of reports; at most 4,096"
    )
    step: Annotated[NumberField, Field(gt=0)] | None = Field(
        None, description="distance from one value to the next, 1 for whole numbers: bins are centred on them; NULL: any number"
    )

    @model_validator(mode="after")
    def _fit_bins(self) -> Self:
        """Return the mechanism with as many bins as its steps fill."""
        if self.step is not None:
            self.__dict__["bins"] = steps_to_bins(self.low, self.high, self.step, self.bins)[1]
        return self

    def values(self) -> Domain:
        """Return the centres of the bins."""
        if self.step is None:
            return Bins(self.low, self.high, self.bins, clip=self.outside == "clip")
        return Steps(self.low, self.high, self.step, self.bins, clip=self.outside == "clip")

    def alphabet(self) -> Domain:
        """Return the numbers of the bins, from 0."""
        return Domain.of(range(self.bins))


class CellMechanism(Mechanism):
    """A mechanism over cells of a grid, cell = row * columns + column: an implementation adds ``name`` and `channel`."""

    sql_domain: ClassVar[str | None] = sql_cells("columns", "rows")
    epsilon: EpsilonField = Field(description="privacy parameter: no cell makes a report more than e^epsilon times likelier")
    columns: Annotated[WholeField, Field(ge=2, le=MOST_ON_MAP // 2)] = Field(description="number of columns of the grid")
    rows: Annotated[WholeField, Field(ge=2, le=MOST_ON_MAP // 2)] = Field(description="number of rows of the grid")

    def values(self) -> Domain:
        """Return the numbers of the cells.

        Raises:
            InvalidParameter: if there are more than 160,000.

        """
        if self.columns * self.rows > MOST_ON_MAP:
            raise InvalidParameter(f"a grid may have at most {MOST_ON_MAP} cells", "use larger cells")
        return cells(self.columns, self.rows)

    def layout(self) -> tuple[int, ...]:
        return self.rows, self.columns


class GridMechanism(CellMechanism):
    """A mechanism on a grid of square cells, private per length: an implementation adds ``name`` and `channel`."""

    sql_reports = sql_cells("columns", "rows")
    per_distance = True
    epsilon: EpsilonField = Field(description="privacy parameter per unit of length")
    side: LengthField = Field(Fraction(1), description="length of the side of a cell")

    def claim(self) -> MetricLdp:
        """Return metric privacy for the Euclidean distance between centres."""
        return MetricLdp(self.epsilon, Grid(self.columns, self.rows, self.side))


class PlanarMechanism(GridMechanism):
    """Noise on the plane that falls exponentially with the distance, then the nearest cell: an implementation adds ``name``."""

    def points(self) -> int:
        """Return along how many points the side of a cell is summed, an odd number."""
        return 1

    def channel(self) -> Channel:
        """Return the noise; the cells on the border collect its mass beyond the border."""
        return planar_channel(self.columns, self.rows, self.epsilon.value * self.side, self.points())

    def decay(self) -> PlanarDecay:
        """Return the noise in few whole numbers.

        Raises:
            InvalidParameter: if it reaches too far.

        """
        return PlanarDecay.within(self.columns, self.rows, reduced(self.epsilon.value * self.side), self.points())


def _distances(rows: Any) -> tuple[tuple[Fraction, ...], ...]:
    if not isinstance(rows, list | tuple) or not all(isinstance(row, list | tuple) for row in rows):
        raise ValueError("must be a list of rows of numbers")
    (_CELL * sum(map(len, rows))).check("reading this table of distances", "use the cells of a grid (columns), or fewer values")
    exact = cache(number)  # equal distances are one object, and compared by that
    table = tuple(tuple(d if type(d) is Fraction else exact(str(d)) for d in row) for row in rows)
    if any(len(row) != len(table) for row in table):
        raise ValueError("must be a square table")
    positive = {id(d): d > 0 for row in table for d in row}
    apart = all(positive[id(d)] or x == y for x, row in enumerate(table) for y, d in enumerate(row))
    if not apart or any(row[x] for x, row in enumerate(table)) or tuple(zip(*table, strict=True)) != table:
        raise ValueError("must be symmetric, 0 on the diagonal and positive elsewhere")
    return table


def numbers(values: Any) -> list[Fraction]:
    """Return a list or an Arrow array of plain numbers as exact fractions."""
    items = values.to_pylist() if isinstance(values, pa.Array) else values
    if not isinstance(items, list | tuple):
        raise ValueError("must be a list of numbers")
    return [number(item) for item in items]


DistancesField = Annotated[
    tuple[tuple[Fraction, ...], ...],
    BeforeValidator(_distances),
    PlainSerializer(lambda table: [[decimal_text(d) for d in row] for row in table]),
]


class MetricMechanism(Mechanism):
    """A mechanism over values with a distance between them: cells of a grid row by row, or any table of distances.

    An implementation adds ``name``, its parameters and `channel`; reports are values.
    """

    if TYPE_CHECKING:
        epsilon: Epsilon
        domain: Domain
    per_distance = True
    columns: Annotated[WholeField, Field(ge=1, le=MAX_CELLS)] | None = Field(None, description="number of columns of the grid")
    side: LengthField = Field(Fraction(1), description="length of the side of a cell of the grid")
    distances: DistancesField | None = Field(None, description="the distances of all pairs of values, instead of a grid")

    def claim(self) -> MetricLdp:
        """Return metric privacy."""
        return MetricLdp(self.epsilon, self.metric())

    def metric(self) -> Metric:
        """Return the distances.

        Raises:
            InvalidParameter: unless the parameters describe either a grid or a table of distances, and it fits the domain.

        """
        size = len(self.domain)
        if size > MAX_CELLS:
            raise InvalidParameter(f"a metric space may have at most {MAX_CELLS} values", "use larger cells")
        if (self.columns is None) == (self.distances is None):
            raise InvalidParameter(f"{self.name} needs either columns, for a grid, or distances", self.signature())
        if self.distances is not None:
            if len(self.distances) != size:
                raise InvalidParameter("distances must have one row for each value of the domain", self.signature())
            return Distances(self.distances)
        columns = self.columns or size
        if size % columns:
            raise InvalidParameter("the cells of a grid must fill its rows", "one value a cell, row by row")
        return Grid(columns, size // columns, self.side)

    def layout(self) -> tuple[int, ...]:
        """Return (rows, columns) if the values are the cells of a grid, else ()."""
        return (len(self.domain) // self.columns, self.columns) if self.columns else ()


def _prior(values: Any) -> tuple[Fraction, ...]:
    weights = numbers(values)
    if any(w < 0 for w in weights) or not any(weights):
        raise ValueError("must hold numbers that are not negative, and not all zero")
    return tuple(weights)


PriorField = Annotated[
    tuple[Fraction, ...], BeforeValidator(_prior), PlainSerializer(lambda prior: [decimal_text(p) for p in prior])
]


def shares_of(prior: Sequence[Fraction | int], size: int, signature: str) -> NDArray[np.float64]:
    """Return a prior as a distribution.

    Raises:
        InvalidParameter: unless it has one number for each of ``size`` values.

    """
    if len(prior) != size:
        raise InvalidParameter("the prior must have one number for each value of the domain", signature)
    total = sum(prior)
    return np.array([float(p / total) for p in prior])


class PriorMechanism(MetricMechanism):
    """A mechanism on a metric space, built for a public prior, and built again when an estimate replaces it: see `privic`.

    An implementation adds ``name``, its parameters with a ``prior: PriorField``, `claim`, `channel` and `tight`.
    """

    if TYPE_CHECKING:
        prior: tuple[Fraction, ...]

    @abstractmethod
    def tight(self) -> float:
        """Return the epsilon per unit of distance that the channel keeps before it is rounded to whole numbers."""

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """The prior as a distribution; see `shares_of`."""
        return shares_of(self.prior, len(self.domain), self.signature())

    def with_prior(self, shares: NDArray[np.float64]) -> Self:
        """Return the mechanism with another prior and all other parameters the same."""
        parameters = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**parameters | {"prior": shares.tolist()})


def window(start: NDArray[np.float64], width: float, bins: int) -> NDArray[np.float64]:
    """Return which share of every bin of [0, 1] each window [start, start + width] covers, shape ``(len(start), bins)``."""
    edges = np.arange(bins + 1) / bins
    reached = np.clip(edges[None, :] - start[:, None], 0.0, width)
    covered: NDArray[np.float64] = np.diff(reached, axis=1) * bins
    return covered


# Points in any number of dimensions, as a parameter of mechanisms.


def _points(rows: Any) -> tuple[tuple[Fraction, ...], ...]:
    if not isinstance(rows, list | tuple):
        raise ValueError("must be a list of points, each a list of numbers")
    points = tuple(tuple(numbers(row)) for row in rows)
    if len(set(points)) < len(points) or len({len(point) for point in points}) != 1 or not points[0]:
        raise ValueError("must hold different points with equally many numbers each")
    return points


PointsField = Annotated[
    tuple[tuple[Fraction, ...], ...],
    BeforeValidator(_points),
    PlainSerializer(lambda points: [[decimal_text(at) for at in point] for point in points]),
]


# Mechanisms over very many ordered values: numbers by bins or steps, dates and times by units.

_BINS = 1024


def _end(value: Any) -> float | str:
    """Return a number, or the text of a date or a time."""
    if isinstance(value, date):  # and datetime
        value = str(value)
    if isinstance(value, str) and value[4:5] == "-" and value[:4].isdigit():
        return text_in_utc(value)
    try:
        return float(number(value))
    except ValueError:
        raise ValueError("must be a plain number, a date or a timestamp") from None


def _step(value: Any) -> float | str:
    """Return a positive number or a unit."""
    if isinstance(value, str) and value.lower() in UNITS:
        return value.lower()
    try:
        step = float(number(value))
    except ValueError:
        raise ValueError("must be a plain number, 'day', 'hour' or 'minute'") from None
    if step <= 0:
        raise ValueError("must be above 0")
    return step


EndField = Annotated[float | str, BeforeValidator(_end)]
StepField = Annotated[float | str, BeforeValidator(_step)]


class OrderedMechanism(NumberMechanism):
    """A mechanism over up to 2^20 ordered values between two ends. An implementation adds ``name`` and `channel`."""

    sql_domain: ClassVar[str | None] = f'{MOMENTS}("low")'
    epsilon: EpsilonField = Field(description="privacy parameter: no value makes a report more than e^epsilon times likelier")
    low: EndField = Field(description="smallest value: a number, a date or a timestamp")
    high: EndField = Field(description="largest value")
    step: StepField | None = Field(
        None,
        description="distance from one value to the next, 1 for whole numbers, 0.01 for cents; 'day', 'hour' or 'minute' for "
        "dates and timestamps; NULL: any number, or a day",
    )
    bins: Annotated[WholeField, Field(ge=2, le=MOST_LEAVES)] | None = Field(
        None, description="largest number of bins for numbers; NULL: as many as steps, or 1,024 without step"
    )

    @model_validator(mode="after")
    def _fit_ends(self) -> Self:
        """Return the mechanism with both ends, the step and the bins of one kind."""
        timed = [isinstance(part, str) for part in (self.low, self.high, self.step) if part is not None]
        if any(timed) != all(timed) or (all(timed) and self.bins is not None):
            raise InvalidParameter(
                "low and high must be two numbers with a number as step, or two dates or times with a unit as step",
                "step := 'day', 'hour' or 'minute' sets how many dates or times there are, and bins how many numbers",
            )
        if self.step is None and all(timed):
            self.__dict__["step"] = "day"
        if not all(timed):
            self.__dict__["bins"] = self._bins()
        return self

    def _bins(self) -> int:
        """Return the number of bins."""
        if self.step is None:
            return self.bins or _BINS
        each, count = steps_to_bins(float(self.low), float(self.high), float(self.step), self.bins or MOST_LEAVES)
        if self.bins is None and each > 1:
            raise InvalidParameter(
                f"the range has more than {MOST_LEAVES:,} values",
                f"use a larger step, or bins := {MOST_LEAVES} for several neighbours to a bin",
            )
        return count

    def values(self) -> Domain:
        """Return the centres of the bins, or the days, hours or minutes."""
        clip = self.outside == "clip"
        if isinstance(self.step, str):
            return Moments(str(self.low), str(self.high), self.step, MOST_LEAVES, clip=clip)
        low, high, bins = float(self.low), float(self.high), self.bins or _BINS
        return Bins(low, high, bins, clip=clip) if self.step is None else Steps(low, high, self.step, bins, clip=clip)

    def layout(self) -> tuple[int, ...]:
        """Return (values,): neighbours are close."""
        return (len(self.values()),)


MAX_SYMBOLS = 1 << 22
DropRule: TypeAlias = Literal["drop"]


class KeyValueMechanism(Mechanism):
    """An epsilon-LDP mechanism over sets of pairs of a declared key and a number: an implementation adds `name`, `response`.

    It also sets `alphabet` and ``sql_reports``. Privacy covers the whole set: its keys, their number and their values.
    """

    sql_domain = Domain.sql_given("keys")
    epsilon: EpsilonField = Field(
        description="privacy parameter: no set makes a report more than e^epsilon times likelier than another set does"
    )
    keys: DomainField = Field(description="the keys that may occur, in a fixed order")
    padding: Annotated[WholeField, Field(ge=1, le=10_000)] = Field(
        1, description="smaller sets are padded to this many pairs; keys of larger ones are underestimated"
    )
    low: NumberField = Field(-1.0, description="smallest value")
    high: NumberField = Field(1.0, description="largest value")
    clip: bool = Field(
        default=False, description="whether the nearer end stands for a value outside the range; else it is refused"
    )
    nulls: DropRule | None = Field(
        None, description="'drop': a NULL set counts as empty, a pair with a NULL is left out; else NULL is refused"
    )
    outside: DropRule | None = Field(None, description="'drop': pairs with other keys are left out; else they are refused")

    @abstractmethod
    def response(self) -> Response:
        """Return the response to a symbol; its ratio is at most `ratio` if it shows one symbol, e^epsilon if it shows many."""

    @abstractmethod
    def alphabet(self) -> Alphabet:
        """Return the reports of the response."""

    def values(self) -> PairSets:
        drop_missing, drop_unknown = self.nulls == "drop", self.outside == "drop"
        return PairSets(self.keys, self.low, self.high, self.clip, drop_missing, drop_unknown)

    def layout(self) -> tuple[int, ...]:
        """Return (): symbols have no neighbours, even if the keys have."""
        return ()

    def channel(self) -> KeyValue:
        """Return padding, sampling and response as one channel."""
        return KeyValue(len(self.keys), self.padding, self.response())

    def scores(self) -> NDArray[np.float64]:
        """Return the score of every symbol of a kept key: its expectation is the value, on [-1, 1]."""
        return np.array([1.0, -1.0])

    def rounding(self) -> float:
        """Return how far a value may lie from the one that stands for it, on [-1, 1]."""
        return 0.0

    def symbol_keys(self, cells: int) -> int:
        """Return the number of keys and dummies.

        Raises:
            InvalidParameter: if they have too many symbols, ``cells`` each.

        """
        total = len(self.keys) + self.padding
        if total * cells > MAX_SYMBOLS:
            raise InvalidParameter("there are too many keys, bins or dummies", f"together at most {MAX_SYMBOLS} symbols")
        return total

    def ratio(self, cells: int) -> Fraction:
        """Return the largest ratio of a response that shows one symbol: sampling divides its excess over 1 by the padding.

        1 + (ratio - 1)/padding <= e^epsilon, with the chance of a key rounded as the sampler rounds it.
        """
        return 1 + (self.epsilon.exp_below() - 1) / KeyValue.most(self.padding, cells)


class SignMechanism(KeyValueMechanism):
    """A key-value mechanism that rounds each value to + or - at random; + is likelier the nearer the value is to ``high``."""

    steps: Annotated[WholeField, Field(ge=1, lt=1 << 31)] = Field(
        1 << 20, description="number of equal steps from low to high; a value counts as the nearest"
    )

    def channel(self) -> KeyValue:
        """Return padding, sampling, rounding and response as one channel."""
        return KeyValue(len(self.keys), self.padding, self.response(), self.steps)

    def rounding(self) -> float:
        """Return half a step."""
        return 1.0 / self.steps


# Responses of the mechanisms for means, on an interval scaled to [-1, 1], and the numbers that their reports stand for.


def pieces(epsilon: float, bins: int, share: int = TOTAL, *, outside: bool = True) -> Weights:
    """Return the weights of the piecewise mechanism: a row for the centre of each bin, a column for each bin of [-C, C].

    With z = e^(epsilon/2): C = (z+1)/(z-1), and the high density covers [(C+1)x/2 - (C-1)/2, (C+1)x/2 + (C-1)/2]. Each row sums
    to ``share``. Without ``outside``, there is no low density: bins that are not covered have the weight 1.
    """
    reach = 1 / np.tanh(epsilon / 4)
    width, first = (reach - 1) / (2 * reach) * bins, (reach + 1) / (4 * reach)
    return Window.of(bins, float(np.expm1(epsilon)) if outside else 2.0**64, float(width), float(first), share).weights()


def piece_readings(epsilon: float, bins: int) -> NDArray[np.float64]:
    """Return the centres of the bins of [-C, C], where -1 counts as 0 and 1 as 1."""
    return np.asarray(_centres(bins) / np.tanh(epsilon / 4) / 2 + 0.5)


def roundings(epsilon: float, bins: int, share: int = TOTAL) -> Weights:
    """Return the weights of the lower and the upper report of stochastic rounding for the centre of each bin.

    Each row sums to ``share``.
    """
    return two_reports(bins, int(share * (0.5 + (1 - 1 / bins) * np.tanh(epsilon / 2) / 2)), share)


def rounding_readings(epsilon: float) -> NDArray[np.float64]:
    """Return -C and C, C = (e^epsilon + 1)/(e^epsilon - 1), where -1 counts as 0 and 1 as 1."""
    return np.asarray(np.array([-1.0, 1.0]) / np.tanh(epsilon / 2) / 2 + 0.5)


def _centres(bins: int) -> NDArray[np.float64]:
    return np.asarray((2 * np.arange(bins) + 1) / bins - 1)


class RowMechanism(Mechanism):
    """A mechanism over structs: an implementation sets ``name``. Each column keeps its rules for NULL and for other values."""

    # The list is empty: only its type matters. The subscript keeps CREATE MACRO from binding what does not exist yet.
    sql_domain = f"""from_json('[]', '[' || {ROW_VALUES}(["columns"][1]) || ']')"""
    sql_reports = f"""{{'{RowReports.mark}': {ROW_REPORTS}(["columns"][1])}}"""
    single: ClassVar[bool] = False  # whether each row reports one column, drawn at random
    columns: PartsField = Field(description="the mechanism of each column, by its name")
    nulls: ClassVar[None] = None  # type: ignore[misc]  # the mechanisms of the columns have these rules
    outside: ClassVar[None] = None  # type: ignore[misc]

    def values(self) -> Product:
        """Return the rows of one value of each column."""
        return self._row.values

    def alphabet(self) -> RowReports:
        """Return the rows of one report of each column."""
        return self._row.reports

    def claim(self) -> Claim:
        """Return the sum of the columns' epsilons, and of their deltas; the largest if one column is reported."""
        return self._row.certificate.claim

    def channel(self) -> Rows:
        """Return the channels of the columns, side by side."""
        return self._row.channel

    @property
    def _row(self) -> CertifiedRow:
        """What `certify` made of the columns: no code of this class runs there."""
        return cast("CertifiedRow", certify(self))

    @classmethod
    def arranged(cls, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Return named values of a call, with mechanisms under the names of columns gathered in ``columns``."""
        columns = {name: value for name, value in keywords.items() if _is_mechanism(value)}
        rest = {name: value for name, value in keywords.items() if name not in columns}
        return {**rest, **({"columns": columns} if columns else {})}


class JointMechanism(Mechanism):
    """An epsilon-LDP mechanism over the cells of a table: an implementation adds ``name`` and `channel`.

    If reports are not rows, it also sets `alphabet` and ``sql_reports``. The table is never listed.
    """

    sql_domain = RowMechanism.sql_domain
    sql_reports = RowMechanism.sql_reports
    epsilon: EpsilonField = Field(description="privacy parameter of the whole row")
    columns: ProductField = Field(description="the values of each column, by its name; together at most 16,777,216 rows")
    nulls: ClassVar[None] = None  # type: ignore[misc]  # a value that stands for NULL belongs to a column
    outside: ClassVar[None] = None  # type: ignore[misc]

    def values(self) -> Product:
        return self.columns

    def layout(self) -> tuple[int, ...]:
        """Return (): rows have no neighbours."""
        return ()


def _is_mechanism(value: Any) -> bool:
    named = isinstance(value, Mapping) and isinstance(value.get(Mechanism.kind), str)
    return isinstance(value, Nested | Mechanism) or named
