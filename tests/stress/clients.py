"""Modules for JavaScript against Python, over many words: in Node, and in chromium where there is one.

python -m tests.stress.clients --words 1000000
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ldpsql.clients.module import module, vectors
from tests import clients

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_BATCH = 200_000  # words that one process of Node or chromium draws from
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


def batches(names: Iterable[str], words: int) -> Iterator[dict[str, list[dict[str, Any]]]]:
    """Yield vectors by mechanism, which use so many words of each, in batches of about `_BATCH` words."""
    batch, size = defaultdict[str, list[dict[str, Any]]](list), 0
    for name in names:
        used = 0
        for one in vectors(clients.mechanism(name), words):
            batch[name].append(one)
            used, size = used + len(one["words"]), size + len(one["words"])
            if size >= _BATCH:
                yield batch
                batch, size = defaultdict(list), 0
            if used >= words:
                break
    yield batch


def differing(batch: dict[str, list[dict[str, Any]]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the reports that differ in Node and in chromium, if it is installed, by mechanism."""
    cases = {"modules": {name: module(clients.mechanism(name)) for name in batch}, "vectors": batch}
    with tempfile.TemporaryDirectory() as folder:
        return clients.compared(cases, Path(folder)), clients.in_browser(CHROMIUM, cases, Path(folder)) if CHROMIUM else {}


def rate(name: str) -> int:
    """Return how many reports Node draws in a second."""
    (one,) = vectors(clients.mechanism(name), 1)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "module.mjs").write_text(module(clients.mechanism(name)), encoding="utf-8")
        return int(clients.node(_RATE.replace("VALUE", json.dumps(one["value"])), Path(folder)))


def main() -> None:
    """Compare mechanisms; end with 1 if a report differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--words", type=int, default=20_000)
    parser.add_argument("--only", nargs="*", default=[*clients.TEXTS, *clients.LARGE])
    parser.add_argument("--rates", action="store_true", help="also print how many reports Node draws in a second")
    options = parser.parse_args()
    if clients.NODE is None:
        print(clients.NO_NODE)
        return
    words, reports, node, browser = (Counter[str]() for _ in range(4))
    for batch in batches(options.only, options.words):
        words.update({name: sum(len(one["words"]) for one in listed) for name, listed in batch.items()})
        reports.update({name: len(listed) for name, listed in batch.items()})
        for counts, found in zip((node, browser), differing(batch), strict=True):
            counts.update({name: len(listed) for name, listed in found.items()})
    for name in options.only:
        size = len(module(clients.mechanism(name)).encode())
        seen = f"{browser[name]} in chromium" if CHROMIUM else "there is no chromium here"
        line = f"{name}: {words[name]:,} words, {reports[name]:,} reports, {node[name]} differ in Node, {seen}; {size:,} bytes"
        print(line + (f", {rate(name):,} reports/s" if options.rates else ""))
    sys.exit(node.total() + browser.total() > 0)


if __name__ == "__main__":
    main()
