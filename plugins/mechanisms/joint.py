"""One report of a whole row: all of epsilon goes to the cell of the table, by k-RR or by optimised local hashing."""

from ldpsql.mechanisms import (
    Channel,
    HashReports,
    JointMechanism,
    KeepOrSpread,
    ListedHashReports,
    Mechanism,
    OrthogonalHash,
    hash_symbols,
    hookimpl,
)


class JointKrr(JointMechanism):
    """k-ary randomised response over rows of several columns: keep the whole row, or report any other row evenly.

    Reports are rows. Best for tables of few cells or a large epsilon; see ``joint_olh``.

    >>> channel = JointKrr(epsilon=2, columns={"sex": ["f", "m"], "adult": [False, True]}).channel()
    >>> channel.probabilities().round(3)[0].tolist()
    [0.711, 0.096, 0.096, 0.096]
    """

    name = "joint_krr"

    def channel(self) -> Channel:
        """Return the channel that keeps the row as often as epsilon allows."""
        return KeepOrSpread.within(len(self.columns), self.epsilon.exp_below())


class JointOlh(JointMechanism):
    """Optimised local hashing over rows of several columns: a public function of the whole row to few symbols, k-RR on these.

    Reports are STRUCT(seed, y), as those of ``olh``. Better than ``joint_krr`` for tables of many cells.

    >>> mechanism = JointOlh(epsilon=2, columns={"education": range(16), "occupation": range(15)})
    >>> len(mechanism.alphabet()), round(float(mechanism.channel().hit), 3)
    (584, 0.514)
    """

    name = "joint_olh"
    sql_reports = HashReports.marker

    def alphabet(self) -> ListedHashReports:
        """Return seeds and symbols."""
        channel = self.channel()
        return ListedHashReports(channel.response.size, channel.seeds)

    def channel(self) -> OrthogonalHash:
        """Return k-RR on the hash."""
        ratio, size = self.epsilon.exp_below(), len(self.columns)
        return OrthogonalHash(size, KeepOrSpread.within(hash_symbols(ratio, size), ratio))


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer k-RR and OLH over rows."""
    return [JointKrr, JointOlh]
