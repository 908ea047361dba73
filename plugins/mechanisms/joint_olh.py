"""Optimised local hashing over the rows of several columns: all of epsilon goes to the whole row."""

from ldpsql.mechanisms import (
    HashReports,
    JointMechanism,
    KeepOrSpread,
    ListedHashReports,
    Mechanism,
    OrthogonalHash,
    hash_symbols,
    hookimpl,
)


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
    """Offer OLH over rows."""
    return [JointOlh]
