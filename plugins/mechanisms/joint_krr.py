"""k-ary randomised response over the rows of several columns: all of epsilon goes to the whole row."""

from ldpsql.mechanisms import Channel, JointMechanism, KeepOrSpread, Mechanism, hookimpl


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


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer k-RR over rows."""
    return [JointKrr]
