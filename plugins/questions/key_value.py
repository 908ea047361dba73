"""Key-value data: the frequency and the mean of every key, the distribution of its values, and a diagnosis of the sets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ldpsql.mechanisms import KeyValueMechanism, Mechanism, certify
from ldpsql.pairs import ROW, SetDiagnosis, estimate_densities, estimate_key_value
from ldpsql.questions import (
    INV,
    Asked,
    Domain,
    GroupedCounts,
    InvalidParameter,
    Kind,
    Lines,
    Question,
    Source,
    check_single,
    fields_of,
    hookimpl,
    likelihoods,
)


@dataclass(frozen=True)
class _OfPairs(Question):
    """A question about the keys of sets of pairs."""

    def about(self, values: Domain) -> None:
        """Return nothing: it is about all keys."""

    @classmethod
    def values(cls, source: Source) -> Any:
        """Return the keys.

        Raises:
            InvalidParameter: if the reports are not of sets of pairs.

        """
        if not isinstance(source, KeyValueMechanism):
            remedy = certify(source).remedy if isinstance(source, Mechanism) else "ask about the reports of each level"
            raise InvalidParameter("these are not reports of sets of pairs", remedy)
        return source.values().listed

    @classmethod
    def estimator(cls, source: Source) -> str:  # noqa: ARG003
        """Return the inversion, which is unbiased."""
        return INV

    @classmethod
    def estimated(cls, asked: Asked, counts: GroupedCounts) -> Iterator[tuple[Any, Lines]]:
        """Yield the answers for all groups.

        Raises:
            InvalidParameter: if rows have weights.

        """
        check_single(asked.estimator)
        if counts.weights is not None:
            raise InvalidParameter("reports of sets of pairs are estimated without weights", "leave out weight")
        for groups, likelihood in likelihoods(asked.source, counts):
            yield groups, cls.of_likelihood(asked, likelihood)

    @classmethod
    @abstractmethod
    def of_likelihood(cls, asked: Asked, likelihood: Any) -> Lines:
        """Return the answers for the groups of a likelihood."""


@dataclass(frozen=True)
class FrequenciesAndMeans(_OfPairs):
    """The frequency and the mean of every key."""

    name = "key_value"
    summary = "frequency and mean of every key, with errors and intervals"
    fields = {"key": Kind.VALUE, **dict.fromkeys(ROW, Kind.NUMBER)}
    rows = True

    @classmethod
    def of_likelihood(cls, asked: Asked, likelihood: Any) -> Lines:
        """Return a line for each key."""
        numbers = estimate_key_value(asked.source, likelihood, asked.estimator).rows()
        return Lines.of_numbers(
            {"key": np.arange(numbers.shape[1]), **dict(zip(ROW, np.moveaxis(numbers, -1, 0), strict=True))}
        )


@dataclass(frozen=True)
class TrustInSets(_OfPairs):
    """Whether sets seem larger than the padding."""

    name = "key_value_diagnose"
    summary = "share of dummies, whether sets seem larger than the padding, and goodness of fit"
    fields = fields_of(SetDiagnosis)
    options = {"estimator": "NULL"}

    @classmethod
    def of_likelihood(cls, asked: Asked, likelihood: Any) -> Lines:
        """Return the diagnosis of every group."""
        estimates = estimate_key_value(asked.source, likelihood, asked.estimator)
        return Lines.of_records(cls.fields, [[asdict(estimates[group].sets)] for group in range(len(likelihood.n))])


@dataclass(frozen=True)
class Densities(_OfPairs):
    """The distribution of the values of every key."""

    name = "key_value_density"
    summary = "distribution of the values of every key, for pckv_pm"
    fields = {"key": Kind.VALUE, "value": Kind.NUMBER, "share": Kind.NUMBER}
    rows = True
    options = {"estimator": "'ibu'"}

    @classmethod
    def of_likelihood(cls, asked: Asked, likelihood: Any) -> Lines:
        """Return a line for each bin of each key."""
        centres, shares = estimate_densities(asked.source, likelihood, asked.estimator)
        groups, keys, bins = shares.shape
        key, value = np.repeat(np.arange(keys), bins), np.tile(centres, keys)
        return Lines.of_numbers({"key": key, "value": value, "share": shares.reshape(groups, -1)})


@hookimpl
def ldpsql_questions() -> list[type[Question]]:
    """Offer the three."""
    return [FrequenciesAndMeans, TrustInSets, Densities]
