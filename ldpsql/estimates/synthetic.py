"""Rows that are drawn from an estimate, for tools that need rows."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.channels.randomness import Words, random_words
from ldpsql.domains.columns import family
from ldpsql.errors import InvalidParameter
from ldpsql.errors.boundary import withheld
from ldpsql.estimates.estimate import Estimate
from ldpsql.inference.operators import Floats

MOST_ROWS = 100_000_000
OF_ESTIMATES = ("estimate", "std_error", "low", "high", "n")  # columns of an estimate that are not values
_EXAMPLE = "FROM ldp.synthesize(shares, 1000), where shares is a table or a CTE: FROM ldp.margin(reports, report, m)"


@withheld
def synthesize(estimate: Estimate | pa.Table, rows: int) -> pa.Table:
    """Return rows that are drawn from an estimate, in random order: a column for each variable, in its own type.

    A value that has a share s occurs in s times ``rows`` of them, rounded up or down at random; negative shares count as zero.
    Nothing but the estimate is read, so the rows spend no epsilon. They are not reports: do not estimate from them again.

    Args:
        estimate: an estimate, or a table of one or several groups as SQL returns it, with the column ``estimate``. If it has a
            column ``n``, groups occur as often as they have reports.
        rows: how many, at most 100,000,000.

    Raises:
        InvalidParameter: unless it is an estimate, and ``rows`` such a number.

    """
    table = _flat(estimate.to_arrow()) if isinstance(estimate, Estimate) else estimate
    if not isinstance(table, pa.Table):
        raise InvalidParameter("synthetic rows are drawn from an estimate, or from a table of one", "ldpsql.estimate(...)")
    drawn = drawn_cells(weights(table.to_struct_array().combine_chunks()), rows)
    kept = [name for name in table.column_names if name.lower() not in OF_ESTIMATES]
    return table.select(kept).take(pa.array(drawn))


def _flat(table: pa.Table) -> pa.Table:
    """Return a table with a column for each variable."""
    if not pa.types.is_struct(table.schema.field("value").type):
        return table
    values = table.column("value").combine_chunks()
    columns = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
    return pa.table({**columns, "estimate": table.column("estimate")})


def weights(rows: pa.StructArray) -> Floats:
    """Return how many reports each row of an estimate stands for, up to a factor."""
    names = {field.name: place for place, field in enumerate(rows.type)}
    if "estimate" not in names:
        raise InvalidParameter("synthetic rows are drawn from an estimate: a table with a column estimate", _EXAMPLE)
    if any(names.get(name, len(names)) < names["estimate"] for name in OF_ESTIMATES[1:]):
        raise InvalidParameter(
            f"a variable has the name of a column of estimates: one of {', '.join(OF_ESTIMATES)}",
            "rename it: SELECT * RENAME (n AS number) FROM shares",
        )
    factors = [rows.field(name) for name in ("estimate", "n") if name in names]
    if any(family(factor.type) != "number" for factor in factors):
        raise InvalidParameter("the columns estimate and n of an estimate must be numbers", _EXAMPLE)
    each = reduce(pc.multiply, [factor.cast(pa.float64()) for factor in factors])
    out = np.maximum(each.to_numpy(zero_copy_only=False), 0.0)
    if not np.isfinite(out).all() or not out.sum() > 0:
        raise InvalidParameter("there are no rows to draw if a share is NULL, or if none is above zero", _EXAMPLE)
    return out


def drawn_cells(of: Floats, rows: int, words: Words = random_words) -> NDArray[np.int64]:
    """Return positions, each in proportion to its weight up to one, in random order.

    Source: Madow, "On the theory of systematic sampling, II", Annals of Mathematical Statistics 1949: cells in random order
    are laid on a line, and one offset decides where all of the evenly spaced draws fall.

    Raises:
        InvalidParameter: unless ``rows`` is a whole number up to the limit.

    """
    if type(rows) is not int or not 0 <= rows <= MOST_ROWS:
        raise InvalidParameter(f"rows must be a whole number from 0 to {MOST_ROWS:,}", _EXAMPLE)
    order = np.argsort(words(len(of)), kind="stable")
    ends = of[order].cumsum() / of.sum() * rows
    ends[-1] = rows
    offset = float(words(1)[0] >> np.uint64(40)) / 2**24  # below 1, and exact when it is added to the largest end
    counts = np.diff(np.floor(np.minimum(ends, rows) + offset), prepend=0.0).astype(np.int64)
    drawn = np.repeat(order, counts)
    return drawn[np.argsort(words(len(drawn)), kind="stable")]
