"""Modules for JavaScript: they draw Python's reports from the same words, and refuse what Python refuses."""

from __future__ import annotations

import json
import re
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ldpsql import Channel, certify
from ldpsql.channels import STRUCTURES, Weights
from ldpsql.clients import module as modules
from ldpsql.clients.module import _in_step, _one_by_one, vectors
from ldpsql.errors import LdpError, NotApplicable
from ldpsql.functions import registry
from ldpsql.mechanisms import BinBits, KeepOrWindow, Levels, Prefixes, SignedBits, certify_values
from tests import clients, seeds
from tests.clients import module
from tests.commands import printed, run

needs_node = pytest.mark.skipif(clients.NODE is None, reason=clients.NO_NODE)
MOST = 10_000  # bytes of a module with a short domain


@pytest.mark.slow
@needs_node
def test_node_draws_the_reports_of_python_from_the_same_words(tmp_path: Path) -> None:
    assert clients.compared(clients.cases(clients.TEXTS, 60), tmp_path) == {}


@needs_node
def test_a_planted_fault_is_found(tmp_path: Path) -> None:
    assert clients.compared(clients.with_a_fault(), tmp_path).keys() == {"krr"}


CHANNELS = {name: certify(clients.mechanism(name)).channel for name in clients.TEXTS}
IN_STEP = [name for name, channel in CHANNELS.items() if isinstance(channel, Channel) and channel.in_step]


@pytest.mark.parametrize("name", IN_STEP)
def test_vectors_of_values_drawn_together_are_those_of_each_drawn_by_itself(name: str) -> None:
    channel = certify_values(clients.mechanism(name)).channel
    positions = np.arange(channel.inputs, dtype=np.int32)
    together, used = _in_step(channel, positions, seeds.words)
    words = iter([word for row in used for word in row])
    alone, _ = _one_by_one(channel, positions, lambda count: np.array([next(words) for _ in range(count)], dtype=np.uint64))
    assert alone.tolist() == together.tolist()
    assert next(words, None) is None


@pytest.mark.parametrize("name", clients.TEXTS)
def test_a_module_of_a_short_domain_has_at_most_ten_kilobytes(name: str) -> None:
    assert len(module(clients.mechanism(name)).encode()) <= MOST


@pytest.mark.parametrize("name", clients.LARGE)
def test_a_module_of_many_bins_has_at_most_ten_kilobytes(name: str) -> None:
    assert len(module(clients.mechanism(name)).encode()) <= MOST


_OTHERS = ("planar", "pckv")
LARGE = ["hybrid of 1,024 bins", "laplace of 1,024 bins", *(name for name in clients.LARGE if name.startswith(_OTHERS))]


@pytest.mark.slow
@needs_node
def test_node_draws_the_reports_of_many_bins(tmp_path: Path) -> None:
    assert clients.compared(clients.cases(LARGE, 60), tmp_path) == {}


def test_every_part_is_used_by_some_mechanism() -> None:
    used = {
        part for name in clients.TEXTS for part in modules._parts(modules._described(modules.exported(clients.mechanism(name))))
    }
    assert used == set(modules.sources())
    made = {type(certify(clients.mechanism(name)).channel) for name in clients.TEXTS}
    inner = {SignedBits, BinBits, KeepOrWindow}  # of sets of pairs, with which `test_every_part_is_used` deals
    assert made == {*STRUCTURES} - inner - {Prefixes}


def test_a_module_can_stand_in_a_page_whatever_its_values_are() -> None:
    mechanism = registry().mechanism("krr(1, ['</script>', '<!--'])")
    source = module(mechanism)
    assert "</" not in source
    assert "<!" not in source
    (literal,) = re.findall(r"^const mechanism = (.*);$", source, re.MULTILINE)
    assert json.loads(literal)["values"]["values"] == ["</script>", "<!--"]


def test_a_module_has_no_dependency_and_no_other_source_of_random_bits() -> None:
    for name in clients.TEXTS:
        source = module(clients.mechanism(name))
        assert "Math.random" not in source
        assert source.count("import(") == 1  # Node's own, in versions without a global one
        assert "import " not in source


