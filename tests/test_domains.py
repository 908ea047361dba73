from __future__ import annotations

import datetime as dt
import re
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import ldpsql
from ldpsql import Domain, LdpError
from ldpsql.errors import InvalidDomain, InvalidParameter, InvalidSpec, MissingValue, OutsideDomain, WrongType
from ldpsql.functions import registry

Krr: Any = registry().mechanisms["krr"]


@pytest.mark.parametrize(
    "bad",
    [["a"], [], ["a", "a"], ["a", None], "ab", 3, None, [[1], [2]], [1.0, float("nan")], ["a", 1], {"type": "x", "values": []}],
    ids=repr,
)
def test_a_domain_that_is_not_declared_properly_is_refused(bad: object) -> None:
    with pytest.raises(InvalidDomain, match="in the type that it names" if isinstance(bad, dict) else None):
        Domain.of(bad)


@pytest.mark.parametrize("place", range(1, 9))
@pytest.mark.parametrize("rising", [True, False])
def test_a_value_that_occurs_twice_is_refused_wherever_it_is(place: int, rising: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    longer = pa.array([f"v{i}" * (i % 4) for i in range(4, 40) if i % 4])[place:]
    digits = Domain.of(longer).digits
    monkeypatch.setattr("ldpsql.domains.domain._PART", 3)  # values are compared and read in parts
    assert Domain.of(longer).digits == digits
    values = [f"v{i}" for i in range(9)][:: 1 if rising else -1]
    assert len(Domain.of(values)) == 9
    with pytest.raises(InvalidDomain):
        Domain.of([*values[:place], values[place - 1], *values[place:]])


def test_times_of_day_are_not_said_to_be_a_domain() -> None:
    with pytest.raises(InvalidDomain, match="numbers, booleans, dates or timestamps"):
        Domain.of(pa.array([1, 2], pa.time64("us")))


@pytest.mark.parametrize(
    ("domain", "column"),
    [
        (["a", "b"], pa.array(["b", "a"])),
        (["a", "b"], pa.array(["b", "a"]).dictionary_encode()),
        (["a", "b"], pa.array(["b", "a"], pa.string_view())),
        ([1, 2], pa.array([2, 1], pa.int8())),
        ([1, 2], pa.array([2, 1], pa.int64())),
        ([1, 2], pa.array([2.0, 1.0])),
        ([True, False], pa.array([False, True])),
        ([dt.date(2020, 1, 1), dt.date(2020, 1, 2)], pa.array([dt.date(2020, 1, 2), dt.date(2020, 1, 1)])),
        ([10, 20], pa.array([20, 10])),
        ([0, 2**64 - 1], pa.array([2**64 - 1, 0], pa.uint64())),
        ([0, 10**20], pa.array([10**20, 0], pa.decimal128(38, 0))),
    ],
)
def test_values_are_found_whatever_type_carries_them(domain: list[Any], column: pa.Array) -> None:
    assert Domain.of(domain).codes(column).tolist() == [1, 0]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.int8(), pa.int64(), pa.bool_(), pa.float64(), pa.decimal128(12, 1), pa.date32()], ids=str
)
def test_the_values_of_a_domain_and_of_its_mechanism_are_in_memory_of_their_own(kind: pa.DataType) -> None:
    """A source that changes its column afterwards, or a plugin that changes its domain, changes nothing that was certified."""
    column = pa.array([0, 0, 1], pa.int32()).cast(kind)[1:]
    domain = Domain.of(column)
    own = ldpsql.certify(registry().mechanism({"mechanism": "krr", "epsilon": 1, "domain": domain})).values
    assert isinstance(own, Domain)
    places = [{b.address for b in values.buffers() if b is not None} for values in (column, domain.values, own.values)]
    assert len(set.union(*places)) == sum(map(len, places))
    assert own == domain
    assert own.values.to_pylist() == column.to_pylist()


@pytest.mark.parametrize("first", [-5, 0, 2**40])
def test_ranges_of_integers_take_the_same_codes_as_any_list(first: int) -> None:
    values = list(range(first, first + 50))
    shuffled = list(reversed(values))
    column = pa.array([first + 3, first + 49, first])
    assert Domain.of(values).codes(column).tolist() == [3, 49, 0]
    assert Domain.of(shuffled).codes(column).tolist() == [46, 0, 49]
    for outside in (first - 1, first + 50, -(2**63), 2**63 - 1):
        with pytest.raises(OutsideDomain):
            Domain.of(values).codes(pa.array([outside]))


