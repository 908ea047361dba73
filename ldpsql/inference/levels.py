"""Where the reports of one level come from: a mechanism, or the values themselves for people who publish them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import SetChannel
from ldpsql.domains.domain import Domain
from ldpsql.errors import ImpossibleReport
from ldpsql.inference.counting import likelihoods, operator_of, possible
from ldpsql.inference.counts import GroupedCounts
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import KeepOrSpreadOperator, Operator, SupportOperator, packed
from ldpsql.mechanisms.base import Mechanism, certify, certify_values
from ldpsql.reports import NumberedReports, WordReports, impossible

PAIRS = "declare one mechanism, and use ldp.key_value"


@dataclass(frozen=True)
class Unperturbed:
    """Values that people published as they are: in SQL ``ldp.krr('infinity', ...)``. Nothing draws such reports."""

    values: Domain
    epsilon = float("inf")
    outside: int | None = None

    @property
    def layout(self) -> tuple[int, ...]:
        """Return which values are neighbours, as the mechanisms do by default."""
        return (len(self.values),) if self.values.rising else ()

    def likelihoods(self, counts: GroupedCounts) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
        """Yield the likelihood of all groups."""
        operator, positions = self.columns(counts.reports)
        table = counts.table(positions, len(self.values))
        yield counts.groups, Likelihood(operator, table, self.layout, np.arange(len(self.values)))

    def possible(self, reports: pa.Array) -> NDArray[np.bool_]:
        """Return which reports are values."""
        return np.asarray(self.values.locate(reports).is_valid().to_numpy(zero_copy_only=False))

    def columns(self, reports: pa.Array) -> tuple[Operator, NDArray[np.int64]]:
        """Return the identity, and the position of the value that each report is.

        Raises:
            ImpossibleReport: if a report is not in the domain.

        """
        positions = self.values.locate(reports)
        if positions.null_count:
            raise ImpossibleReport("some reports that nothing perturbed are not in the domain", "declare all values that occur")
        size = len(self.values)
        return KeepOrSpreadOperator(size, 1.0, 0.0), positions.to_numpy(zero_copy_only=False).astype(np.int64)


@dataclass(frozen=True)
class Perturbed:
    """Reports that one mechanism over listed values drew."""

    mechanism: Mechanism

    def __post_init__(self) -> None:
        certify_values(self.mechanism, PAIRS)

    @property
    def name(self) -> str:
        """The name of the mechanism."""
        return self.mechanism.name

    @property
    def values(self) -> Domain:
        """The values of the mechanism."""
        return certify_values(self.mechanism, PAIRS).values

    @property
    def outside(self) -> int | None:
        """The position of the value that stands for all others, if there is one."""
        return certify_values(self.mechanism, PAIRS).outside_code

    @property
    def epsilon(self) -> float:
        """The realised epsilon of one report."""
        return certify(self.mechanism).epsilon

    @property
    def layout(self) -> tuple[int, ...]:
        """Return which values are neighbours."""
        return certify(self.mechanism).layout

    def likelihoods(self, counts: GroupedCounts) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
        """Yield the likelihoods of counts of reports."""
        return likelihoods(self.mechanism, counts)

    def possible(self, reports: pa.Array) -> NDArray[np.bool_]:
        """Return which reports the mechanism can give."""
        return possible(self.mechanism, reports)

    def columns(self, reports: pa.Array) -> tuple[Operator, NDArray[np.int64]]:
        """Return an operator that holds all of these reports, and the position of each among its columns.

        Raises:
            ImpossibleReport: if a report cannot occur under the mechanism.

        """
        certified = certify(self.mechanism)
        if not self.possible(reports).all():
            raise impossible()
        if isinstance(certified.reports, Domain):
            at = certified.reports.locate(reports).to_numpy(zero_copy_only=False)
            return operator_of(self.mechanism), at.astype(np.int64)
        if isinstance(certified.reports, NumberedReports):
            return operator_of(self.mechanism), certified.reports.positions(reports)
        if not isinstance(certified.response, SetChannel) or not isinstance(certified.reports, WordReports):
            raise impossible()
        words, number = np.unique(certified.reports.read(reports), axis=0, return_inverse=True)
        return SupportOperator(certified.response, packed(certified.response, words)), number.ravel()


Level: TypeAlias = Perturbed | Unperturbed
