"""The conformance suite for mechanisms: what every one must show, built-in or third-party.

Call `check_mechanism` on a few instances in your plugin's tests; it raises `AssertionError` with the claim that failed.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, Channel, DenseChannel
from ldpsql.duck import connect
from ldpsql.errors import NotPrivate, PrivacyLeakWarning
from ldpsql.mechanism import Mechanism, certify
from ldpsql.privacy import Epsilon
from ldpsql.randomness import Words
from ldpsql.registry import registry
from ldpsql.uncertainty import log_fit_p_value

FALSE_ALARM = 1e-9  # chance that a correct sampler is refused, for each value


def insecure_words_for_tests(seed: int) -> Words:
    """Return a source of words that repeats itself: for tests that must, and for nothing else.

    Whoever knows the seed undoes the noise, so it warns, and only samplers that are called directly accept it.
    """
    warnings.warn("a seeded source protects nobody: use it in tests only", PrivacyLeakWarning, stacklevel=2)
    blocks = count()

    def words(number: int) -> NDArray[np.uint64]:
        stream = hashlib.shake_256(f"{seed}/{next(blocks)}".encode())
        return np.frombuffer(stream.digest(8 * number), dtype=np.uint64)

    return words


def check_mechanism(mechanism: Mechanism, draws: int = 200_000) -> None:
    """Check certificate, sampler, round trips and the SQL functions of one mechanism.

    Raises:
        AssertionError: naming the claim that does not hold.

    """
    try:
        known = certify(mechanism)
    except NotPrivate as error:
        raise AssertionError(f"the channel does not keep its claim: {error}") from error
    check_rows(known.channel)
    check_sampler(known.channel, draws)
    _check_round_trips(mechanism)
    _check_sql(mechanism)
    if getattr(mechanism, "epsilon", None) is not None:
        _check_monotone(mechanism)


def check_rows(channel: Channel) -> None:
    """Check that every row of weights sums to 2**64, and that alias tables give the weights back."""
    weights = channel.weights().tolist()
    assert all(sum(row) == TOTAL for row in weights), "a row of the channel does not sum to one"
    if isinstance(channel, DenseChannel):
        assert channel.tables.weights(channel.outputs) == weights, "the alias tables do not give the weights back"


def check_sampler(channel: Channel, draws: int) -> None:
    """Check by a likelihood-ratio test for up to 20 values that draws follow the rows of the channel."""
    for value in np.unique(np.linspace(0, channel.inputs - 1, 20).astype(np.int32)):
        drawn = np.bincount(channel.draw(np.full(draws, value, dtype=np.int32)), minlength=channel.outputs)
        assert len(drawn) == channel.outputs, "a report outside the alphabet was drawn"
        expected = channel.probabilities()[value]
        assert not drawn[expected == 0].any(), "a report of probability zero was drawn"
        seen = drawn > 0
        statistic = 2 * np.sum(drawn[seen] * np.log(drawn[seen] / (draws * expected[seen])))
        log_p = log_fit_p_value(np.array([statistic]), channel.outputs)[0]
        assert log_p > np.log(FALSE_ALARM), f"draws for value {value} do not follow the channel (ln p < {log_p:.0f})"


def _check_round_trips(mechanism: Mechanism) -> None:
    """Check that text and JSON give the same mechanism back."""
    again = json.loads(json.dumps(mechanism.to_json()))
    named = {name: value for name, value in again.items() if name != mechanism.kind}
    assert type(mechanism)(**named) == mechanism, "JSON does not give the mechanism back"
    if registry().mechanisms.get(mechanism.name) is type(mechanism):
        assert registry().mechanism(str(mechanism)) == mechanism, "its text does not give the mechanism back"


def _check_sql(mechanism: Mechanism) -> None:
    """Check that SQL perturbs every value into the alphabet, and that an estimate comes back for every value."""
    assert registry().mechanisms.get(mechanism.name) is type(mechanism), (
        f"{mechanism.name} is not in the registry: install the plugin and allow it with LDPSQL_PLUGINS"
    )
    values, alphabet = mechanism.values().values, mechanism.alphabet()
    people = pa.table({"x": values.take(pa.array(np.arange(len(values) * 50) % len(values)))})  # noqa: F841  # read by SQL
    with connect() as con:
        con.execute("SET VARIABLE m = $m", {"m": _parameter(mechanism)})
        con.execute("CREATE TABLE reports AS SELECT ldp.perturb(x, getvariable('m')) AS r FROM people")
        drawn = con.sql("SELECT r FROM reports").to_arrow_table()["r"]
        assert alphabet.locate(drawn).null_count == 0, "SQL drew a report outside the alphabet"
        found = con.execute("SELECT len(ldp.ibu(r, getvariable('m'))) FROM reports").fetchone()
        assert found == (len(values),), "ldp.ibu does not return one row for each value"


def _parameter(mechanism: Mechanism) -> dict[str, Any]:
    """Return the STRUCT that the SQL constructor makes, as a parameter of a prepared statement."""
    fields = {p.name: getattr(mechanism, p.name) for p in mechanism.parameters()}
    plain = {**mechanism.given(), "domain": mechanism.values().values.to_pylist()}
    known = {name: plain.get(name) for name in fields}
    return {"mechanism": mechanism.name, **known, "reports": mechanism.alphabet().values.to_pylist()}


def _check_monotone(mechanism: Mechanism) -> None:
    """Check that twice the epsilon never realises less."""
    told = mechanism.claim().epsilon
    if 2 * told.value <= told.maximum:
        larger = mechanism.model_copy(update={"epsilon": Epsilon(2 * told.value)})
        assert certify(larger).certificate.ratio >= certify(mechanism).certificate.ratio, "a larger epsilon realises less"
