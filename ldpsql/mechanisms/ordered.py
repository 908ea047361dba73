"""Mechanisms over very many ordered values: numbers by bins or steps, dates and times by units."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, model_validator

from ldpsql.channels.levels import MOST_LEAVES
from ldpsql.domains.domain import Domain
from ldpsql.domains.moments import UNITS, Moments, text_in_utc
from ldpsql.domains.ranges import Bins, Steps, steps_to_bins
from ldpsql.errors import InvalidParameter
from ldpsql.mechanisms.families import NumberMechanism
from ldpsql.mechanisms.spec import EpsilonField, WholeField, number
from ldpsql.names import MOMENTS
from ldpsql.privacy.claims import Claim, PureLdp

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
        """Return the mechanism with both ends, the step and the bins of one kind.

        Raises:
            InvalidParameter: if they are not.

        """
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
        """Return the number of bins.

        Raises:
            InvalidParameter: if there are too many steps, and no number of bins to divide them among.

        """
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

    def claim(self) -> Claim:
        """Return epsilon-LDP."""
        return PureLdp(self.epsilon)

    def layout(self) -> tuple[int, ...]:
        """Return (values,): neighbours are close."""
        return (len(self.values()),)
