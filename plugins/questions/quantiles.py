"""One quantile, the median, or several quantiles of numbers, dates or times."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ldpsql.questions import (
    NUMBERS,
    RANGE,
    Argument,
    Domain,
    InvalidParameter,
    Kind,
    Quantile,
    Question,
    QuestionOfColumn,
    hookimpl,
)

_VALUES = {**NUMBERS, **dict.fromkeys(RANGE, Kind.VALUE)}


@dataclass(frozen=True)
class OneQuantile(QuestionOfColumn):
    """The smallest value that at least a share q of all values does not exceed."""

    name = "quantile"
    of_ranges = True
    summary = "the value below which a share q of all values lies, with its interval"
    fields = _VALUES
    q: Argument

    def about(self, values: Domain) -> Quantile:
        """Return the quantile, of all or where the condition holds."""
        return Quantile(*self.where(values), q=_share(self.q))


@dataclass(frozen=True)
class Median(QuestionOfColumn):
    """The smallest value that at least half of all values do not exceed."""

    name = "median"
    of_ranges = True
    summary = "the value below which half of all values lie, with its interval"
    fields = _VALUES

    def about(self, values: Domain) -> Quantile:
        """Return the median, of all or where the condition holds."""
        return Quantile(*self.where(values), q=0.5)


@dataclass(frozen=True)
class SeveralQuantiles(QuestionOfColumn):
    """Several quantiles from one estimate, one for each share in the list qs."""

    name = "quantiles"
    of_ranges = True
    summary = "several quantiles from one estimate, a row for each of the shares in the list qs"
    fields = {"q": Kind.NUMBER, **_VALUES}
    rows = True
    qs: Argument

    def about(self, values: Domain) -> Quantile:
        """Return the quantiles, of all or where the condition holds."""
        if not isinstance(self.qs, pa.ListScalar | pa.LargeListScalar) or not self.qs.is_valid or not len(self.qs.values):
            raise InvalidParameter("this needs a list of shares between 0 and 1 that is not empty", "such as [0.25, 0.5, 0.75]")
        return Quantile(*self.where(values), q=tuple(map(_share, self.qs.values)))


def _share(share: Argument) -> float:
    number = pa.types.is_floating(share.type) or pa.types.is_decimal(share.type) or pa.types.is_integer(share.type)
    if not number or not share.is_valid:
        raise InvalidParameter("a quantile needs a share between 0 and 1", "for example 0.5 for the median")
    return float(share.as_py())


@hookimpl
def ldpsql_questions() -> list[type[Question]]:
    """Offer the three."""
    return [OneQuantile, Median, SeveralQuantiles]
