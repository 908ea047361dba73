"""Channels as linear maps, for estimation: one structure a file, beside its sampler in `ldpsql.channels`."""

from ldpsql.operators.base import DenseOperator, Floats, Operator, operator
from ldpsql.operators.geometric import GeometricOperator, SquareGeometricOperator
from ldpsql.operators.keep_or_spread import KeepOrSpreadOperator
from ldpsql.operators.keep_or_window import KeepOrWindowOperator
from ldpsql.operators.merged import MergedOperator, merged
from ldpsql.operators.mixed_keep_or_spread import MixedKeepOrSpreadOperator, stacked
from ldpsql.operators.plane import PlaneOperator
from ldpsql.operators.product import ProductOperator
from ldpsql.operators.signed_bits import SignedOperator
from ldpsql.operators.stack import StackOperator
from ldpsql.operators.supports import SupportOperator, collapsed, observed, packed

__all__ = [
    "DenseOperator",
    "Floats",
    "GeometricOperator",
    "KeepOrSpreadOperator",
    "KeepOrWindowOperator",
    "MergedOperator",
    "MixedKeepOrSpreadOperator",
    "Operator",
    "PlaneOperator",
    "ProductOperator",
    "SignedOperator",
    "SquareGeometricOperator",
    "StackOperator",
    "SupportOperator",
    "collapsed",
    "merged",
    "observed",
    "operator",
    "packed",
    "stacked",
]
