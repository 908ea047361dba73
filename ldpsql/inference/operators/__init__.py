"""Channels as linear maps, for estimation: one file for each structure, as for the samplers in `ldpsql.channels`."""

from ldpsql.channels import Floats, Ints
from ldpsql.inference.operators.base import Operator, PairOperator, operator
from ldpsql.inference.operators.bin_bits import BinOperator
from ldpsql.inference.operators.dense import BlocksOperator, DenseOperator
from ldpsql.inference.operators.extended import ExtendedOperator
from ldpsql.inference.operators.geometric import GeometricOperator, SquareGeometricOperator
from ldpsql.inference.operators.keep_or_spread import KeepOrSpreadOperator
from ldpsql.inference.operators.keep_or_window import KeepOrWindowOperator
from ldpsql.inference.operators.khatri_rao import KhatriRaoOperator, ObservedColumn
from ldpsql.inference.operators.kronecker import MOST_REPORTS, KroneckerOperator, Unreported
from ldpsql.inference.operators.levels import LevelsOperator
from ldpsql.inference.operators.merged import MergedOperator, MergedSupportOperator, merged
from ldpsql.inference.operators.mixed_keep_or_spread import MixedKeepOrSpreadOperator, stacked
from ldpsql.inference.operators.octets import check_number, collapsed, packed
from ldpsql.inference.operators.orthogonal import CharacterOperator, ListedOperator
from ldpsql.inference.operators.plane import PlaneOperator
from ldpsql.inference.operators.product import ProductOperator
from ldpsql.inference.operators.ranges import Ranges
from ldpsql.inference.operators.signed_bits import SignedOperator
from ldpsql.inference.operators.stack import StackOperator
from ldpsql.inference.operators.supports import SupportOperator, observed

__all__ = [
    "MOST_REPORTS",
    "BinOperator",
    "BlocksOperator",
    "CharacterOperator",
    "DenseOperator",
    "ExtendedOperator",
    "Floats",
    "GeometricOperator",
    "Ints",
    "KeepOrSpreadOperator",
    "KeepOrWindowOperator",
    "KhatriRaoOperator",
    "KroneckerOperator",
    "LevelsOperator",
    "ListedOperator",
    "MergedOperator",
    "MergedSupportOperator",
    "MixedKeepOrSpreadOperator",
    "ObservedColumn",
    "Operator",
    "PairOperator",
    "PlaneOperator",
    "ProductOperator",
    "Ranges",
    "SignedOperator",
    "SquareGeometricOperator",
    "StackOperator",
    "SupportOperator",
    "Unreported",
    "check_number",
    "collapsed",
    "merged",
    "observed",
    "operator",
    "packed",
    "stacked",
]
