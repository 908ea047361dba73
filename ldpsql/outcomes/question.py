"""Questions about raw columns next to a perturbed one: their rows, or the sums of these, are read instead of counts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ldpsql.domains.domain import Domain
from ldpsql.domains.product import Product
from ldpsql.errors import InvalidParameter
from ldpsql.estimates.conditions import named_place
from ldpsql.estimates.question import NULL, Argument, Asked, Lines, Question, Source
from ldpsql.inference.operators import Ints
from ldpsql.mechanisms.base import Mechanism
from ldpsql.names import BEST
from ldpsql.outcomes.by_value import Corrected
from ldpsql.outcomes.corrected import columns_of

OUTCOME = "outcome"


@dataclass(frozen=True, kw_only=True)
class QuestionOfOutcome(Question):
    """A question about a raw column by the values of a perturbed one, the only one or ``of``, which is answered from sums."""

    raw: ClassVar[Mapping[str, str | None]] = {OUTCOME: None}
    typed_by = "of"
    of: Argument = NULL

    @abstractmethod
    def of_sums(self, sums: Corrected, asked: Asked) -> Lines:
        """Return the answer for one group.

        Args:
            sums: sums of weights and outcomes by value.
            asked: the question with the estimator, and with the values as ``unit``.

        """

    def about(self, values: Domain) -> tuple[QuestionOfOutcome, tuple[int, ...]]:
        """Return the question, and the place of its column in a table."""
        return self, self._places(values)

    def unit(self, values: Domain) -> Domain:
        return values.parts[self._places(values)[0]] if isinstance(values, Product) else values

    def _places(self, values: Domain) -> tuple[int, ...]:
        place = named_place(values, self.of)
        return () if place is None else (place,)

    def check(self, source: Source) -> None:
        """Refuse reports of mechanisms by level, and values that are not listed or too many."""
        columns_of(one_mechanism(source), self._places(self.values(source)))

    @classmethod
    def estimator(cls, source: Source) -> str:  # noqa: ARG003
        """Return the one with the smallest errors."""
        return BEST

    @classmethod
    def estimated(cls, asked: Asked, counts: Any) -> Iterator[tuple[Ints, Lines]]:
        """Yield the answer for each group whose rows have weight; ``counts`` are rows or their sums."""
        question, places = asked.functional
        for each in counts.sums().each():
            sums = Corrected.of(asked.source, places, each)
            if sums is not None:
                yield each.groups, question.of_sums(sums, asked)


def one_mechanism(source: Source) -> Mechanism:
    """Return what drew reports if it is one mechanism.

    Raises:
        InvalidParameter: if there is one for each level.

    """
    if not isinstance(source, Mechanism):
        raise InvalidParameter("raw columns are asked of the reports of one mechanism", "ask about the reports of each level")
    return source
