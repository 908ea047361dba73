"""Channels: the conditional distribution of the report given the value, in whole numbers.

Every channel has a structure, and every structure has a file. The structure determines how the channel is drawn from (here)
and how its likelihood is evaluated (`ldpsql.inference.operators`). Plugins can use only the structures named here.
"""

from typing import TypeAlias

from ldpsql.channels.base import (
    TOTAL,
    Bins,
    Channel,
    ChannelOf,
    Codes,
    Drawn,
    Floats,
    Ints,
    KeyCells,
    KeyLaw,
    PairResponse,
    SetChannel,
    Signs,
    TableChannel,
    Weights,
    Witness,
    Words64,
)
from ldpsql.channels.bits import BinBits, IndependentBits, SignedBits, coarse_above
from ldpsql.channels.dense import (
    MARGIN,
    DenseChannel,
    UndrawnChannel,
    floor_mixing,
    from_doubles,
    over_one_denominator,
    reduced,
)
from ldpsql.channels.exported import STRUCTURES, copied, structure
from ldpsql.channels.hadamard import BlockSigns, Hadamard, Subsets, signs_in_blocks, signs_of
from ldpsql.channels.hashed import OrthogonalHash, PrivateHash, RepeatedHash
from ldpsql.channels.keep_or_spread import KeepOrSpread
from ldpsql.channels.key_value import KeepOrWindow, KeyValue, Sets
from ldpsql.channels.levels import Levels
from ldpsql.channels.noise import Convolution, PlanarNoise
from ldpsql.channels.prefixes import Letters, Prefixes
from ldpsql.channels.rows import OneOfRows, Rows

AnyChannel: TypeAlias = Channel | KeyValue | Prefixes  # of a listed value or a row of them, of a set of pairs, or of a string

__all__ = [
    "MARGIN", "STRUCTURES", "TOTAL", "AnyChannel", "BinBits", "Bins", "BlockSigns", "Channel", "ChannelOf", "Codes",
    "Convolution", "DenseChannel", "Drawn", "Floats", "Hadamard", "IndependentBits", "Ints", "KeepOrSpread", "KeepOrWindow",
    "KeyCells", "KeyLaw", "KeyValue", "Letters", "Levels", "OneOfRows", "OrthogonalHash", "PairResponse", "PlanarNoise",
    "Prefixes", "PrivateHash", "RepeatedHash", "Rows", "SetChannel", "Sets", "SignedBits", "Signs", "Subsets",
    "TableChannel", "UndrawnChannel", "Weights", "Witness", "Words64", "coarse_above", "copied", "floor_mixing",
    "from_doubles", "over_one_denominator", "reduced", "signs_in_blocks", "signs_of", "structure",
]  # fmt: skip
