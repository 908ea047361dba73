"""How far the distribution of the values is from another one, such as that of a census."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ldpsql.questions import (
    Argument,
    Domain,
    Estimates,
    InvalidParameter,
    Kind,
    Lines,
    Question,
    distance,
    hookimpl,
    python_value,
)


class Away(NamedTuple):
    """The shares to compare with, one for each value, and the name of the distance."""

    shares: tuple[float, ...]
    metric: str


@dataclass(frozen=True)
class DistanceToShares(Question):
    """The distance of the estimated shares from known ones: one for each value, or rows of a table."""

    name = "distance"
    summary = "the distance of the estimated shares from known ones, such as those of a table"
    fields = {"distance": Kind.NUMBER}
    options = {"estimator": "NULL"}
    shares: Argument
    metric: Argument = pa.scalar("total_variation")

    def about(self, values: Domain) -> Away:
        """Return the known shares; a value without a row has none.

        Raises:
            InvalidParameter: if they are not a share for each value, or rows with a value and its share.

        """
        known = self.shares.values if isinstance(self.shares, pa.ListScalar) and self.shares.is_valid else pa.nulls(0)
        if pa.types.is_struct(known.type) and known.type.num_fields == 2:
            places, numbers = values.locate(known.field(0)), known.field(1)
            if places.null_count or len(places.unique()) < len(places):
                raise InvalidParameter("each row needs another value of the domain", _HINT)
        else:
            places, numbers = pa.array(np.arange(len(known))), known
        shares = np.zeros(len(values))
        if (len(numbers) != len(shares) and numbers is known) or not _are_numbers(numbers):
            raise InvalidParameter("the known shares must be one for each value, or rows with a value and its share", _HINT)
        shares[places.to_numpy()] = numbers.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return Away(tuple(shares.tolist()), str(python_value(self.metric)))

    @classmethod
    def measured(cls, functional: Away, estimates: Estimates) -> Lines:
        """Return the distance of every group."""
        source: Any = getattr(estimates.source, "mechanism", estimates.source)
        away = [distance(functional.metric, theta, functional.shares, source) for theta in estimates.fit.theta]
        return Lines.of_numbers({"distance": np.array(away)})


_HINT = "shares := [0.5, 0.3, 0.2], or shares := (SELECT list({value: city, share: share}) FROM census)"


def _are_numbers(column: pa.Array) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return not column.null_count and any(kind(column.type) for kind in kinds)


@hookimpl
def ldpsql_questions() -> list[type[Question]]:
    """Offer the distance."""
    return [DistanceToShares]