@pytest.mark.parametrize("first", [-100, -1, 0, 100, 200, 250, 60_000, 2**40])
@pytest.mark.parametrize("size", [2, 100, 400])
def test_ranges_are_found_in_columns_of_every_whole_type(first: int, size: int) -> None:
    domain = Domain.of(range(first, first + size))
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()):
        limits = np.iinfo(kind.to_pandas_dtype())
        near = {*range(-200, 900, 7), first - 1, first, first + size - 1, first + size, limits.min, limits.max}
        column = pa.array([number for number in near if limits.min <= number <= limits.max], kind)
        codes = domain.codes(column, outside_code=1)
        assert codes.tolist() == [n - first if 0 <= n - first < size else 1 for n in column.to_pylist()]
        inside = column.filter(pa.array([0 <= n - first < size for n in column.to_pylist()], pa.bool_()))
        assert domain.codes(inside).tolist() == [n - first for n in inside.to_pylist()]


def test_a_column_of_another_kind_is_refused_by_its_type() -> None:
    with pytest.raises(WrongType, match="BIGINT"):
        Domain.of(["1", "2"]).codes(pa.array([1]))
    with pytest.raises(OutsideDomain):
        Domain.of(pa.array([1, 2], pa.int8())).codes(pa.array([300]))
    days = pa.array([dt.date(2020, 1, 2), dt.date(2020, 1, 1)])
    with pytest.raises(WrongType, match="DATE") as refused:
        Domain.of(["2020-01-01", "2020-01-02"]).codes(days)
    (written,) = re.findall(r"\{'type': .*\}", str(refused.value))  # what the hint says to write is taken
    listed = written.replace("...", "'2020-01-01', '2020-01-02'")
    assert ldpsql.certify(f"krr(1, {listed})").codes(days).tolist() == [1, 0]
    for sql in (
        "DATE '2020-01-01'",
        "timestamp'2020-01-01'",
        "TIMESTAMPTZ '2020-01-01 00:00+00'",
        "TIMESTAMP WITH TIME ZONE '2020-01-01'",
    ):
        with pytest.raises(InvalidSpec, match=re.escape(written)):
            ldpsql.certify(f"krr(1, [{sql}])")


def test_null_and_outside_are_refused_without_a_rule_and_mapped_with_one() -> None:
    column = pa.array(["a", None, "zz", "b"])
    with pytest.raises(MissingValue):
        Domain.of(["a", "b"]).codes(column)
    with pytest.raises(OutsideDomain):
        Domain.of(["a", "b"]).codes(column, null_code=0)
    assert Domain.of(["a", "b"]).codes(column, null_code=0, outside_code=1).tolist() == [0, 0, 1, 1]
    assert Domain.of(["a", "b"]).codes(pa.nulls(2), null_code=1).tolist() == [1, 1]


def test_a_rule_must_name_a_declared_value() -> None:
    with pytest.raises(InvalidParameter, match="not in the domain"):
        ldpsql.certify(Krr(epsilon=1, domain=["a", "b"], nulls="as:c"))
    with pytest.raises(InvalidParameter):
        Krr(epsilon=1, domain=["a", "b"], nulls="category")
    assert ldpsql.certify(Krr(epsilon=1, domain=["a", ""], nulls="as:")).codes(pa.nulls(1)).tolist() == [1]


