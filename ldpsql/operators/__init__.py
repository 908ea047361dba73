"""Channels as linear maps, for estimation: one structure a file, beside its sampler in `ldpsql.channels`."""

from ldpsql.operators.base import DenseOperator, Floats, Operator, operator
from ldpsql.operators.keep_or_spread import KeepOrSpreadOperator
from ldpsql.operators.product import ProductOperator
from ldpsql.operators.stack import StackOperator
from ldpsql.operators.supports import SupportOperator

__all__ = [
    "DenseOperator",
    "Floats",
    "KeepOrSpreadOperator",
    "Operator",
    "ProductOperator",
    "StackOperator",
    "SupportOperator",
    "operator",
]
