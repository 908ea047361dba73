"""The unbiased correction of sums by report: what they would be by value, as the inverse of the channel says.

Report z contributes Q(z, k) of its sums to the value k. Q is the least-squares inverse of the channel, so the expectation of
the corrected sums are the sums over the rows with the value k, whatever the other columns are: the channel sees the value only.
"""

from __future__ import annotations

from itertools import chain
from math import prod

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Floats
from ldpsql.domains.composite import Product
from ldpsql.domains.domain import Domain
from ldpsql.errors import IllConditioned, InvalidParameter
from ldpsql.estimates.conditions import groups_of, scale_of
from ldpsql.inference.counting import certified_operator, least_squares, listed_positions, observed_column, possible
from ldpsql.inference.operators.base import MAX_CONDITION
from ldpsql.mechanisms.base import CertifiedMechanism, CertifiedRow, CertifiedValues, Mechanism, certify
from ldpsql.reports import NumberedReports, impossible

MOST_VALUES = 1024
_BIAS = 1e-3  # of a number, relative to the range of the values
CUT = 1e-3  # relative to the largest singular value


def _smooth_inverse(certified: CertifiedMechanism) -> Floats:
    return np.asarray(np.linalg.pinv(certified.derived(certified_operator).matrix(), rcond=CUT), dtype=np.float64)


def columns_of(mechanism: Mechanism, places: tuple[int, ...]) -> tuple[Domain, ...]:
    """Return the domains of some columns of a row, or that of the only column if no places are given."""
    certified = certify(mechanism)
    if not isinstance(certified, CertifiedRow | CertifiedValues) or not isinstance(certified.values, Domain):
        raise InvalidParameter("outcomes need a mechanism over listed values", "such as krr, oue, olh or square_wave")
    columns: tuple[Domain, ...] = (certified.values,)
    if isinstance(certified.values, Product):
        if not places:
            raise InvalidParameter("these reports are of several columns", "name the one to use: of := 'city'")
        columns = tuple(certified.values.parts[place] for place in places)
    values = prod(map(len, columns))
    if values > MOST_VALUES:
        raise InvalidParameter(
            f"there are {values} values, and outcomes are computed for at most {MOST_VALUES}", "perturb a coarser column"
        )
    return columns


def contributions(
    mechanism: Mechanism, places: tuple[int, ...], reports: pa.Array, *, strict: bool = True
) -> tuple[NDArray[np.int64], Floats]:
    """Return which reports name the columns, and Q(z, k) of these for all values k, shape (reports, values).

    The values of several columns are their combinations, the last column fastest.

    Args:
        mechanism: what drew the reports.
        places: the places of the columns if the reports are rows, of which some may be NULL there.
        reports: the reports.
        strict: whether to refuse a channel whose inverse drowns shares in noise. If not, singular values below `CUT` are left
            out: means of smooth functions of the values need only the others.

    Raises:
        ImpossibleReport: if a report cannot occur.
        IllConditioned: if the channel has no useful inverse.

    """
    columns, certified = columns_of(mechanism, places), certify(mechanism)
    if not possible(mechanism, reports).all():
        raise impossible()
    if isinstance(certified, CertifiedRow):
        named = list(certified.reports.fields(reports))
        fields, parts = [named[place] for place in places], [certified.parts[place] for place in places]
    else:
        fields, parts = [reports], [certified] if isinstance(certified, CertifiedValues) else []
    there = np.flatnonzero(np.logical_and.reduce([field.is_valid().to_numpy(zero_copy_only=False) for field in fields]))
    out = np.ones((len(there), 1))
    for part, field in zip(parts, fields, strict=True):
        if not len(there):
            return there, np.zeros((0, prod(map(len, columns))))
        own = observed_column(part, field.take(pa.array(there)), least_squares if strict else _smooth_inverse)
        if strict and not own.condition <= MAX_CONDITION:
            message = f"the channel has condition number {own.condition:.3g}, too large to invert"
            raise IllConditioned(message, "perturb fewer, coarser values", condition=own.condition)
        out = (out[:, :, None] * own.pull.T[:, None, :]).reshape(len(there), -1)
    if isinstance(certified.values, Product) and not isinstance(certified, CertifiedRow):
        # One mechanism over all columns together: the values of the others are added up.
        out = out @ (groups_of(certified.values, places)[1][:, None] == np.arange(prod(map(len, columns))))
    return there, out


def unbiased(mechanism: Mechanism, reports: pa.Array) -> tuple[NDArray[np.int64], Floats]:
    """Return which reports are not NULL, and a number for each of these, whose expectation is the value behind it.

    Args:
        mechanism: what drew the reports; its values are numbers, or dates in days and times in seconds since 1970.
        reports: the reports.

    Raises:
        IllConditioned: if no such number exists.

    """
    (values,), certified = columns_of(mechanism, ()), certify(mechanism)
    x = scale_of(values)
    if isinstance(certified, CertifiedValues) and isinstance(certified.reports, Domain | NumberedReports):
        if not possible(mechanism, reports).all():
            raise impossible()
        numbers, there = certified.derived(_readings), np.flatnonzero(reports.is_valid().to_numpy(zero_copy_only=False))
        return there, numbers[listed_positions(certified, reports.take(pa.array(there)))]
    there, q = contributions(mechanism, (), reports)
    return there, q @ x


def _readings(certified: CertifiedMechanism) -> Floats:
    """Return for each report that can be listed a number whose expectation is the value, to a thousandth of their range."""
    (values,), table = columns_of(certified.mechanism, ()), certified.derived(certified_operator).matrix()
    x, own = scale_of(values), certified.mechanism.readings()
    # Those of the mechanism count from the lower end of the first bin; few singular values have less noise and more bias.
    known = [] if own is None or own.shape != (table.shape[1],) else [x[0] + np.ptp(x) * (own * len(x) - 0.5) / (len(x) - 1)]
    inverted = (np.linalg.pinv(table, rcond=cut) @ x for cut in (CUT, 1e-4, 1e-5, 1e-6))
    for numbers in chain(known, inverted):
        if np.abs(table @ numbers - x).max() <= _BIAS * np.ptp(x):
            return np.asarray(numbers)
    raise IllConditioned("these reports have no unbiased numbers", "use fewer bins, or a larger epsilon")
