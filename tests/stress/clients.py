"""Modules for JavaScript against Python, over many words: in Node, and in chromium where there is one.

python -m tests.stress.clients --words 1000000
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ldpsql.clients.module import module, vectors
from tests import clients

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_PART = 200_000  # words at a time
_RATE = """
const { report } = await import("./module.mjs");
let count = 1000, taken = 0;
while (taken < 300) {
  count *= 2;
  const start = performance.now();
  for (let i = 0; i < count; i++) report(VALUE);
  taken = performance.now() - start;
}
console.log(Math.round(count / taken * 1000));
"""


def parts(name: str, words: int) -> Iterator[list[dict[str, Any]]]:
    """Yield vectors of a mechanism, some at a time, until they have used so many words."""
    used, part, listed = 0, 0, []
    for one in vectors(clients.mechanism(name), words):
        listed.append(one)
        part += len(one["words"])
        if part >= min(_PART, words - used):
            yield listed
            used, part, listed = used + part, 0, []
        if used >= words:
            return


def differing(name: str, listed: list[dict[str, Any]]) -> tuple[int, int]:
    """Return how many reports differ in Node and in chromium, where there is one."""
    cases = {"modules": {name: module(clients.mechanism(name))}, "vectors": {name: listed}}
    with tempfile.TemporaryDirectory() as folder:
        node = clients.compared(cases, Path(folder))
        browser = {} if CHROMIUM is None else clients.in_browser(CHROMIUM, cases, Path(folder))
    return len(node.get(name, [])), len(browser.get(name, []))


def rate(name: str) -> int:
    """Return how many reports Node draws in a second."""
    (one,) = vectors(clients.mechanism(name), 1)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "module.mjs").write_text(module(clients.mechanism(name)), encoding="utf-8")
        return int(clients.node(_RATE.replace("VALUE", json.dumps(one["value"])), Path(folder)))


def compare(name: str, words: int) -> int:
    """Compare one mechanism, write a line, and return how many reports differ."""
    used = draws = node = browser = 0
    for listed in parts(name, words):
        wrong = differing(name, listed)
        node, browser = node + wrong[0], browser + wrong[1]
        used, draws = used + sum(len(one["words"]) for one in listed), draws + len(listed)
    seen = f"{browser} in chromium" if CHROMIUM else "there is no chromium here"
    size = len(module(clients.mechanism(name)).encode())
    print(f"{name}: {used:,} words, {draws:,} reports, {node} differ in Node, {seen}; {size:,} bytes, {rate(name):,} reports/s")
    sys.stdout.flush()
    return node + browser


def main() -> None:
    """Compare mechanisms; end with 1 if a report differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--words", type=int, default=20_000)
    parser.add_argument("--only", nargs="*", default=[*clients.TEXTS, *clients.LARGE])
    options = parser.parse_args()
    if clients.NODE is None:
        print(clients.NO_NODE)
        return
    sys.exit(sum(compare(name, options.words) for name in options.only) > 0)


if __name__ == "__main__":
    main()
