"""Channels: the conditional distribution of the report given the value, in whole numbers.

A channel has a structure, one file each. The structure fixes how the channel is drawn from (here) and how its likelihood is
evaluated (`ldpsql.likelihood`). Only the structures named here are accepted from plugins.
"""

from ldpsql.channels.base import TOTAL, Channel, Codes, Weights, Witness
from ldpsql.channels.dense import DenseChannel, floor_mixing
from ldpsql.channels.keep_or_spread import KeepOrSpread

__all__ = ["TOTAL", "Channel", "Codes", "DenseChannel", "KeepOrSpread", "Weights", "Witness", "floor_mixing"]