PLACES = """
import * as fs from "node:fs";
const { texts, columns } = JSON.parse(fs.readFileSync("columns.json"));
const out = {};
for (const name of Object.keys(columns)) {
  fs.writeFileSync("m.mjs", texts[name] + "\\nexport const place = positions(mechanism.values);");
  const { place } = await import("./m.mjs?" + encodeURIComponent(name));
  out[name] = columns[name].map((value) => {
    try { return place(value); } catch (error) { return error instanceof RangeError ? error.message : String(error); }
  });
}
console.log(JSON.stringify(out));
"""
EDGES = [0, 0.1, 0.25, 0.5, 1, 3, 3.5, 4, 8.75, 9.5, 10, 10.5, -0.0, -0.1, -3.5, 50, 99.99, 100, 100.1, 1e300, -1e300]


@needs_node
def test_a_module_finds_the_positions_that_python_finds(tmp_path: Path) -> None:
    numbers = ("square_wave", "square_wave of steps", "piecewise", "geometric", "truncated_geometric", "krr of fractions")
    held: dict[str, list[object]] = {name: [*EDGES, None] for name in numbers}
    held["krr with rules"] = ["a", "b", "else", "c", "", None]
    held["krr of booleans"] = [True, False, None]
    held["krr"] = ["value 1", "value", None]
    texts = {name: module(clients.mechanism(name)) for name in held}
    (tmp_path / "columns.json").write_text(json.dumps({"texts": texts, "columns": held}), encoding="utf-8")
    places = json.loads(clients.node(PLACES, tmp_path))
    for name, column in held.items():
        assert places[name] == [python_place(name, value) for value in column], name


def python_place(name: str, value: object) -> object:
    certified = certify(clients.mechanism(name))
    kind = certified.values.listed.values.type
    try:
        return int(certified.codes(pa.array([value], kind if value is None else None))[0])
    except LdpError:
        return "a missing value was to be perturbed" if value is None else "a value is outside the declared domain"


@needs_node
def test_days_may_be_dates_or_text_with_a_zone_or_without(tmp_path: Path) -> None:
    (tmp_path / "m.mjs").write_text(
        module(clients.mechanism("hierarchy of days")) + "\nexport const place = positions(mechanism.values);", "utf-8"
    )
    program = """
    import { place } from "./m.mjs";
    const days = ["2024-01-02", "2024-01-02 23:59:59", "2024-01-02T23:59:59.5", "2024-01-03T01:00:00+02:00"];
    const tried = (text) => { try { return place(text); } catch { return -1; } };
    const others = ["2024-02-30", "2024-1-2", "01/02/2024", "2024", "2024-01", "Jan 2, 2024", "2024-01-02Z", "2024-13-01"];
    const refused = ["2023-12-31", "never", "", "2024-03-02", ...others].map(tried);
    console.log(JSON.stringify([...days.map(place), place(new Date(Date.UTC(2024, 0, 2, 12))), ...refused]));
    """
    assert json.loads(clients.node(program, tmp_path)) == [1] * 5 + [-1] * 12


@needs_node
@pytest.mark.parametrize(
    ("domain", "same", "others"),
    [
        (pa.array([Decimal("1.50"), Decimal("20.00")]), '[20, "20", "20.0", "20.00"]', '[2, "2", "200", "0020", 20.001, "x"]'),
        (pa.array([date(2024, 1, 1), date(2024, 1, 2)]), '["2024-01-02", new Date("2024-01-02")]', '["2024-1-2", new Date(0)]'),
        (
            pa.array([datetime(2024, 1, 1), datetime(2024, 1, 2, 10)]),  # a TIMESTAMP has no zone
            '["2024-01-02 10:00:00", "2024-01-02T10:00:00.000", new Date("2024-01-02T10:00:00Z")]',
            '["2024-01-02 10:00:00.5", "2024-01-02 01:00:00", new Date(0), new Date("x")]',
        ),
        (["1.50", "1.5"], '["1.5", 1.5]', '["1.500"]'),
    ],
)
def test_a_listed_value_is_itself_however_it_is_written(domain: object, same: str, others: str, tmp_path: Path) -> None:
    made = registry().mechanism({"mechanism": "krr", "epsilon": 1, "domain": domain})
    (tmp_path / "m.mjs").write_text(module(made) + "\nexport const place = positions(mechanism.values);", "utf-8")
    program = f"""
    import {{ place }} from "./m.mjs";
    const tried = (value) => {{ try {{ return place(value); }} catch {{ return -1; }} }};
    console.log(JSON.stringify([{same}.every((value) => tried(value) === 1), {others}.every((value) => tried(value) === -1)]));
    """
    assert json.loads(clients.node(program, tmp_path)) == [True, True]


