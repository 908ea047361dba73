"""PCKV-UE: key-value pairs through unary encoding.

Gu, Li, Cheng, Xiong, Cao, "PCKV: locally differentially private correlated key-value data collection with optimized utility",
USENIX Security 2020, section 5.2.
"""

from ldpsql.mechanisms import Mechanism, SetReports, SignedBits, SignMechanism, hookimpl


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


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer PCKV-UE."""
    return [PckvUe]
