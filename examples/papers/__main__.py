"""Reproduce the tables and figures of the four papers: ``python examples/papers [--full] [--out FOLDER] [--data FOLDER] [PAPER ...]``.

The quick version takes minutes; ``--full`` repeats as often as the papers did, for about an hour. Parts of a paper run side by side.
It writes one page for each paper, with pictures and a table that states for each figure whether it agrees and, if not, why.
"""

from __future__ import annotations

import argparse
from collections import Counter
from importlib import import_module
from pathlib import Path
from time import perf_counter

import reproduction

PAPERS = ("mixture_reduction", "iterative_bayesian_update", "small_samples", "privic")


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
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in asked.papers or PAPERS:
        start = perf_counter()
        paper = import_module(name).reproduce(asked.full)
        paper.source += f" {'In full' if asked.full else 'Quickly'}: {paper.seconds:,.0f} CPU seconds."
        counted = Counter(finding.verdict for finding in paper.findings)
        verdicts = ", ".join(f"{verdict} {number}" for verdict, number in counted.most_common())
        print(
            f"{paper.write(asked.out)}: {verdicts} ({perf_counter() - start:.0f} s, {paper.seconds:.0f} CPU seconds)",
            flush=True,
        )


if __name__ == "__main__":
    main()