@needs_node
def test_reports_follow_the_channel_with_the_random_words_of_node(tmp_path: Path) -> None:
    """A share of 20,000 reports lies within 5.1 standard errors: one false alarm in about 3 million."""
    (tmp_path / "m.mjs").write_text(module(registry().mechanism("krr(1, ['a', 'b', 'c'])")), "utf-8")
    program = """
    import { report } from "./m.mjs";
    let kept = 0;
    for (let i = 0; i < 20000; i++) kept += report("a") === "a";
    console.log(kept);
    """
    hit = float(certify(registry().mechanism("krr(1, ['a', 'b', 'c'])")).channel.hit)  # type: ignore[union-attr]
    assert abs(int(clients.node(program, tmp_path)) / 20_000 - hit) < 5.1 * (hit * (1 - hit) / 20_000) ** 0.5


def test_a_module_larger_than_allowed_is_not_written(tmp_path: Path) -> None:
    made = tmp_path / "city.mjs"
    command = ["export-client", "-m", "krr(1, ['Lima', 'Oslo'])", "-o", str(made)]
    with pytest.raises(NotApplicable, match=r"bytes, and at most 100 are allowed"):
        printed(*command, "--max-bytes", "100")
    assert not made.exists()
    printed(*command, "--max-bytes", "10000")
    assert made.stat().st_size <= 10_000


def test_strings_that_are_not_listed_are_refused() -> None:
    for write in (module, lambda one: clients.vectors(one, 1)):
        with pytest.raises(NotApplicable, match="modules are for single values, rows of them and sets of pairs"):
            write(registry().mechanism("pem(1)"))


SETS: list[Any] = [
    [],
    [["a", 0.3]],
    [["b", 5], ["a", 0]],
    [["a", 1], ["a", 2]],
    [["c", 1]],
    [["a", 6]],
    [["a", -0.1]],
    None,
    [["a", None]],
    [[None, 1]],
    [["c", 9], ["b", 1]],
]
RULES = ["", ", clip := true", ", nulls := 'drop'", ", outside := 'drop'", ", clip := true, nulls := 'drop', outside := 'drop'"]


@needs_node
def test_a_module_reads_the_sets_that_python_reads(tmp_path: Path) -> None:
    texts = {rules: f"pckv(1, ['a', 'b'], low := 0, high := 5{rules})" for rules in RULES}
    written = [None if one is None else [{"key": key, "value": value} for key, value in one] for one in SETS]
    cases = {rules: module(registry().mechanism(text)) for rules, text in texts.items()}
    given = json.dumps({"texts": cases, "columns": dict.fromkeys(texts, written)})
    (tmp_path / "columns.json").write_text(given, encoding="utf-8")
    places = json.loads(clients.node(PLACES, tmp_path))
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.float64())]))
    for rules, text in texts.items():
        values = registry().mechanism(text).values()
        for one, seen in zip(written, places[rules], strict=True):
            try:
                sets = values.sets(pa.array([one], kind))  # type: ignore[union-attr]
            except LdpError:
                assert isinstance(seen, str), (rules, one)
                assert not re.search(r"[0-9]|'", seen)
            else:
                assert seen == [[int(key), float(place)] for key, place in zip(sets.keys, sets.places, strict=True)]


