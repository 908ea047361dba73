"""PCKV: key-value pairs through one response to a pair of the padded set.

Gu, Li, Cheng, Xiong, Cao, "PCKV: locally differentially private correlated key-value data collection with optimized utility",
USENIX Security 2020, sections 5.2 (unary encoding), 5.3 (generalised randomised response) and 5.4 (the better of both).
Ye, Wang, Zhang, Feng, "Revisiting EM-based estimation for locally differentially private protocols", NDSS 2025, section V-C and
appendix D, put the piecewise mechanism in place of the sign; the split of the budget is derived here.
"""

from fractions import Fraction
from math import log
from typing import Annotated

import numpy as np
from pydantic import Field

from ldpsql.mechanisms import (
    BinBits,
    BinReports,
    DenseChannel,
    KeepOrSpread,
    KeepOrWindow,
    KeyLaw,
    KeyValueMechanism,
    Mechanism,
    SetReports,
    SignedBits,
    SignMechanism,
    SignReports,
    SymbolReports,
    WholeField,
    hookimpl,
    pieces,
)


class PckvUe(SignMechanism):
    """PCKV-UE: one pair of the padded set, its value rounded to + or -; every key shows +, - or nothing.

    The key of the pair shows a sign half of the time, the right one with odds e^epsilon; any other key and dummy with
    probability 2/(e^epsilon + 3), either sign. Its error grows with the padding, not with the number of keys. Reports are bits,
    two per key.

    >>> mechanism = PckvUe(epsilon=1, keys=["book", "film", "song"])
    >>> round(float(mechanism.channel().response.hit), 3)
    0.366
    """

    name = "pckv_ue"
    sql_reports = SetReports.marker

    def alphabet(self) -> SetReports:
        """Return the sets of symbols."""
        return SetReports(2 * self.symbol_keys(2))

    def response(self) -> SignedBits:
        """Return the signed bits: they can show a whole set, so sampling does not weaken them, and their ratio is e^epsilon."""
        return SignedBits.within(self.symbol_keys(2), self.epsilon.exp_below())


class PckvGrr(SignMechanism):
    """PCKV-GRR: one pair of the padded set, its value rounded to + or -; kept, else another key or sign is reported.

    k-RR over the two signs of all keys and dummies with ratio 1 + padding (e^epsilon - 1): with longer padding each pair is
    drawn less often, so the response may keep it more often. Reports are STRUCT(key, sign), both NULL for a dummy.

    >>> mechanism = PckvGrr(epsilon=1, keys=["book", "film", "song"], padding=2)
    >>> round(mechanism.channel().response.keep / 2**64, 3)
    0.33
    """

    name = "pckv_grr"
    sql_reports = SignReports.sql("keys")

    def alphabet(self) -> SignReports:
        """Return keys with signs."""
        return SignReports(self.keys, self.padding)

    def response(self) -> KeepOrSpread:
        """Return k-RR over the symbols."""
        return KeepOrSpread.within(2 * self.symbol_keys(2), self.ratio(2))


class Pckv(SignMechanism):
    """PCKV with unary encoding or generalised randomised response, whichever has the smaller variance.

    The variances compared are those of frequencies, if each key is in ``set_size`` of as many sets as there are keys.
    Randomised response wins with few keys, a large epsilon or long padding. Reports are UBIGINT[] in both cases: bits, or the
    number of one symbol.

    >>> chosen = [type(Pckv(epsilon=1, keys=range(n)).response()).__name__ for n in (4, 400)]
    >>> chosen
    ['KeepOrSpread', 'SignedBits']
    """

    name = "pckv"
    sql_reports = SetReports.marker
    set_size: Annotated[WholeField, Field(ge=1)] | None = Field(
        None, description="how many pairs a user typically has; by default as many as the padding"
    )

    def alphabet(self) -> SetReports | SymbolReports:
        """Return the sets of symbols, or their numbers."""
        symbols = 2 * self.symbol_keys(2)
        return SymbolReports(symbols) if isinstance(self.response(), KeepOrSpread) else SetReports(symbols)

    def response(self) -> KeepOrSpread | SignedBits:
        """Return the response with the smaller variance."""
        total = self.symbol_keys(2)
        grr = KeepOrSpread.within(2 * total, self.ratio(2))
        ue = SignedBits.within(total, self.epsilon.exp_below())
        return grr if self._variance(grr.key_law()) <= self._variance(ue.key_law()) else ue

    def _variance(self, law: KeyLaw) -> Fraction:
        """Return the variance of a frequency, up to a factor that both responses share (section 5.4, theorem 3)."""
        size = self.set_size or self.padding
        drawn = Fraction(min(size, self.padding), self.padding * len(self.keys))
        supported = law.other + drawn * law.lift
        return supported * (1 - supported) / law.lift**2


class PckvPm(KeyValueMechanism):
    """PCKV-PM: one pair of the padded set; its key with a number near its value, else any key with any number.

    With R = 1 + padding (e^epsilon - 1), the window is that of the piecewise mechanism for ln R, and random pairs are reported
    so often that the top of the window is R times likelier than from another key: together e^epsilon, whatever the sets. So is
    the top bin if bins are wider than the window, where the density alone, added up in bins, would leave epsilon unspent.
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
    """Offer PCKV with signs, and with numbers."""
    return [PckvUe, PckvGrr, Pckv, PckvPm, PckvPmUe]
