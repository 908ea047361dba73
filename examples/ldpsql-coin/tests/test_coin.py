"""The conformance check is the whole test of a mechanism."""

import pytest
from ldpsql_coin import Coin

from ldpsql import InvalidParameter
from ldpsql.testing import check_mechanism


@pytest.mark.parametrize("epsilon", ["0.1", "1", "4"])
def test_the_coin_conforms(epsilon: str) -> None:
    check_mechanism(Coin(epsilon=epsilon, domain=["no", "yes"]))


def test_a_coin_has_two_sides() -> None:
    with pytest.raises(InvalidParameter, match="two sides"):
        Coin(epsilon=1, domain=["no", "yes", "perhaps"]).channel()