@needs_node
def test_a_module_takes_a_map_and_an_object_for_a_set(tmp_path: Path) -> None:
    (tmp_path / "m.mjs").write_text(module(registry().mechanism("pckv(1, ['a', 'b'])")), encoding="utf-8")
    sets = "[{ key: 'b', value: 0.5 }], new Map([['b', 0.5]]), { b: 0.5 }"
    program = f"import {{ reportOf }} from './m.mjs'; console.log([{sets}].map((set) => reportOf(set, [0n, 0n, 0n])[0]).join())"
    assert len(set(clients.node(program, tmp_path).strip().split(","))) == 1


@needs_node
def test_a_module_refuses_what_is_not_a_set_even_if_missing_and_unknown_pairs_are_dropped(tmp_path: Path) -> None:
    mechanism = registry().mechanism("pckv(1, ['a', 'b'], nulls := 'drop', outside := 'drop')")
    (tmp_path / "m.mjs").write_text(module(mechanism), encoding="utf-8")
    program = """
    import { report } from "./m.mjs";
    const refused = (set) => { try { report(set); return ""; } catch (error) { return `${error.name}: ${error.message}`; } };
    const sets = [5, "a", true, new Set(["a"]), new Date(), [["a", 1]], ["a"], [5], null, [null], [], {}];
    console.log(JSON.stringify(sets.map(refused)));
    """
    message = "RangeError: a set must be a Map, a list of { key, value } or an object"
    assert json.loads(clients.node(program, tmp_path)) == [message] * 8 + [""] * 4


def test_the_commands_write_a_document_its_vectors_and_its_module(tmp_path: Path) -> None:
    made = run("describe", "-m", "krr(1, ['a', 'b'])", "-o", "city.json", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    drawn = run("vectors", "-m", "city.json", "-n", "7", cwd=tmp_path)
    lines = [json.loads(line) for line in drawn.stdout.splitlines()]
    assert [line.keys() for line in lines] == [{"value", "position", "words", "report"}] * 7
    written = run("export-client", "-m", "city.json", "-o", "city.mjs", cwd=tmp_path)
    assert "bytes" in written.stderr
    assert (tmp_path / "city.mjs").read_text(encoding="utf-8") == module(registry().mechanism("krr(1, ['a', 'b'])"))


@needs_node
def test_subsets_whose_keys_are_equal_are_drawn_again_as_in_python(tmp_path: Path) -> None:
    mechanism = registry().mechanism("subset_selection(1, ['a', 'b', 'c', 'd'])")
    given = iter([(1 << 64) - 1, 5, 5, 7, 3, 9, 8])  # the value is not held; then keys of the others until the smallest differs
    listed = list(vectors(mechanism, 1, lambda count: np.array([next(given) for _ in range(count)], dtype=np.uint64)))
    assert next(given, None) is None
    cases = {"modules": {"subset": module(mechanism)}, "vectors": {"subset": listed}}
    assert clients.compared(cases, tmp_path) == {}


@needs_node
def test_words_near_the_edge_of_a_seed_take_further_bits_as_in_python(tmp_path: Path) -> None:
    mechanism = clients.mechanism("hierarchy")
    channel = modules.exported(mechanism).channel
    assert isinstance(channel, Levels)
    counts = [getattr(response, "seeds", 1) for response in channel.responses]
    halves = [
        (level, (seed << 32) // count) for level, count in enumerate(counts) for seed in range(1, count + 1, 1 + count // 9)
    ]
    near = [(min(half, (1 << 32) - 1) - below, level) for level, half in halves for below in (0, 1)]
    firsts = iter([half << 32 | -(-(level << 32) // len(counts)) for half, level in near])
    taken: list[int] = []

    def words(count: int) -> Weights:
        taken.append(count)
        return seeds.words(count) if len(taken) % 3 != 1 else np.array([next(firsts)], dtype=np.uint64)

    listed = list(vectors(mechanism, len(near), words))
    assert {len(one["words"]) for one in listed} == {3}  # near an edge, further bits, and the response
    cases = {"modules": {"hierarchy": module(mechanism)}, "vectors": {"hierarchy": listed}}
    assert clients.compared(cases, tmp_path) == {}
