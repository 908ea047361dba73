"""PCKV-GRR: key-value pairs through generalised randomised response.

Gu, Li, Cheng, Xiong, Cao, "PCKV: locally differentially private correlated key-value data collection with optimized utility",
USENIX Security 2020, section 5.3.
"""

from ldpsql.mechanisms import KeepOrSpread, Mechanism, SignMechanism, SignReports, hookimpl


class PckvGrr(SignMechanism):
    """PCKV-GRR: one pair of the padded set, its value rounded to + or -; kept, else another key or sign is reported.

    k-RR over the two signs of all keys and dummies with ratio 1 + padding (e^epsilon - 1): padding to several pairs makes each
    less likely to be drawn, and the response may be that much bolder. Reports are STRUCT(key, sign), both NULL for a dummy.

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


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer PCKV-GRR."""
    return [PckvGrr]
