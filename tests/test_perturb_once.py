"""Permanent reports: the same for the same person and value, of the certified channel, and bound to a key nobody sees."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection
from scipy import stats

import ldpsql
from ldpsql import Key, certify
from ldpsql.errors import InvalidParameter, KeyUnusable
from ldpsql.functions import registry
from ldpsql.ledger import permanent as keyed_streams

FALSE_ALARM = 1e-6
TEXTS = {
    "krr": "krr(epsilon=1, domain=['a', 'b', 'c'])",
    "geometric": "geometric(epsilon=1, low=0, high=4)",
    "oue": "oue(epsilon=1, domain=['a', 'b', 'c'])",
    "olh": "olh(epsilon=1, domain=['a', 'b', 'c'])",
    "subset_selection": "subset_selection(epsilon=1, domain=['a', 'b', 'c', 'd', 'e'])",
}

GOLDEN: dict[str, list[object]] = {
    "krr": ["b", "c", "b", "a", "c", "b", "b", "a", "c", "b", "b", "a"],
    "geometric": [0, 1, 1, -2, -1, -1, 2, 0, 2, 1, 1, 1],
    "oue": [[2], [6], [0], [0], [3], [2], [4], [2], [0], [6], [1], [2]],
    "olh": [
        {"seed": 0, "y": 1},
        {"seed": 0, "y": 1},
        {"seed": 0, "y": 2},
        {"seed": 0, "y": 1},
        {"seed": 0, "y": 2},
        {"seed": 0, "y": 0},
        {"seed": 0, "y": 1},
        {"seed": 0, "y": 2},
        {"seed": 0, "y": 2},
        {"seed": 0, "y": 0},
        {"seed": 0, "y": 0},
        {"seed": 0, "y": 2},
    ],
    "subset_selection": [[2], [4], [2], [2], [2], [2], [1], [2], [8], [16], [1], [16]],
}
IN_STEP = {
    "krr": "krr(epsilon=1, domain=['a', 'b', 'c'])",
    "olh": "olh(epsilon=1, domain=['a', 'b', 'c'], seeds='private')",
    "square_wave": "square_wave(epsilon=1, low=0, high=1, bins=8)",
    "geometric": "geometric(epsilon=1, low=0, high=4)",
    "planar_geometric": "planar_geometric(epsilon=1, columns=3, rows=3, side=1)",
}


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    Key.create(tmp_path / "key")
    return tmp_path / "key"


@pytest.fixture
def keyed(key_file: Path) -> DuckDBPyConnection:
    con = ldpsql.connect(key=key_file)
    con.execute("CREATE MACRO city() AS ldp.krr(1.0, ['a', 'b', 'c'])")
    return con


def ids(count: int) -> pa.Array:
    return pa.array([str(number).encode() for number in range(count)], pa.large_binary())


def rows(con: DuckDBPyConnection, sql: str) -> list[tuple[object, ...]]:
    return con.execute(sql).fetchall()


def test_the_same_person_and_value_give_the_same_report(keyed: DuckDBPyConnection, key_file: Path) -> None:
    sql = "SELECT i, ldp.perturb_once(['a', 'b'][1 + i % 2], city(), i) FROM range({}) t(i) ORDER BY i"
    first = rows(keyed, sql.format(5000))
    assert rows(keyed, sql.format(5000)) == first
    with ldpsql.connect(key=key_file) as later:  # next to other rows, other threads, another connection
        later.execute("CREATE MACRO city() AS ldp.krr(1.0, ['a', 'b', 'c'])")
        assert rows(later, sql.format(700)) == first[:700]


@pytest.mark.parametrize("mechanism", TEXTS)
def test_reports_do_not_depend_on_the_other_rows(key_file: Path, mechanism: str) -> None:
    key, certified = Key.read(key_file), certify(registry().mechanism(TEXTS[mechanism]))
    column = certified.values.listed.values.take(pa.array(np.arange(60) % len(certified.values.listed)))
    together = key.draw(certified, column, ids(60), "")
    apart = np.concatenate([key.draw(certified, column.slice(at, 1), ids(60).slice(at, 1), "") for at in range(60)])
    assert (together == apart).all()


def test_another_person_value_column_mechanism_or_key_has_a_report_of_its_own(tmp_path: Path) -> None:
    """Under a shared source reports would agree more often than independent ones do: 10,000 pairs, binomial, 1e-6 each."""
    certified = certify(registry().mechanism("krr(epsilon=1, domain=['a', 'b', 'c'])"))
    wider = certify(registry().mechanism("krr(epsilon=1, domain=['a', 'b', 'c', 'd'])"))
    key, other_key = Key.create(tmp_path / "one"), Key.create(tmp_path / "two")
    n = 10_000
    a, b, people = pa.array(["a"] * n), pa.array(["b"] * n), ids(2 * n)
    base = key.draw(certified, a, people[:n], "")
    keep, lie = np.e / (np.e + 2), 1 / (np.e + 2)
    same_value, other_value = keep**2 + 2 * lie**2, 2 * keep * lie + lie**2
    pairs = [
        (key.draw(certified, a, people[n:], ""), same_value),
        (key.draw(certified, b, people[:n], ""), other_value),
        (key.draw(certified, a, people[:n], "home"), same_value),
        (other_key.draw(certified, a, people[:n], ""), same_value),
    ]
    agreed = (key.draw(wider, a, people[:n], "") == base).sum()  # of a larger domain: both keep, or both tell the same lie
    chance = keep * np.e / (np.e + 3) + 2 * lie / (np.e + 3)
    low, high = stats.binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], n, chance)
    assert low <= agreed <= high
    for drawn, chance in pairs:
        low, high = stats.binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], n, chance)
        assert low <= (drawn == base).sum() <= high


@pytest.mark.parametrize("mechanism", ["krr", "geometric"])
def test_the_channel_is_the_certified_one(key_file: Path, mechanism: str) -> None:
    """Chi-square of 20,000 people with one value against the exact row of the channel, 1e-6."""
    key, certified = Key.read(key_file), certify(registry().mechanism(TEXTS[mechanism]))
    n = 20_000
    drawn = key.draw(certified, certified.values.listed.values.take(pa.array(np.ones(n, dtype=np.int64))), ids(n), "")
    expected = certified.response.probabilities()[1] * n  # type: ignore[attr-defined]  # both list their reports
    often = np.flatnonzero(expected >= 50)  # one of the others may turn up that is expected a thousandth of a time
    cell = often[np.searchsorted(often, np.arange(len(expected))).clip(max=len(often) - 1)]
    observed = np.bincount(cell[drawn], minlength=len(expected))[often]
    assert stats.chisquare(observed, np.bincount(cell, weights=expected)[often]).pvalue > FALSE_ALARM


@pytest.mark.parametrize("name", TEXTS)
def test_a_report_is_the_same_in_the_next_version(name: str) -> None:
    """Changing these would give everybody a second report: that is a new mechanism, and needs a new name."""
    certified = certify(registry().mechanism(TEXTS[name]))
    column = certified.values.listed.values.take(pa.array([1] * 12))
    drawn = Key(bytes(range(32))).draw(certified, column, ids(12), "city")
    assert certified.shown(drawn).to_pylist() == GOLDEN[name]


ALIKE = {
    "another order": ("krr(epsilon=1, domain=[1, 2, 3, 4])", "krr(epsilon=1, domain=[3, 1, 4, 2])", pa.int64()),
    "another type": ("krr(epsilon=1, domain=[1, 2, 3, 4])", "krr(epsilon=1, domain=[1, 2, 3, 4])", pa.int8()),
    "a decimal": ("krr(epsilon=1, domain=[1, 2, 3, 4])", "krr(epsilon=1, domain=[1, 2, 3, 4])", pa.decimal128(21, 2)),
    "a rule for NULL": ("krr(epsilon=1, domain=[1, 2, 3, 4])", "krr(epsilon=1, domain=[1, 2, 3, 4], nulls='as:2')", pa.int64()),
    "a rule for others": (
        "olh(epsilon=1, domain=[1, 2, 3, 4])",
        "olh(epsilon=1, domain=[1, 2, 3, 4], outside='as:2')",
        pa.int64(),
    ),
}


@pytest.mark.parametrize("change", ALIKE)
def test_reports_depend_on_the_channel_and_the_value_only(key_file: Path, change: str) -> None:
    first, second, kind = ALIKE[change]
    key, values = Key.read(key_file), pa.array([1 + at % 4 for at in range(4000)])
    reports = []
    for text, column in ((first, values), (second, values.cast(kind))):
        certified = certify(registry().mechanism(text))
        reports.append(certified.shown(key.draw(certified, column, ids(4000), "city")).to_pylist())
    assert reports[0] == reports[1]


def test_a_domain_declared_in_another_type_keeps_its_reports(keyed: DuckDBPyConnection) -> None:
    sql = "SELECT ldp.perturb_once(1 + i % 4, ldp.krr(1, [1, 2, 3, 4]{}), i)::INT FROM range(2000) t(i) ORDER BY i"
    assert rows(keyed, sql.format("")) == rows(keyed, sql.format("::UTINYINT[]")) == rows(keyed, sql.format("::BIGINT[]"))


@pytest.mark.parametrize("name", [name for name in registry().mechanisms if name in IN_STEP])
def test_channels_that_draw_in_step_ask_for_one_word_a_row(name: str) -> None:
    certified = certify(registry().mechanism(IN_STEP[name]))
    column = certified.values.listed.values.take(pa.array(np.arange(5000) % len(certified.values.listed)))
    key = Key(bytes(32))
    together = key.draw(certified, column, ids(5000), "")
    for at in (0, 4095, 4096, 4999):
        assert (key.draw(certified, column[at : at + 1], ids(5000)[at : at + 1], "") == together[at : at + 1]).all()


@pytest.mark.parametrize(("name", "size", "rows"), [("oue", 100, 4100), ("subset_selection", 600, 1750)])
def test_sets_of_many_people_are_drawn_abreast_as_one_by_one(
    name: str, size: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    certified = certify(registry().mechanism(f"{name}(epsilon=1, domain={list(range(size))})"))
    column, key = certified.values.listed.values.take(pa.array(np.arange(rows) % size)), Key(bytes(32))
    together = key.draw(certified, column, ids(rows), "")
    for at in (0, 1746, 1747, rows - 1):  # 2**20 // 600 = 1747
        assert (key.draw(certified, column[at : at + 1], ids(rows)[at : at + 1], "") == together[at : at + 1]).all()
    half = keyed_streams._needed(certified.channel) // 2  # type: ignore[arg-type]  # then reports need more words, as those with equal keys do
    monkeypatch.setattr(keyed_streams, "_needed", lambda _: half)
    assert (key.draw(certified, column[:20], ids(20), "") == together[:20]).all()


def test_null_users_and_values_are_refused(keyed: DuckDBPyConnection) -> None:
    for sql in ("SELECT ldp.perturb_once('a', city(), NULL::VARCHAR)", "SELECT ldp.perturb_once(NULL, city(), 1)"):
        with pytest.raises(duckdb.InvalidInputException, match="LDP303"):
            rows(keyed, sql)


def test_without_a_key_nothing_is_drawn(con: DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.InvalidInputException, match="LDP321"):
        rows(con, "SELECT ldp.perturb_once('Lima', city(), 1)")


def test_the_key_shows_nowhere(keyed: DuckDBPyConnection, key_file: Path) -> None:
    secret = key_file.read_text().split()[1]
    texts = [repr(Key.read(key_file)), str(Key.read(key_file))]
    texts += [str(rows(keyed, f"EXPLAIN {how} SELECT ldp.perturb_once('a', city(), 1)")) for how in ("", "ANALYZE")]
    texts += [str(rows(keyed, "SELECT macro_definition FROM duckdb_functions()"))]
    assert not any(secret in text or repr(bytes.fromhex(secret))[2:20] in text for text in texts)


def test_a_key_is_not_pickled(key_file: Path) -> None:
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(KeyUnusable, match="another process"):
            copied(Key.read(key_file))


@pytest.mark.parametrize("name", ["pckv", "pckv_grr", "pckv_pm"])
def test_sets_of_pairs_have_no_permanent_reports(keyed: DuckDBPyConnection, name: str) -> None:
    with pytest.raises(duckdb.InvalidInputException, match=r"LDP103.*sets of pairs"):
        rows(keyed, f"SELECT ldp.perturb_once(MAP {{'a': 0.5}}, ldp.{name}(1, ['a', 'b']), 1)")


def test_a_lost_damaged_shared_or_other_key_is_reported(key_file: Path, tmp_path: Path) -> None:
    right = Key.read(key_file).fingerprint
    with pytest.raises(KeyUnusable, match=r"there is no key file .*nowhere"):
        Key.read(tmp_path / "nowhere")
    with pytest.raises(KeyUnusable, match="the key file already exists"):
        Key.create(key_file)
    with pytest.raises(KeyUnusable, match="not the key"):
        Key.read(key_file, "0" * 16)
    assert Key.read(key_file, right).fingerprint == right
    text = key_file.read_text()
    for damage in ("", text[:40], text.replace(text[20], "f" if text[20] != "f" else "e", 1), "x" * 100, text.upper()):
        key_file.write_text(damage)
        with pytest.raises(KeyUnusable, match="damaged"):
            Key.read(key_file)
    key_file.write_text(text)
    key_file.chmod(0o640)
    with pytest.raises(KeyUnusable, match="read by others"):
        Key.read(key_file)


def test_a_key_that_is_not_one_and_a_mechanism_that_is_null_are_refused(keyed: DuckDBPyConnection) -> None:
    with pytest.raises(InvalidParameter):
        ldpsql.connect(key=b"0" * 32)  # type: ignore[arg-type]
    with pytest.raises(duckdb.Error, match="LDP104"):
        keyed.execute("SELECT ldp.perturb_once('a', (SELECT m FROM (SELECT city() AS m) WHERE m IS NULL), 1)")
