"""Reproduce the tables and figures of the four papers: ``python examples/papers [--full] [--out FOLDER] [--data FOLDER] [PAPER ...]``.

The quick version takes minutes; ``--full`` repeats as often as the papers did. It writes one page for each paper, with pictures
and a table that states for each figure whether it agrees and, if not, why.
"""

from __future__ import annotations

import argparse
from collections import Counter
from importlib import import_module
from pathlib import Path
from time import perf_counter, process_time
from warnings import simplefilter

import reproduction

from ldpsql.errors import PrivacyLeakWarning

PAPERS = ("iterative_bayesian_update", "small_samples", "privic", "mixture_reduction")


def main() -> None:
    """Run the papers on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=", ".join(PAPERS))
    parser.add_argument("--full", action="store_true", help="repeat as often as the papers did")
    parser.add_argument("--out", type=Path, default=Path("papers"), help="folder of the pages")
    parser.add_argument("--data", type=Path, default=reproduction.SHARED, help="folder of the data that may not be shipped")
    asked = parser.parse_args()
    if unknown := set(asked.papers) - set(PAPERS):
        parser.error(f"no paper named {', '.join(sorted(unknown))}; known: {', '.join(PAPERS)}")
    reproduction.SHARED = asked.data
    simplefilter("ignore", PrivacyLeakWarning)  # the papers go up to an epsilon that protects very little
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in asked.papers or PAPERS:
        print(name)
        start, used = perf_counter(), process_time()
        paper = import_module(name).reproduce(asked.full)
        counted = Counter(finding.verdict for finding in paper.findings)
        print("  " + ", ".join(f"{verdict} {number}" for verdict, number in counted.most_common()))
        print(f"  {paper.write(asked.out)} ({perf_counter() - start:.0f} s, {process_time() - used:.0f} CPU seconds)")


if __name__ == "__main__":
    main()
