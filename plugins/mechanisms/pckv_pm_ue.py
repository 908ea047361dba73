"""PCKV-PM with unary encoding: every key shows a number near a value, or nothing.

Ye, Wang, Zhang, Feng, "Revisiting EM-based estimation for locally differentially private protocols", NDSS 2025, section V-C and
appendix D, put the piecewise mechanism in place of the sign of PCKV-UE (Gu et al., USENIX Security 2020); the split of the
budget is derived here.
"""

from typing import Annotated

import numpy as np
from pydantic import Field

from ldpsql.mechanisms import BinBits, KeyValueMechanism, Mechanism, SetReports, WholeField, hookimpl


class PckvPmUe(KeyValueMechanism):
    """PCKV-PM in a unary encoding: one pair of the padded set; its key shows a number near its value, or nothing.

    Every other key shows any number with probability 1/(s + 1), where s = e^(epsilon/2); the key of the pair shows one about
    half of the time. Its window is the piecewise mechanism's: numbers in it are s times likelier than without the pair, all
    others s times rarer. Together that is e^epsilon, whatever the sets. Reports are bits, one for each bin that the number is
    near. The error grows with the padding, not with the number of keys; reports of ``pckv_pm`` are shorter.

    >>> mechanism = PckvPmUe(epsilon=1, keys=["book", "film", "song"], bins=8)
    >>> law = mechanism.channel().response.key_law()
    >>> round(float(law.other), 2), round(float(law.other + law.lift), 2)
    (0.38, 0.51)
    """

    name = "pckv_pm_ue"
    sql_reports = SetReports.marker
    bins: Annotated[WholeField, Field(ge=2, le=1024)] = Field(
        64, description="number of bins of the values; a report has a bit for each bin of each key"
    )

    def alphabet(self) -> SetReports:
        """Return the sets of symbols."""
        return SetReports(self.symbol_keys(self.bins) * self.bins)

    def response(self) -> BinBits:
        """Return the bits: they can show a whole set, so sampling does not weaken them, and their ratio is e^epsilon."""
        return BinBits.within(self.symbol_keys(self.bins), self.bins, self.epsilon.exp_below())

    def scores(self) -> np.ndarray:
        """Return the score of every number of a kept key: its expectation is the value, on [-1, 1]."""
        places = self.response().places
        return np.asarray((2 * np.arange(places) + 1 - places) / self.bins)

    def rounding(self) -> float:
        """Return half a bin."""
        return 1.0 / self.bins


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer PCKV-PM with unary encoding."""
    return [PckvPmUe]
