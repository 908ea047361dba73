"""Frequent strings without a list: English words against pure-ldp's PEM, coverage of the intervals, and false positives.

The words and their frequencies are those of the package wordfreq, and the other implementation that of pure-ldp; both come with
``pip install 'ldpsql[peers]'``. A part whose package is not installed is left out with a message.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import process_time
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import ldpsql
from benchmarks.figures import Figure, against, at_least, at_most

EPSILON, LENGTH, TOP = 4, 12, 20
LOWERCASE = "abcdefghijklmnopqrstuvwxyz"
MECHANISM = f"pem({EPSILON}, max_bytes={LENGTH}, characters='{LOWERCASE}')"
RNG = np.random.default_rng()


def figures(quick: bool) -> list[Figure]:
    """Return all figures."""
    parts: list[Callable[[], list[Figure]]] = [
        lambda: english(50_000 if quick else 1_000_000),
        lambda: coverage(5 if quick else 40),
    ]
    out: list[Figure] = []
    for part in parts:
        try:
            out += part()
        except ModuleNotFoundError as error:
            print(f"heavy_hitters: a part is skipped, {error.name} is not installed", file=sys.stderr)
    return out


@dataclass(frozen=True)
class Words:
    """Words with their shares, and one word for each person."""

    texts: list[str]
    shares: NDArray[np.float64]
    drawn: NDArray[np.int64]

    @classmethod
    def english(cls, people: int) -> Words:
        """Return one lowercase English word for each person, as frequent as in wordfreq."""
        from wordfreq import top_n_list, word_frequency  # noqa: PLC0415  # an extra

        texts = [w for w in top_n_list("en", 40_000) if w.isascii() and w.isalpha() and w.islower() and len(w) <= LENGTH]
        shares = np.array([word_frequency(word, "en") for word in texts])
        shares /= shares.sum()
        return cls(texts, shares, RNG.choice(len(texts), people, p=shares))

    def column(self) -> pa.Array:
        """Return the word of each person."""
        return pa.array(self.texts).take(pa.array(self.drawn))

    def f1(self, answer: list[str]) -> float:
        """Return the F1 of an answer against the most frequent words that were drawn; both have as many words."""
        counts = np.bincount(self.drawn, minlength=len(self.texts))
        top = {self.texts[place] for place in np.argsort(-counts, kind="stable")[:TOP]}
        return 2 * len(top & set(answer)) / (TOP + len(answer))


def english(people: int) -> list[Figure]:
    """Return F1 and CPU time, of perturbation and search together, against pure-ldp."""
    words = Words.english(people)
    ours, seconds = _ours(words)
    named = f"words of English, {people:,} people, epsilon {EPSILON}: "
    own = Figure(f"{named}F1 of the top {TOP}", words.f1(ours), "")
    theirs, other_seconds = _pure_ldp(words)
    faster = at_least(f"{named}CPU seconds of pure-ldp against ldpsql", other_seconds / seconds, 20)
    return [
        own,
        Figure(f"{named}F1 of pure-ldp", words.f1(theirs), ""),
        at_least(f"{named}F1 less that of pure-ldp", words.f1(ours) - words.f1(theirs), 0, ""),
        Figure(f"{named}CPU seconds", seconds, "s"),
        faster,
    ]


def _ours(words: Words) -> tuple[list[str], float]:
    """Return the words that ldpsql finds, and its CPU seconds."""
    column = words.column()
    ldpsql.heavy_hitters(ldpsql.perturb(column[:1000], MECHANISM), MECHANISM, TOP)  # imports, and tables of the transform
    start = process_time()
    rows = ldpsql.heavy_hitters(ldpsql.perturb(column, MECHANISM), MECHANISM, TOP)
    return rows["value"].to_list(), process_time() - start


def _pure_ldp(words: Words) -> tuple[list[str], float]:
    """Return the words that pure-ldp finds, and its CPU seconds, with the fastest of the settings that were tried.

    Its local hashing takes a step for each value of the domain and report, so its sketch is used (CMS, 128 hashes). With one
    letter a step it is fastest, and finds as many words as with three.
    """
    from pure_ldp.frequency_oracles.apple_cms.cms_client import CMSClient  # noqa: PLC0415  # an extra
    from pure_ldp.frequency_oracles.apple_cms.cms_sever import CMSServer  # noqa: PLC0415
    from pure_ldp.heavy_hitters.prefix_extending import PEMClient, PEMServer  # noqa: PLC0415

    zeros = np.zeros
    with patch("numpy.zeros", lambda shape, *rest, **named: zeros(() if shape is None else shape, *rest, **named)):
        oracle = CMSServer(EPSILON, 128, 1024)  # it makes arrays of shape None, which older NumPy took for ()
        client = CMSClient(EPSILON, oracle.get_hash_funcs(), 1024)
        options = {"alphabet": [*LOWERCASE, "."], "index_mapper": str}
        sender = PEMClient(EPSILON, 0, LENGTH, 1, fo_client=client, **options)
        receiver = PEMServer(EPSILON, 0, LENGTH, 1, fo_server=oracle, **options)
    for level in receiver.oracles:
        level.hash_funcs = oracle.hash_funcs
    padded = [word.ljust(LENGTH, ".") for word in words.texts]
    start = process_time()
    for place in words.drawn:
        receiver.aggregate(sender.privatise(padded[place]))
    answer, _ = receiver.find_heavy_hitters(k=TOP)
    return [word.rstrip(".") for word in answer], process_time() - start


def coverage(runs: int) -> list[Figure]:
    """Return how often all intervals of a run hold, and how often a string is certain that nobody has, at confidence 0.95."""
    held = false = 0
    shares = {"the": 0.3, "of": 0.2, "street": 0.2, "streak": 0.15, "a": 0.1, "": 0.05}
    people = np.repeat(list(shares), [round(20_000 * share) for share in shares.values()])
    for _ in range(runs):
        rows = ldpsql.heavy_hitters(ldpsql.perturb(people, MECHANISM), MECHANISM, 100, certain=False)
        truth = np.array([shares.get(value, 0.0) for value in rows["value"]])
        held += bool(((rows["low"].to_numpy() <= truth) & (truth <= rows["high"].to_numpy())).all())
        false += bool((rows["low"].to_numpy()[truth == 0] > 0).any())
    return [
        at_least("runs in which all intervals of 100 strings hold, confidence 0.95", held / runs, 0.9, ""),
        at_most("runs in which a string is certain that nobody has, confidence 0.95", false / runs, 0.1, ""),
    ]


def check() -> Iterator[Figure]:
    """Yield the processor time of perturbing strings, and of the search."""
    people = np.repeat(["the", "of", "street", "streak", "a"], 20_000)
    reports = ldpsql.perturb(people, MECHANISM)
    yield against("100,000 strings perturbed", lambda: ldpsql.perturb(people, MECHANISM), repeats=3)
    yield against("100,000 strings searched", lambda: ldpsql.heavy_hitters(reports, MECHANISM, TOP), repeats=3)
