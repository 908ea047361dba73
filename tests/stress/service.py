"""The service of docs/guides/services.md in a process of its own, under clients that know what each answer must be.

Each client has a region of its own, so it knows all reports of the region: what the service stored for it, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from time import perf_counter

import duckdb
import numpy as np
import pyarrow as pa
from scipy.stats import binom

import ldpsql

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "services.md"
SERVICE = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)[0]
SERVE = "print(server.server_port, flush=True)\nserver.serve_forever()\n"
CITY = "krr(epsilon=2, domain=['Lima', 'Oslo', 'Rome', 'Kyiv'])"
KEPT = np.exp(2) / (np.exp(2) + 3)  # the probability that a report is the value
ALARM = 1e-6


@dataclass
class Client:
    """What one client saw: its reports, the seconds of each request, and answers that are wrong."""

    region: str
    port: int
    kept: int = 0
    stored: list[str] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"perturb": [], "insert": [], "estimate": []})
    wrong: list[str] = field(default_factory=list)

    def run(self, rounds: int) -> Client:
        """Perturb, insert and estimate as many times, on one connection of HTTP."""
        self.http = HTTPConnection("127.0.0.1", self.port, timeout=60)
        for _ in range(rounds):
            (report,) = self.ask("perturb", "POST", "/perturb", {"cities": ["Lima"]})
            self.kept += report == "Lima"
            self.stored += map(str, self.ask("insert", "POST", "/reports", {"region": self.region, "cities": ["Oslo"]}))
            answer = self.ask("estimate", "GET", f"/estimate?region={self.region}")
            if answer != self.expected():
                self.wrong.append(f"{self.region}: {len(self.stored)} reports, {answer}")
        self.http.close()
        return self

    def ask(self, kind: str, method: str, path: str, body: object = None) -> list[object]:
        """Return the content of an answer, and note how long it took."""
        begun = perf_counter()
        self.http.request(method, path, json.dumps(body) if body else None)
        answer = self.http.getresponse()
        content = json.loads(answer.read())
        self.seconds[kind].append(perf_counter() - begun)
        if answer.status not in (200, 201) or not isinstance(content, list):
            raise AssertionError(f"{method} {path}: {answer.status} {content}")
        return content

    def expected(self) -> list[dict[str, object]]:
        """Return the estimate from the reports that the service has stored for this client."""
        counted = sorted(Counter(self.stored).items())
        counts = ldpsql.Counts(pa.array([report for report, _ in counted]), pa.array([n for _, n in counted]))
        return ldpsql.estimate(counts, CITY).to_arrow().to_pylist()


@contextmanager
def serving(folder: Path) -> Iterator[int]:
    """Run the service of the page in a folder; yields its port."""
    with subprocess.Popen([sys.executable, "-c", SERVICE + SERVE], cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


def load(folder: Path, workers: int, rounds: int) -> dict[str, float]:
    """Return the 95th percentile of the seconds of each kind of request.

    Raises:
        AssertionError: if an answer is wrong, or a report was lost.

    """
    with serving(folder) as port, ThreadPoolExecutor(workers) as pool:
        clients = list(pool.map(lambda worker: Client(f"region-{worker}", port).run(rounds), range(workers)))
    wrong = [line for client in clients for line in client.wrong]
    assert not wrong, wrong[:3]
    with duckdb.connect(str(folder / "service.duckdb"), read_only=True) as con:
        stored = con.execute("SELECT region, list(city ORDER BY city) FROM reports GROUP BY region ORDER BY region").fetchall()
    assert stored == [(client.region, sorted(client.stored)) for client in clients]
    for kept in (sum(client.kept for client in clients), sum(client.stored.count("Oslo") for client in clients)):
        assert 2 * min(binom.cdf(kept, workers * rounds, KEPT), binom.sf(kept - 1, workers * rounds, KEPT)) > ALARM
    kinds = clients[0].seconds
    return {kind: float(np.percentile([s for client in clients for s in client.seconds[kind]], 95)) for kind in kinds}


def main() -> None:
    """Load the service, and print the 95th percentiles."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--requests", type=int, default=1000, help="of each kind, by each worker")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        slowest = load(Path(folder), chosen.workers, chosen.requests)
    shown = ", ".join(f"{kind} {1000 * seconds:.0f} ms" for kind, seconds in slowest.items())
    print(f"{chosen.workers} workers, {chosen.requests} requests of each kind: 0 wrong, 0 lost; 95th percentiles: {shown}")


if __name__ == "__main__":
    main()
