"""Channels as linear maps, for estimation: by structure, as the samplers in `ldpsql.channels`."""

from ldpsql.channels import Floats, Ints
from ldpsql.inference.operators.base import Ends, Operator, PairOperator, Ranges, operator
from ldpsql.inference.operators.dense import BlocksOperator, DenseOperator, StepsOperator
from ldpsql.inference.operators.keep_or_spread import (
    KeepOrSpreadOperator,
    KeepOrWindowOperator,
    MixedKeepOrSpreadOperator,
    stacked,
)
from ldpsql.inference.operators.kronecker import MOST_REPORTS, KhatriRaoOperator, KroneckerOperator, ObservedColumn, Unreported
from ldpsql.inference.operators.levels import ExtendedOperator, LevelsOperator, MergedOperator, MergedSupportOperator, merged
from ldpsql.inference.operators.noise import GeometricOperator, PlaneOperator, SquareGeometricOperator
from ldpsql.inference.operators.orthogonal import CharacterOperator, ListedOperator
from ldpsql.inference.operators.product import ProductOperator, StackOperator
from ldpsql.inference.operators.supports import (
    BinOperator,
    SignedOperator,
    SupportOperator,
    check_number,
    collapsed,
    observed,
    packed,
)

__all__ = [
    "MOST_REPORTS", "BinOperator", "BlocksOperator", "CharacterOperator", "DenseOperator", "Ends", "ExtendedOperator",
    "Floats",
    "GeometricOperator", "Ints", "KeepOrSpreadOperator", "KeepOrWindowOperator", "KhatriRaoOperator", "KroneckerOperator",
    "LevelsOperator", "ListedOperator", "MergedOperator", "MergedSupportOperator", "MixedKeepOrSpreadOperator",
    "ObservedColumn", "Operator", "PairOperator", "PlaneOperator", "ProductOperator", "Ranges", "SignedOperator",
    "SquareGeometricOperator", "StackOperator", "StepsOperator", "SupportOperator", "Unreported", "check_number", "collapsed",
    "merged", "observed", "operator", "packed", "stacked",
]  # fmt: skip
