"""The base classes of operators for responses to sets of pairs."""

from __future__ import annotations

from abc import abstractmethod

from ldpsql.channels import Floats
from ldpsql.inference.operators.base import Operator


class PairOperator(Operator):
    """The likelihood of a `PairResponse`: its values are the symbols of keys."""

    @abstractmethod
    def shown(self, w: Floats) -> Floats:
        """Return the weight of the reports that show each sign or number of each key, from the weights of all reports."""


class NamedOperator(PairOperator):
    """An operator whose reports each name one value, in the order of the values."""

    def shown(self, w: Floats) -> Floats:
        """Return the weights themselves."""
        return w
