"""Hadamard response with blocks.

Acharya, Sun, Zhang, "Hadamard response: estimating distributions privately, efficiently, and with little communication",
AISTATS 2019.
"""

from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from ldpsql.mechanisms import (
    TOTAL,
    CategoricalMechanism,
    Channel,
    Cost,
    DenseChannel,
    Domain,
    InvalidParameter,
    Mechanism,
    WholeField,
    cells,
    hookimpl,
    signs_in_blocks,
    sql_cells,
)

_CELL = Cost(1e-8, 16)  # of the table of weights, and of a copy
_Size = Annotated[WholeField, Field(ge=1, le=1 << 20)]


class HadamardResponse(CategoricalMechanism):
    """Hadamard response with blocks: reports of a value's row in a Hadamard matrix are e^epsilon times as likely as others.

    The value at position i has row i % (size - 1) + 1 of block i // (size - 1). A report is the number of a column, counted
    through all blocks. These are the reports of pure-ldp above epsilon 1, with ``blocks`` = `part` and ``size`` = `partsz`.

    >>> made = HadamardResponse(epsilon=2, domain=["Lima", "Oslo", "Rome", "Kyiv"], blocks=2, size=4)
    >>> made.channel().probabilities().round(3)[[0, 3]].tolist()
    [[0.356, 0.048, 0.356, 0.048, 0.048, 0.048, 0.048, 0.048], [0.048, 0.048, 0.048, 0.048, 0.356, 0.048, 0.356, 0.048]]
    """

    name = "hadamard_response"
    sql_reports = sql_cells("size", "blocks")
    blocks: _Size = Field(description="number of blocks of reports, from 2")
    size: _Size = Field(description="number of reports of a block, a power of 2; a block has room for size - 1 values")

    @model_validator(mode="after")
    def _fitting(self) -> "HadamardResponse":
        if self.size & (self.size - 1) or self.size < 2 or self.blocks < 2:
            raise InvalidParameter("Hadamard response needs at least 2 blocks, and a size that is a power of 2, at least 2")
        if self.blocks * (self.size - 1) < len(self.domain):
            raise InvalidParameter(
                "the blocks have no room for all values", "blocks * (size - 1) must be at least their number"
            )
        (_CELL * (self.blocks * self.size * len(self.domain))).check("the table of this channel", "use olh for so many values")
        return self

    def alphabet(self) -> Domain:
        """Return the numbers of the columns."""
        return cells(self.size, self.blocks)

    def channel(self) -> Channel:
        """Return two weights: that of the columns in which the row of the value has a 1, and that of all others."""
        together = 2 * TOTAL // self.size  # of one favoured report and of (2 blocks - 1) others
        low = int(-(-together // (2 * self.blocks - 1 + self.epsilon.exp_below())))  # rounded up
        favoured = signs_in_blocks(len(self.domain), self.size, self.blocks) > 0
        high = together - (2 * self.blocks - 1) * low
        return DenseChannel(np.where(favoured, np.uint64(high), np.uint64(low)))


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer Hadamard response with blocks."""
    return [HadamardResponse]
