"""What is asked about numbers in order or about the cells of a grid, as linear functionals of the shares of the values."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import numpy as np

from ldpsql.errors import InvalidParameter
from ldpsql.inference.operators import Floats

MOST_STEPS = 1 << 20
FEW = 1024  # values, up to which it costs little to ask for many ranges
_RANGES = 100
_GRID = "for 16 rows of 24 cells: 384 values, width 24"
_SIDES = np.array([0.856675, 0.733892, 0.628707, 0.538597])  # whose multiples, modulo 1, spread evenly in four dimensions


class PlanQuestion(StrEnum):
    """What is asked about numbers, or about the cells of a grid."""

    MEAN = "mean"
    DISTRIBUTION = "distribution"
    RANGES = "ranges"
    QUANTILES = "quantiles"
    RECTANGLES = "rectangles"


class Asked(NamedTuple):
    """A question, one of `PlanQuestion`, that so many reports are to answer about so many numbers in order.

    For rectangles it is about so many cells of a grid, ``width`` cells to a row. ``shares`` are those of the values of an
    example, shape (steps,); see `ldpsql.estimates.example`.
    """

    question: str
    reports: int
    steps: int
    width: int | None = None
    shares: Floats | None = None

    def checked(self) -> None:
        """Refuse what no plan answers.

        Raises:
            InvalidParameter: if the question is another, or there are too few or too many numbers, cells or reports.

        """
        if self.question not in list(PlanQuestion):
            questions = ", ".join(PlanQuestion)
            raise InvalidParameter(f"a plan answers one of these questions: {questions}", "the median is one of the quantiles")
        if not 2 <= self.steps <= MOST_STEPS or self.reports < 1:
            raise InvalidParameter(f"a plan needs a report and from 2 to {MOST_STEPS:,} values", "for example 100000 and 101")
        if (self.question == PlanQuestion.RECTANGLES) != (self.width is not None):
            raise InvalidParameter("a plan for rectangles, and no other, needs the width of the grid", _GRID)
        if self.width is not None and self.shares is not None:
            raise InvalidParameter("an example is a column of numbers, and rectangles have two", "leave out the example")
        if not self._is_grid():
            raise InvalidParameter(
                f"{self.steps:,} values in rows of {self.width:,} make no grid of two or more full rows of two or more cells",
                _GRID,
            )

    def _is_grid(self) -> bool:
        return self.width is None or (2 <= self.width <= self.steps // 2 and self.steps % self.width == 0)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values, or of rows and columns."""
        return (self.steps,) if self.width is None else (self.steps // self.width, self.width)

    def functionals(self, inputs: int | None = None) -> Floats:
        """Return the functionals of the values that are asked for, shape (values, functionals).

        Args:
            inputs: how many values a mechanism has, whose bins may be fewer than the numbers; None: about a thousand at most,
                spread over the range or the grid.

        """
        if self.width is None:
            return on_a_line(PlanQuestion(self.question), places(inputs or min(self.steps, FEW)))
        most = self.steps if inputs else round(FEW**0.5)
        rows, columns = (places(min(size, most)) for size in self.shape)
        return _on_a_grid(rows, columns)


def places(count: int) -> Floats:
    """Return the places of the values on a scale from 0 to 1."""
    return np.linspace(0.0, 1.0, count)


def models(u: Floats) -> tuple[Floats, Floats]:
    """Return a smooth distribution over these places, and one in which a third of all people have one value."""
    smooth = u * (1 - u) ** 3 + 1e-3
    smooth /= smooth.sum()
    spiked = 2 / 3 * smooth
    spiked[round(0.3 * (len(u) - 1))] += 1 / 3
    return smooth, spiked


def on_a_line(question: PlanQuestion, u: Floats) -> Floats:
    """Return the functionals that a question is about, shape (places, functionals)."""
    if question is PlanQuestion.MEAN:
        return u[:, None]
    if question is PlanQuestion.RANGES:
        few = _RANGES if len(u) <= FEW else _RANGES // 10
        one, other = (np.arange(1, few + 1) * step % 1.0 for step in (0.618034, 0.754878))  # spread evenly
        low, high = np.minimum(one, other), np.maximum(one, other)
        return ((u[:, None] >= low) & (u[:, None] <= high)).astype(np.float64)
    ends = np.linspace(0.0, 1.0, 18)[1:-1] if question is PlanQuestion.DISTRIBUTION else _quartiles()[0]
    return (u[:, None] <= ends).astype(np.float64)


def _on_a_grid(rows: Floats, columns: Floats) -> Floats:
    """Return which cells of a grid lie in each of some rectangles, whose sides are spread evenly."""
    few = _RANGES if len(rows) * len(columns) <= FEW else _RANGES // 10
    ends = np.arange(1, few + 1)[:, None] * _SIDES % 1.0
    south, north, west, east = np.concatenate([np.sort(ends[:, :2]), np.sort(ends[:, 2:])], axis=1).T
    inside = [(u[:, None] >= low) & (u[:, None] <= high) for u, low, high in ((rows, south, north), (columns, west, east))]
    return (inside[0][:, None] & inside[1]).reshape(-1, few).astype(np.float64)


def _quartiles() -> tuple[Floats, Floats]:
    """Return the quartiles of the smooth model, and its density there."""
    u = places(FEW)
    smooth = models(u)[0]
    at = np.searchsorted(smooth.cumsum(), [0.25, 0.5, 0.75])
    return u[at], smooth[at] * len(u)


def in_steps(asked: Asked, squared: Floats) -> float:
    """Return the error of the answer from the mean squared errors of the functionals; that of a share for ranges."""
    match PlanQuestion(asked.question):
        case PlanQuestion.RANGES | PlanQuestion.RECTANGLES:
            return float(np.sqrt(squared.mean()))
        case PlanQuestion.QUANTILES:
            return float(np.sqrt((squared / _quartiles()[1] ** 2).mean())) * (asked.steps - 1)
        case PlanQuestion.DISTRIBUTION:
            return float(np.sqrt(2 / np.pi * squared).mean()) * (asked.steps - 1)  # E|N| = s sqrt(2/pi)
        case PlanQuestion.MEAN:
            return float(np.sqrt(squared[0])) * (asked.steps - 1)
