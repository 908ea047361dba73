"""PCKV-PM: key-value pairs whose values go through the piecewise mechanism.

Ye, Wang, Zhang, Feng, "Revisiting EM-based estimation for locally differentially private protocols", NDSS 2025, section V-C and
appendix D, put it in place of the sign of PCKV (Gu et al., USENIX Security 2020); the split of the budget is derived here.
"""

from math import log
from typing import Annotated

import numpy as np
from pydantic import Field

from ldpsql.mechanisms import (
    BinReports,
    DenseChannel,
    KeepOrWindow,
    KeyValueMechanism,
    Mechanism,
    WholeField,
    hookimpl,
    pieces,
)


class PckvPm(KeyValueMechanism):
    """PCKV-PM: one pair of the padded set; its key with a number near its value, else any key with any number.

    With R = 1 + padding (e^epsilon - 1), the window is that of the piecewise mechanism for ln R, and random pairs are reported
    so often that the top of the window is R times likelier than from another key: together e^epsilon, whatever the sets.
    Reports are STRUCT(key, bin), both NULL for a dummy. They allow an estimate of the distribution of the values of every key.

    >>> mechanism = PckvPm(epsilon=1, keys=["book", "film", "song"], bins=8)
    >>> round(mechanism.channel().response.kept / 2**64, 3)
    0.14
    """

    name = "pckv_pm"
    sql_reports = BinReports.sql("keys", "bins")
    bins: Annotated[WholeField, Field(ge=2, le=1024)] = Field(
        64, description="number of bins of the values, and of the reports; at most 1,024"
    )

    def alphabet(self) -> BinReports:
        """Return keys with bins."""
        return BinReports(self.keys, self.padding, self.bins)

    def response(self) -> KeepOrWindow:
        """Return the response that keeps the key and reports a bin near the value."""
        keys, ratio = self.symbol_keys(self.bins), self.ratio(self.bins)
        root = float(ratio) ** 0.5
        return KeepOrWindow.within(keys, DenseChannel(pieces(2 * log(root), self.bins, outside=False)), ratio)

    def scores(self) -> np.ndarray:
        """Return the score of every bin of a kept key: its expectation is the value, on [-1, 1]."""
        root = float(self.ratio(self.bins)) ** 0.5
        reach = (root + 1) / (root - 1)
        return np.asarray(((2 * np.arange(self.bins) + 1) / self.bins - 1) * reach * 2 / (reach + 1))

    def rounding(self) -> float:
        """Return half a bin, and how far the expected score of a bin is from its centre, as reports are bins too."""
        centres = (2 * np.arange(self.bins) + 1) / self.bins - 1
        expected = self.response().window.probabilities() @ self.scores()
        return 1.0 / self.bins + float(np.abs(expected - centres).max())


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer PCKV-PM."""
    return [PckvPm]