@pytest.mark.parametrize(
    ("kind", "values", "texts", "others"),
    [
        ("decimal128(5, 2)", ["2.20", "1.10"], ["1.1", "1.10"], ["1.111", "x"]),
        ("timestamp[us]", ["2026-01-02", "2026-01-01"], ["2026-01-01", "2026-01-01 00:00:00"], ["2026-01-01 00:00:01", ""]),
        ("timestamp[us, tz=UTC]", ["2026-01-02 00:00Z", "2026-01-01 00:00Z"], ["2026-01-01 01:00:00+01:00"], ["2026-01-01"]),
        ("bool", ["false", "true"], ["true", "True"], ["yes"]),
        ("double", ["0.5", "1"], ["1", "1.0"], ["nan"]),
        ("string", ["01", "1"], ["1"], ["1.0"]),
    ],
)
def test_a_rule_names_a_value_as_its_type_reads_it(kind: str, values: list[str], texts: list[str], others: list[str]) -> None:
    def first(rule: str) -> list[int]:
        krr = Krr(epsilon=1, domain={"type": kind, "values": values}, nulls=f"as:{rule}")
        return list(ldpsql.certify(krr).codes(pa.nulls(1)))

    assert [first(text) for text in texts] == [[1]] * len(texts)
    for text in others:
        with pytest.raises(InvalidParameter, match="not in the domain"):
            first(text)


def test_rules_reach_the_draw() -> None:
    mechanism = Krr(epsilon=32, domain=["a", "b", "other"], nulls="as:b", outside="as:other")
    reports = list(ldpsql.perturb(pl.Series([None] * 50 + ["zz"] * 50), mechanism))
    assert reports == ["b"] * 50 + ["other"] * 50  # one lie among 100 has probability 3e-12


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", "b"]),
        pa.array([1, 2], pa.int16()),
        pa.array([dt.date(2020, 1, 1), dt.date(2021, 1, 1)]),
        pa.array([dt.datetime(2020, 1, 1), dt.datetime(2021, 1, 1)], pa.timestamp("us")),
        pa.array(["1.5", "2.5"]).cast(pa.decimal128(3, 1)),
        pa.array([True, False]),
    ],
)
def test_json_gives_the_domain_back_with_its_type(values: pa.Array) -> None:
    domain = Domain.of(values)
    again = Domain.of(domain.to_json())
    assert again == domain
    assert hash(again) == hash(domain)


@pytest.mark.parametrize("values", [pl.Series(["a", "b"]), np.array(["a", "b"]), ("a", "b"), pa.chunked_array([["a"], ["b"]])])
def test_lists_of_every_kind_are_domains(values: object) -> None:
    assert Domain.of(values).values.to_pylist() == ["a", "b"]


def test_messages_hold_no_raw_value() -> None:
    canary = "canary-7f3a"
    for column in ([canary], [canary, None], pa.array([canary]).dictionary_encode()):
        with pytest.raises(LdpError) as caught:
            ldpsql.perturb(column, Krr(epsilon=1, domain=["a", "b"]))
        assert canary not in str(caught.value)
        assert canary not in repr(caught.value.__dict__)


@pytest.mark.parametrize(("held", "code"), [("elsewhere", "LDP302"), (None, "LDP303")])
def test_a_refused_column_is_named_with_the_number_of_rows(held: str | None, code: str) -> None:
    values = pl.Series("city", ["Lima", held, "Oslo", held])
    with pytest.raises(LdpError, match=r"column 'city': .*: 2 of 4 rows read together") as caught:
        ldpsql.perturb(values, "krr(1, ['Lima', 'Oslo'])")
    assert caught.value.code == code
    assert "elsewhere" not in str(caught.value)
    batches = pa.table({"city": values.to_list()})
    with pytest.raises(LdpError, match=r"column 'city': .*: 2 of 4 rows read together"):
        list(ldpsql.perturb_batches(batches, {"city": "krr(1, ['Lima', 'Oslo'])"}))
    with pytest.raises(LdpError, match="column 'city': the column has type BIGINT"):
        ldpsql.perturb(pl.Series("city", [1]), "krr(1, ['Lima', 'Oslo'])")


@pytest.mark.parametrize("size", [1_000, 70_000])
def test_strings_are_taken_out_of_short_and_long_domains_as_they_are(size: int) -> None:
    texts = ["", "é", "\0", "a" * 12, "b" * 13, "ü" * 5_000, *(f"item number {i}" for i in range(size))]
    domain = Domain.of(pa.array(["elsewhere", *texts])[1:])  # starts within its buffers
    positions = np.r_[np.arange(len(texts)), 3, 5, 5].astype(np.int32)
    expected = [texts[i] for i in positions]
    assert domain.taken(pa.array(positions)).equals(pa.array(expected))
    assert domain.views_at(positions).to_pylist() == expected
