"""Random bits are never given twice: not to threads, not to forked workers, not to cursors."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import duckdb
import numpy as np
from duckdb import DuckDBPyConnection
from scipy import stats

import ldpsql
from ldpsql.channels.randomness import random_words

WORKERS, WORDS = 8, 20_000
FALSE_ALARM = 1e-6


def draw(number: int) -> bytes:
    return random_words(WORDS).tobytes()


def distinct(parts: list[bytes]) -> bool:
    """160,000 uniform words of 64 bits hold one twice with probability below 1e-9."""
    words = np.frombuffer(b"".join(parts), dtype=np.uint64)
    return len(words) == WORKERS * WORDS and len(np.unique(words)) == len(words)


def test_forked_workers_never_repeat_a_word() -> None:
    random_words(1000)  # the source was used before the fork
    with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
        assert distinct(pool.map(draw, range(WORKERS), chunksize=1))


def test_threads_never_repeat_a_word() -> None:
    with ThreadPoolExecutor(WORKERS) as pool:
        assert distinct(list(pool.map(draw, range(WORKERS))))


def perturb_once(pipe: Any) -> None:
    pipe.send([str(report) for report in ldpsql.perturb(["a"] * WORDS, "krr(1, ['a', 'b'])")])


def test_forked_workers_draw_other_reports() -> None:
    """Workers that share their bits agree in every report, others in keep^2 + lie^2 of them: binomial, 1e-6 for each pair."""
    ldpsql.perturb(["a"], "krr(1, ['a', 'b'])")  # the mechanism was used before the fork
    context = multiprocessing.get_context("fork")
    ends = [context.Pipe() for _ in range(3)]
    workers = [context.Process(target=perturb_once, args=(child,)) for _, child in ends]
    for worker in workers:
        worker.start()
    drawn = [np.array(parent.recv()) for parent, _ in ends]
    for worker in workers:
        worker.join()
    keep = np.e / (np.e + 1)
    low, high = stats.binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], WORDS, keep**2 + (1 - keep) ** 2)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert low <= (drawn[one] == drawn[other]).sum() <= high


def test_eight_cursors_at_once_draw_the_right_counts(con: DuckDBPyConnection) -> None:
    """Every cursor's counts against the channel: chi-square, 1e-6 for each of the eight."""
    con.execute("CREATE TABLE people AS SELECT 'Lima' AS city FROM range(20000)")
    counts: list[dict[str, int]] = []
    failures: list[duckdb.Error] = []

    def work(cursor: DuckDBPyConnection) -> None:
        try:
            ((counted,),) = cursor.execute("SELECT ldp.counts(ldp.perturb(city, city())) FROM people").fetchall()
            counts.append(counted)
        except duckdb.Error as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(con.cursor(),)) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    keep = np.e / (np.e + 3)
    expected = 20_000 * np.array([keep, *[(1 - keep) / 3] * 3])
    for counted in counts:
        observed = [counted[city] for city in ("Lima", "Oslo", "Rome", "Kyiv")]
        assert stats.chisquare(observed, expected).pvalue > FALSE_ALARM
    assert len({tuple(sorted(counted.items())) for counted in counts}) > 1  # equal ones are rarer than 1e-12
