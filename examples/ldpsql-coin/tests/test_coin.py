"""The conformance checks are the test of a mechanism and of an estimator; a function and a command are called."""

import pyarrow as pa
import pytest
from ldpsql_coin import Coin, Steps, answers, toss

from ldpsql import InvalidParameter, connect
from ldpsql.testing import check_estimator, check_mechanism


@pytest.mark.parametrize("epsilon", ["0.1", "1", "4"])
def test_the_coin_conforms(epsilon: str) -> None:
    check_mechanism(Coin(epsilon=epsilon, domain=["no", "yes"]))


def test_a_coin_has_two_sides() -> None:
    with pytest.raises(InvalidParameter, match="two sides"):
        Coin(epsilon=1, domain=["no", "yes", "perhaps"]).channel()


def test_the_estimator_conforms() -> None:
    check_estimator(Steps)


def test_a_hundred_times_the_answers_give_a_tenth_of_the_error() -> None:
    # With epsilon = 2 ln 3 four of five answers beyond the fair ones are true: 1 / (2 * 0.8 * 0.01)^2 = 3906.25.
    few, many = answers(pa.array([2.1972245773362196] * 2), pa.array([0.01, 0.001])).to_pylist()
    assert (few, many) == (3907, 390625)


def test_the_function_is_there_in_sql() -> None:
    with connect() as con:
        assert con.execute("SELECT ldp.coin_answers(1, 0.01), ldp.coin_answers(1, NULL)").fetchone() == (11707, None)
        with pytest.raises(Exception, match="must be above 0"):
            con.execute("SELECT ldp.coin_answers(1, 0)")


def test_the_command_prints_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    toss("yes")
    assert capsys.readouterr().out in ("no\n", "yes\n")
