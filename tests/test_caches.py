"""What is kept to be used again takes a bounded number of bytes, and what is dropped is made again."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection

from ldpsql import certify, privic
from ldpsql.caches import ByteCache, footprint
from ldpsql.functions import MECHANISMS, registry
from ldpsql.mechanisms import base
from ldpsql.testing import operator_of

KILOBYTE = 1 << 10


class Growing:
    """Something that computes an array when it is first used."""

    def __init__(self) -> None:
        self.array = np.zeros(0)


@pytest.mark.parametrize(
    ("thing", "size"),
    [
        (np.zeros(1000), 8000),
        (np.zeros((10, 1000))[3:5], 80_000),  # a view keeps all that it is a view of
        ([np.zeros(1000)] * 3, 8000),
        ({"a": (np.zeros(1000), pa.array(np.zeros(1000)))}, 16_000),
        ([float(i) for i in range(100_000)], 3_200_000),
    ],
)
def test_the_footprint_counts_every_part_once(thing: object, size: int) -> None:
    assert footprint(thing) == pytest.approx(size, rel=0.2, abs=1000)


def test_a_cache_drops_what_was_not_used_for_longest() -> None:
    cache: ByteCache[int, np.ndarray] = ByteCache(10 * KILOBYTE)
    for key in range(3):
        cache.put(key, np.zeros(384))
    assert cache.get(0) is not None
    cache.put(3, np.zeros(384))
    assert [key for key in range(4) if cache.get(key) is not None] == [0, 2, 3]
    assert cache.bytes <= cache.limit
    cache.clear()
    assert (len(cache), cache.bytes) == (0, 0)


def test_the_latest_value_stays_however_large_and_values_that_grow_are_weighed_again() -> None:
    small: ByteCache[int, np.ndarray] = ByteCache(KILOBYTE)
    small.put(1, np.zeros(10))
    small.put(2, np.zeros(10_000))
    assert [small.get(key) is None for key in (1, 2)] == [True, False]
    cache: ByteCache[int, Growing] = ByteCache(10 * KILOBYTE)
    grown = [cache.remembered(key, lambda _: Growing()) for key in range(8)]
    for key in range(4):
        assert cache.remembered(key, lambda _: Growing()) is grown[key]  # made once while it is kept
        grown[key].array = np.zeros(KILOBYTE)
    cache.put(8, Growing())
    assert cache.bytes <= cache.limit
    assert cache.get(8) is not None


def test_mechanisms_in_many_cycles_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_CERTIFIED", ByteCache(4 << 20))
    mechanism, weights = privic.start(1, list(range(100)), columns=10), []
    for _ in range(20):  # each takes about 330 kB
        reports = certify(mechanism).perturb(pa.array(np.arange(1000) % 100))
        mechanism = privic.step([(mechanism, np.bincount(reports, minlength=100).astype(np.float64))]).next
        weights.append(footprint(mechanism))
    assert base._CERTIFIED.bytes <= base._CERTIFIED.limit
    assert 1 < len(base._CERTIFIED) < 20
    assert max(weights) < 80_000  # a spec holds its parameters; the table alone is 80 kB


def test_a_mechanism_that_was_dropped_is_certified_again_and_draws(con: DuckDBPyConnection) -> None:
    con.execute("CREATE MACRO m() AS ldp.krr(1, ['a', 'b'])")
    con.execute("PREPARE draw AS SELECT count(*) FROM range(5000) WHERE ldp.perturb('a', m()) IS NOT NULL")
    assert con.execute("EXECUTE draw").fetchone() == (5000,)
    base._CERTIFIED.clear()
    base._KEYS.clear()
    assert con.execute("EXECUTE draw").fetchone() == (5000,)


def test_handles_hold_no_more_than_parameters() -> None:
    parameters = {"beta": 1, "domain": range(100), "columns": 10, "prior": [1] * 100}
    mechanism = registry().mechanism({"mechanism": "blahut_arimoto", **parameters})
    handle = MECHANISMS.number(mechanism)
    operator_of(mechanism)
    certify(mechanism).perturb(pa.array([1, 2, 3]))
    assert footprint(MECHANISMS.thing(handle)) < 80_000
