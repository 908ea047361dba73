"""Any channel whose reports can be listed, as its table of probabilities."""

from __future__ import annotations

from functools import cached_property

from ldpsql.channels import Floats, TableChannel
from ldpsql.inference.operators.base import Operator, operator
from ldpsql.inference.operators.weights import Bounding, hazy_weights


class DenseOperator(Operator):
    """Any channel, as its table of probabilities."""

    def __init__(self, table: Floats) -> None:
        self._table = table
        self.inputs, self.outputs = table.shape

    def forward(self, theta: Floats) -> Floats:
        """Return P(report) under theta."""
        return theta @ self._table

    def adjoint(self, w: Floats) -> Floats:
        """Return sum_z a_xz w_z."""
        return w @ self._table.T

    def matrix(self) -> Floats:
        """Return P(report | value)."""
        return self._table

    @cached_property
    def bounding_weights(self) -> Bounding | None:
        """The weights that bound functionals, if the channel hardly distinguishes neighbouring values."""
        return hazy_weights(self)


@operator.register
def _(channel: TableChannel) -> Operator:
    return DenseOperator(channel.probabilities())
