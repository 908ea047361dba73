"""Channels: the conditional distribution of the report given the value, in whole numbers.

A channel has a structure, one file each. The structure fixes how the channel is drawn from (here) and how its likelihood is
evaluated (`ldpsql.inference.operators`). Only the structures named here are accepted from plugins.
"""

from ldpsql.channels.base import TOTAL, Channel, Codes, Drawn, SetChannel, TableChannel, Weights, Witness
from ldpsql.channels.bits import IndependentBits, coarse_above
from ldpsql.channels.convolution import Convolution
from ldpsql.channels.copying import STRUCTURES, copied, structure
from ldpsql.channels.dense import MARGIN, DenseChannel, floor_mixing, from_doubles, reduced
from ldpsql.channels.hashed import OrthogonalHash, PrivateHash
from ldpsql.channels.keep_or_spread import KeepOrSpread
from ldpsql.channels.keep_or_window import KeepOrWindow
from ldpsql.channels.key_value import KeyValue, Sets
from ldpsql.channels.signed_bits import SignedBits
from ldpsql.channels.subsets import Subsets

__all__ = [
    "MARGIN",
    "STRUCTURES",
    "TOTAL",
    "Channel",
    "Codes",
    "Convolution",
    "DenseChannel",
    "Drawn",
    "IndependentBits",
    "KeepOrSpread",
    "KeepOrWindow",
    "KeyValue",
    "OrthogonalHash",
    "PrivateHash",
    "SetChannel",
    "Sets",
    "SignedBits",
    "Subsets",
    "TableChannel",
    "Weights",
    "Witness",
    "coarse_above",
    "copied",
    "floor_mixing",
    "from_doubles",
    "reduced",
    "structure",
]
