"""Modules for JavaScript, compared with Python: in Node here, and in a browser by `tests/test_browser.py`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from html import unescape
from pathlib import Path
from typing import Any

from ldpsql import Mechanism
from ldpsql.functions import registry
from tests.commands import printed

NODE = shutil.which("node") or shutil.which("nodejs")
NO_NODE = "there is no node here: make test-clients installs Debian's"
_TEXTS = [f"value {i}" for i in range(70)]
_NUMBERS = [i * i for i in range(70)]

# One mechanism for each structure, domain and form of reports, with words that are full and words that are not.
TEXTS = {
    "krr": f"krr(2, {_TEXTS})",
    "krr of booleans": "krr(0.5, [false, true])",
    "krr of dates": "krr(1, {'type': 'date32[day]', 'values': ['2024-01-31', '2024-02-29']})",
    "krr of fractions": "krr(1, [0.1, -2.5, 1e300])",
    "krr with rules": "krr(1, ['a', 'b', 'else'], nulls := 'as:a', outside := 'as:else')",
    "oue": f"oue(1, {_NUMBERS})",
    "oue of a full word": f"oue(1, {list(range(64))})",
    "rappor": f"rappor(2, {_TEXTS})",
    "subset_selection": f"subset_selection(1, {_TEXTS})",
    "encoding": f"encoding(1, {_TEXTS}, 'hadamard')",
    "hadamard_response": f"hadamard_response(3, {_TEXTS}, 16, 8)",
    "olh of a prime": f"olh(1, {_TEXTS})",
    "olh of a power of 2": f"olh(1, {_TEXTS}, symbols := 4)",
    "olh of a power of 3": f"olh(2, {_TEXTS}, symbols := 9)",
    "olh with private seeds": f"olh(2, {_TEXTS}, seeds := 'private')",
    "loloha": f"loloha(3, 1, {_TEXTS})",
    "matrix": "matrix(['no', 'yes'], [['0.7', '0.2', '0.1'], ['0.1', '0.2', '0.7']], reports := ['no', 'none', 'yes'])",
    "square_wave": "square_wave(1, 0, 100, bins := 24)",
    "square_wave of steps": "square_wave(1, 0, 10, step := 0.5)",
    "piecewise": "piecewise(1, -3.5, 100, bins := 20, outside := 'clip')",
    "hybrid": "hybrid(1, 0, 1, bins := 16)",
    "stochastic_rounding": "stochastic_rounding(1, 0, 100, bins := 33)",
    "laplace": "laplace(1, -5, 5, bins := 40)",
    "gaussian": "gaussian(1, 0, 6, 0.001, bins := 16)",
    "gaussian_points": "gaussian_points(1, 0.01, ['a', 'b', 'c'], [[0, 0, 1], [0, 1, 0], [1.5, 0, 0]])",
    "geometric": "geometric(1, -10, 10)",
    "truncated_geometric": "truncated_geometric(0.5, 1, 9)",
    "exponential": "exponential(1, ['a', 'b', 'c', 'd'], columns := 2)",
    "planar_geometric": "planar_geometric(1, columns := 5, rows := 4)",
    "planar_laplace": "planar_laplace(0.7, columns := 3, rows := 9)",
    "planar_geometric of many cells": "planar_geometric(1, columns := 33, rows := 32)",
    "hierarchy": "hierarchy(1, 0, 299, step := 1)",
    "hierarchy of days": "hierarchy(1, '2024-01-01', '2024-03-01')",
    "grid_hierarchy": "grid_hierarchy(1, columns := 20, rows := 13)",
    "joint_krr": "joint_krr(1, columns := {'city': ['Lima', 'Oslo', 'Rome'], 'age': [1, 2, 5], 'adult': [false, true]})",
    "joint_olh": "joint_olh(1, columns := {'city': ['Lima', 'Oslo', 'Rome'], 'age': [1, 2, 3, 4]})",
    "pckv": "pckv(1, ['book', 'film', 'game'])",
    "pckv_grr": "pckv_grr(2, [3, 4, 5, 6, 7], padding := 3, low := 0, high := 5, clip := true)",
    "pckv_ue": f"pckv_ue(1, {_TEXTS}, padding := 2, steps := 10)",
    "pckv_pm": "pckv_pm(3, ['book', 'film'], bins := 16)",
    "pckv_pm_ue": "pckv_pm_ue(1, ['book', 'film', 'game'], bins := 24, nulls := 'drop', outside := 'drop')",
    "row": f"row(a := oue(1, {_TEXTS}), b := olh(1, [1, 2, 3], seeds := 'private'), c := square_wave(1, 0, 10, bins := 8))",
    "one_of": f"one_of(a := oue(1, {_TEXTS}), b := olh(1, [1, 2, 3]), c := laplace(1, 0, 10, bins := 8))",
}

# Mechanisms with many bins or cells.
LARGE = {
    "square_wave of 1,024 bins": "square_wave(1, 0, 100)",
    "piecewise of 1,024 bins": "piecewise(4, 0, 100)",
    "hybrid of 1,024 bins": "hybrid(1, 0, 100)",
    "stochastic_rounding of 1,024 bins": "stochastic_rounding(1, 0, 100)",
    "laplace of 1,024 bins": "laplace(1, 0, 100, bins := 1024)",
    "gaussian of 256 bins": "gaussian(1, 0, 100, 0.001)",
    "geometric of 1,024 values": "geometric(0.01, 0, 1023)",
    "pckv_pm of 1,024 bins": "pckv_pm(1, ['book', 'film'], bins := 1024)",
    "planar_geometric of 1,024 cells": "planar_geometric('0.3', columns := 32, rows := 32)",
    "planar_laplace of 1,024 cells": "planar_laplace(2, columns := 8, rows := 128)",
    "planar_laplace of 10,000 cells": "planar_laplace('0.4', columns := 100, rows := 100)",
    "planar_geometric of long steps": "planar_geometric(32, columns := 100, rows := 100, side := 3)",
}

# What both programs run: it takes modules with their vectors, and returns the first reports that differ, by name.
COMPARE = """
async function compare(cases, load) {
  const differing = {};
  for (const [name, source] of Object.entries(cases.modules)) {
    const made = await load(name, source);
    for (const { value, words, report } of cases.vectors[name]) {
      let drawn;
      try { drawn = JSON.stringify(made.reportOf(value, words.map((word) => BigInt("0x" + word)))); }
      catch (error) { drawn = String(error); }
      if (drawn !== JSON.stringify(report)) (differing[name] ??= []).push([value, drawn, JSON.stringify(report)]);
    }
  }
  return differing;
}
"""
_RUN = """
import { readFileSync, writeFileSync } from "node:fs";
const cases = JSON.parse(readFileSync("cases.json", "utf8"));
const load = (name, source) => {
  const file = encodeURIComponent(name) + ".mjs";
  writeFileSync(file, source);
  return import(new URL(encodeURIComponent(file), import.meta.url));
};
console.log(JSON.stringify(await compare(cases, load)));
"""


def mechanism(name: str) -> Mechanism:
    """Return one of the mechanisms."""
    return registry().mechanism((TEXTS | LARGE)[name])


def module(one: Mechanism) -> str:
    """Return the module of a mechanism."""
    return printed("export-client", "-m", str(one))


def vectors(one: Mechanism, count: int) -> list[dict[str, Any]]:
    """Return values, the words that draw their reports, and the reports."""
    return [json.loads(line) for line in printed("vectors", "-m", str(one), "-n", str(count)).splitlines()]


def cases(names: Iterable[str], count: int) -> dict[str, Any]:
    """Return the modules of mechanisms, and vectors of each."""
    made = {name: mechanism(name) for name in names}
    return {
        "modules": {name: module(one) for name, one in made.items()},
        "vectors": {name: vectors(one, count) for name, one in made.items()},
    }


def with_a_fault() -> dict[str, Any]:
    """Return the module of k-RR that moves a value by one too much, and its right vectors."""
    planted = cases(["krr"], 60)
    source = planted["modules"]["krr"]
    planted["modules"]["krr"] = source.replace("size-1)+1", "size-1)+2")
    assert planted["modules"]["krr"] != source
    return planted


def node(program: str, folder: Path) -> str:
    """Run a program in Node and return what it writes."""
    (folder / "program.mjs").write_text(program, encoding="utf-8")
    command = [str(NODE), "program.mjs"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


_PAGE = """<!doctype html><meta charset=utf-8><body><script type=module>
const cases = CASES;
const load = (name, source) => import(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
COMPARE
const out = document.createElement("pre");
out.id = "result";
const differing = await compare(cases, load).catch((error) => String(error));
out.textContent = JSON.stringify(differing);
document.body.replaceChildren(out);
</script>"""


def in_browser(chromium: str, of: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the draws that differ in a browser, by mechanism."""
    page = folder / "clients.html"
    held = json.dumps(of).replace("</", "<\\/")
    page.write_text(_PAGE.replace("COMPARE", COMPARE).replace("CASES", held), encoding="utf-8")
    command = [
        *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--dump-dom"),
        *("--disable-component-update", "--disable-sync", "--no-first-run", "--virtual-time-budget=20000"),
        *(f"--user-data-dir={folder / 'empty'}", page.as_uri()),
    ]
    drawn = subprocess.run(command, check=True, capture_output=True, timeout=600, text=True).stdout
    result = re.search(r'<pre id="result">(.*?)</pre>', drawn, re.DOTALL)
    assert result, drawn[-2000:]
    return dict(json.loads(unescape(result[1])))


def compared(of: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the draws that differ in Node, by mechanism."""
    (folder / "cases.json").write_text(json.dumps(of), encoding="utf-8")
    return dict(json.loads(node(COMPARE + _RUN, folder)))
