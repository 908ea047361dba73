"""Subset selection.

Ye, Barg, "Optimal schemes for discrete distribution estimation under locally differential privacy", IEEE
Transactions on Information Theory 2018; Wang, Huang, Wang, Nie, Xu, Yang, Li, Qiao, "Mutual information optimally local private
discrete distribution estimation", 2016.
"""

from ldpsql.mechanisms import CategoricalMechanism, Channel, Mechanism, SetReports, Subsets, hookimpl


class SubsetSelection(CategoricalMechanism):
    """Subset selection: a random set of d = k/(e^epsilon + 1) values, e^epsilon times as likely if it holds the true one.

    Reports are lists of 64-bit words, UBIGINT[], one bit per value.

    >>> channel = SubsetSelection(epsilon=1, domain=["Lima", "Oslo", "Rome", "Kyiv"]).channel()
    >>> channel.chosen, round(float(channel.hit), 3), round(float(channel.miss), 3)
    (1, 0.475, 0.175)
    """

    name = "subset_selection"
    sql_reports = SetReports.marker

    def alphabet(self) -> SetReports:
        """Return the sets of values."""
        return SetReports(len(self.domain))

    def channel(self) -> Channel:
        """Return the sets of the best size."""
        grown = self.epsilon.exp_below()
        return Subsets.within(len(self.domain), max(1, round(len(self.domain) / (grown + 1))), grown)


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer subset selection."""
    return [SubsetSelection]
