"""Axes: where a number lies along one, in percent of its length, and where its ticks are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor, log10

import numpy as np

from ldpsql.pages.document import Markup, tag
from ldpsql.pages.wording import number, percent

TICKS = 5  # at most so many, plus one: more labels would touch each other on a telephone

ROOM = 24  # characters of labels next to each other on a telephone; if there are more, every second one is left out


@dataclass(frozen=True)
class Axis:
    """The numbers from low to high along one side of a chart; ``form`` writes one, given the distance of ticks."""

    low: float
    high: float
    form: Callable[[float, float], str] = number
    log: bool = False
    marks: tuple[float, ...] = ()  # where its ticks are; by default at round numbers

    def at(self, value: float) -> float:
        """Return where a number lies, from 0 to 100; beyond an end, that end."""
        low, high, here = (_log(x) if self.log else x for x in (self.low, self.high, value))
        return float(np.clip(100 * (here - low) / ((high - low) or 1.0), 0.0, 100.0))

    def ticks(self) -> list[tuple[float, str]]:
        """Return places from 0 to 100 with their labels."""
        marks, step = (_decades(self.low, self.high), 0.0) if self.log else _round_numbers(self.low, self.high)
        marks = list(self.marks) or marks
        return [(self.at(mark), self.form(mark, step)) for mark in marks]


def shares(low: float, high: float) -> Axis:
    """Return an axis for shares that holds 0 and ends at a tick."""
    _, step = _round_numbers(min(low, 0.0), max(high, 1e-9))
    return Axis(step * floor(min(low, 0.0) / step + 1e-9), step * ceil(max(high, 1e-9) / step - 1e-9), percent)


def _round_numbers(low: float, high: float) -> tuple[list[float], float]:
    """Return multiples of 1, 2 or 5 times a power of ten, at most `TICKS` + 1 of them, and their distance."""
    rough = (high - low) / TICKS
    power = 10.0 ** floor(log10(rough)) if rough > 0 else 1.0
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    return [step * i for i in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)], step


def _decades(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten, or powers alone if these are many."""
    powers = range(floor(_log(low)), ceil(_log(high)) + 1)
    for factors in ((1, 2, 5), (1,)):
        marks = [factor * 10.0**power for power in powers for factor in factors]
        marks = [mark for mark in marks if low * (1 - 1e-9) <= mark <= high * (1 + 1e-9)]
        if len(marks) <= TICKS + 2:
            break
    return marks


def _log(value: float) -> float:
    return log10(max(value, 1e-300))


def across(axis: Axis) -> list[Markup]:
    """Return the lines and labels of an axis along the bottom."""
    ticks = axis.ticks()
    crowded = sum(len(label) for _, label in ticks) > ROOM
    labels = [_below(at, label, sparse=crowded and i % 2 == 1) for i, (at, label) in enumerate(ticks)]
    return [*(_line(x1=at, x2=at, y1=0, y2=100) for at, _ in ticks), *labels]


def upward(axis: Axis) -> list[Markup]:
    """Return the lines and labels of an axis along the left side."""
    return [
        part for at, label in axis.ticks() for part in (_line(x1=0, x2=100, y1=100 - at, y2=100 - at), _left(100 - at, label))
    ]


def _line(**ends: float) -> Markup:
    return tag("line", class_="grid", **{name: f"{end:.5g}%" for name, end in ends.items()})


def _below(at: float, label: str, *, sparse: bool) -> Markup:
    return tag("text", label, class_="below sparse" if sparse else "below", x=f"{at:.5g}%", y="100%", dy="1.75em")


def _left(at: float, label: str) -> Markup:
    return tag("text", label, class_="left", x="0", y=f"{at:.5g}%", dx="-.5em", dy=".35em")
