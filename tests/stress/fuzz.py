"""Call everything with what nobody would pass, and see that nothing but a refusal comes, soon, and without a value in it.

    python -m tests.stress.fuzz --count 20000               # functions of SQL, texts, epsilons, domains, values and reports
    python -m tests.stress.fuzz --count 100000 --kind sql   # only functions of SQL

Children make the calls, without pandas, as on most machines. A finding is a child that dies, a call of more than 10 seconds of
the processor or 4 GiB, an exception that is not ldpsql's own or has a code LDP9xx, and a message with a planted value.
That DuckDB repeats a value that it cannot cast counts for public functions only. The same finding is shown once, with the first
call that caused it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.abc import MetaPathFinder
from threading import Lock, Thread
from time import monotonic, process_time, sleep
from typing import Any, NamedTuple

import duckdb
import polars as pl  # noqa: F401  # asks for pandas once, before it is hidden

import ldpsql
from ldpsql import Epsilon
from ldpsql.domains.domain import Domain
from ldpsql.errors import LdpError
from ldpsql.functions import registry
from tests.seeds import SEED
from tests.stress.statements import CANARY, Statements

CPU_SECONDS, CLOCK_SECONDS, BYTES = 10.0, 600.0, 4 << 30  # for one call; the clock also runs while others use the processor
CALLS = 400  # of one child, which then ends: what is kept from call to call stays small
_HERTZ = os.sysconf("SC_CLK_TCK")

TEXTS = [
    "krr(epsilon=1, domain=['a', 'b', 'c'])",
    "krr(1, [1, 2, 3], nulls='as:1', outside='as:2')",
    "oue(epsilon='0.5', domain=[True, False])",
    "olh(1, ['a', 'b'], seeds='private')",
    "geometric(1, -3, 3, margin := 5)",
    "laplace(epsilon=1, low=0, high=10, bins=16)",
    "square_wave(2, 0, 1, bins=8)",
    "planar_geometric(1, 3, 3, side=0.5)",
    "matrix(1, ['a', 'b'], [[0.7, 0.3], [0.3, 0.7]])",
    "gaussian(1, 0, 5, delta=0.001)",
    "piecewise(1, -1, 1)",
    "subset_selection(1, ['a', 'b', 'c', 'd'])",
    "ibu(stop=100)",
    "krr",
]
PIECES = [
    *"()[],='\"\\#;0é",
    *(
        "-1",
        "1e400",
        "nan",
        "inf",
        "1_0",
        "\u0661",
        "None",
        "True",
        "lambda: 0",
        "**{}",
        "*[1]",
        "[1]*9",
        "{}",
        "\x00",
        "\ud800",
    ),
    *("\n", "ldp.", "9" * 40, "[" * 50, "(" * 200, "-" * 200, "as:", "epsilon", "domain", "0.5", "b'x'", "f'{1}'", "1j", "..."),
    *(":=", "a if b else c", "\u202e", "domain=['a','a']", f"'as:{CANARY}'"),
]
VALUES: list[Any] = [
    *(CANARY, "a", "b", "", "\ud800" + CANARY, b"a", CANARY.encode(), None, 0, 1, -1, 2**63, 2**80, -(2**63), 1.5, -0.0, True),
    *(float("nan"), float("inf"), 1j, object, Ellipsis, (1, 2), [], ["a"], [CANARY], [0], [2**64 - 1], [None]),
    *({"a": 1}, {CANARY: 1}, {"seed": 1, "y": 1}, {"seed": 2**64, "y": -1}),
]
MECHANISMS = [
    "krr(1, ['a', 'b'])", "krr(1, [0, 1], nulls='as:0')", "oue(1, ['a', 'b'])", "olh(1, ['a', 'b'])", "geometric(1, 0, 5)",
    "laplace(1, 0, 5, bins=8)", "planar_geometric(1, 3, 3)", "krr(1, [True, False], outside='as:True')",
]  # fmt: skip


def text_of(chance: random.Random) -> str:
    """Return a mechanism's text after a few accidents."""
    text = chance.choice(TEXTS)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 4))):
        at, end = sorted((chance.randrange(len(text) + 1), chance.randrange(len(text) + 1)))
        cut = text[: min(end, at + chance.randrange(4))] if chance.random() < 0.5 else text[:at]
        text = cut + chance.choice(PIECES) + text[end if chance.random() < 0.3 else at :]
    return text


def column_of(chance: random.Random) -> list[Any]:
    """Return a short column, of one kind of value more often than not."""
    length = chance.randrange(6)
    return [chance.choice(VALUES)] * length if chance.random() < 0.4 else chance.choices(VALUES, k=length)


def epsilon_of(chance: random.Random) -> object:
    """Return something that somebody took for an epsilon."""
    plain = chance.choice(["1", "0.5", "32", "0", "32.000001", "0.000000000001", "007", "1.", ".5", "+1", " 1", "1e3", "1_0"])
    return chance.choice(
        [plain, plain + chance.choice(PIECES), chance.choice(PIECES), chance.choice(VALUES), float(chance.random())]
    )


def try_text(text: str) -> None:
    """Read a text; what can be read must say itself in a text that can be read."""
    mechanism = registry().mechanism(text)
    assert registry().mechanism(mechanism.to_json()) == mechanism


def try_epsilon(epsilon: object) -> None:
    """Read an epsilon; what can be read is in range."""
    assert 0 < Epsilon.parse(epsilon).value <= Epsilon.maximum


def try_domain(values: list[Any]) -> None:
    """Read a domain; what can be read is the domain it says it is."""
    domain = Domain.of(values)
    assert Domain.of(domain.to_json()) == domain


def try_values(case: tuple[str, list[Any]]) -> None:
    """Perturb a column; there is a report for each value."""
    mechanism, column = case
    assert len(ldpsql.perturb(column, mechanism)) == len(column)


def try_reports(case: tuple[str, list[Any]]) -> None:
    """Estimate from a column; the shares are numbers."""
    mechanism, column = case
    estimate = ldpsql.estimate(column, mechanism, "inv(misfit='allow')")
    assert all(share == share for share in estimate.estimate.tolist())  # noqa: PLR0124  # not a NaN


class Sql:
    """Calls functions of SQL, in one connection of the child."""

    def __init__(self) -> None:
        self._con = ldpsql.connect(config={"memory_limit": "1GB", "threads": 2})
        self._statements = Statements(self._con)
        self.attempt(
            "SELECT ldp.perturb('a', ldp.krr(1, ['a', 'b']))"
        )  # imports what all calls need, which none has to pay for

    def statement(self, chance: random.Random) -> str:
        """Return a statement."""
        return self._statements.one(chance)

    def attempt(self, statement: str) -> None:
        """Run a statement in a transaction that is rolled back."""
        with self._con.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(statement).fetchmany(50)


Kind = tuple[Callable[[random.Random], Any], Callable[[Any], None]]
SHARES = {"sql": 70, "text": 12, "epsilon": 6, "domain": 4, "values": 4, "reports": 4}


def kinds() -> dict[str, Kind]:
    """Return how a case of each kind is made and tried."""
    sql = Sql()
    return {
        "sql": (sql.statement, sql.attempt),
        "text": (text_of, try_text),
        "epsilon": (epsilon_of, try_epsilon),
        "domain": (column_of, try_domain),
        "values": (lambda chance: (chance.choice(MECHANISMS), column_of(chance)), try_values),
        "reports": (lambda chance: (chance.choice(MECHANISMS), column_of(chance)), try_reports),
    }


def outcome(attempt: Callable[[Any], None], case: Any, planted: str) -> tuple[str, str]:
    """Try a case; return ``taken``, ``refused`` or ``found``, and what was found.

    Args:
        attempt: what is tried.
        case: with what.
        planted: text that must not be in a message; empty if the caller wrote it himself.

    """
    try:
        attempt(case)
    except LdpError as error:
        text = f"{error!s} {error!r} {error.__dict__}"
        fault = f"LDP9xx: {text}" if error.code.startswith("LDP9") else ""
    except duckdb.Error as error:
        text = str(error)
        raw = "Python exception" in text and "[LDP" not in text
        fault = text if raw or "[LDP9" in text or isinstance(error, duckdb.InternalException | duckdb.FatalException) else ""
    except Exception as error:  # noqa: BLE001  # any other is a finding
        text = ""
        fault = f"{type(error).__name__}: {error}"
    else:
        return "taken", ""
    if planted and planted in text and not (text.startswith("Conversion Error") and '."_' in case):
        fault = f"a planted value in a message: {text}"
    return ("found", fault) if fault else ("refused", "")


class NoPandas(MetaPathFinder):
    """Hides pandas: with it, Arrow converts what it cannot convert alone."""

    def find_spec(self, name: str, *_: Any) -> None:
        """Refuse pandas."""
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError(name, name=name)


class Result(NamedTuple):
    """What a call came to."""

    kind: str
    case: str
    outcome: str
    fault: str
    seconds: float


def child(seed: int, count: int, only: str | None) -> None:
    """Make calls, and write a line before and after each one."""
    sys.meta_path.insert(0, NoPandas())
    sys.modules.pop("pandas", None)
    chance, made = random.Random(seed), kinds()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in [only] * count if only else chance.choices(list(SHARES), weights=list(SHARES.values()), k=count):
        make, attempt = made[name]
        case = make(chance)
        print(json.dumps([name, repr(case) if name != "sql" else case]), flush=True)
        planted = "" if name == "text" or (isinstance(case, str) and name != "sql") else CANARY
        virtual = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()  # noqa: SIM115
        # DuckDB keeps the addresses of memory that it has returned, also of calls that its own limit refused.
        resource.setrlimit(resource.RLIMIT_AS, (virtual + BYTES, resource.RLIM_INFINITY))
        began = process_time()
        result = outcome(attempt, case, planted)
        print(json.dumps([*result, process_time() - began]), flush=True)


class Child:
    """A process that makes calls, one after the other, until it has made all or a call kills it."""

    def __init__(self, seed: int, count: int, only: str | None) -> None:
        own = ["--child", "--seed", str(seed), "--count", str(count), *(["--kind", only] if only else [])]
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.stress.fuzz", *own],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._cpu, self._clock, self._late = float("inf"), monotonic(), ""  # the imports before the first call are not counted
        Thread(target=self._watch).start()

    def results(self) -> Iterator[Result]:
        """Yield what each call came to."""
        kind, case = "", "no call"
        for line in self._process.stdout or ():
            read = json.loads(line)
            if len(read) > 2:
                yield Result(kind, case, *read)
            else:
                kind, case = read
            self._cpu, self._clock = self._seconds(), monotonic()
        _, said = self._process.communicate()
        if self._late:
            yield Result(kind, case, "found", self._late, CPU_SECONDS)
        elif self._process.returncode:
            yield Result(kind, case, "found", f"the process died with {self._process.returncode}: {said[-2000:]}", 0.0)

    def _watch(self) -> None:
        """Kill the child if a call takes too long."""
        while self._process.poll() is None:
            used, waited = self._seconds() - self._cpu, monotonic() - self._clock
            if used > CPU_SECONDS + 1 or waited > CLOCK_SECONDS:
                self._late = f"it takes too long: {used:.0f} s of the processor, {waited:.0f} s of the clock"
                self._process.kill()
            sleep(0.5)

    def _seconds(self) -> float:
        """Return the seconds of the processor that the child took so far."""
        try:
            with open(f"/proc/{self._process.pid}/stat") as stat:
                fields = stat.read().rpartition(")")[2].split()
        except OSError:  # it has ended
            return self._cpu
        return (int(fields[11]) + int(fields[12])) / _HERTZ


class Findings:
    """What was found, each once, with the first call that caused it."""

    def __init__(self) -> None:
        self.counts, self.found, self.slowest = Counter[str](), set[str](), (0.0, "")

    def add(self, result: Result) -> None:
        """Count a result, and print what it found unless that is known."""
        self.counts[f"{result.kind} {result.outcome}"] += 1
        if (made := self.counts.total()) % 1000 == 0:
            print(f"{made:,} calls", flush=True)
        self.slowest = max(self.slowest, (result.seconds, result.case))
        fault = result.fault or (f"it takes {result.seconds:.0f} seconds" if result.seconds > CPU_SECONDS else "")
        called = re.search(r'(__ldp_|ldp\.)"?\w+', result.case)
        known = f"{called[0] if called else ''} {re.sub(r'[0-9]+', '0', fault)[-160:]}"
        if fault and known not in self.found:
            self.found.add(known)
            print(f"\nFOUND {fault[-1200:]}\n  BY {result.kind} {result.case[:1500]}", flush=True)


def fuzz(count: int, seed: int, only: str | None = None) -> Findings:
    """Make so many calls, in as many children at a time as there are processors; return what was found."""
    findings, chance, left = Findings(), random.Random(seed), [count]
    lock = Lock()

    def work(_: int) -> None:
        while True:
            with lock:
                number, seed = min(CALLS, left[0]), chance.randrange(1 << 32)
                left[0] -= number
            if number <= 0:
                return
            made = 0
            for result in Child(seed, number, only).results():
                made += 1
                with lock:
                    findings.add(result)
            with lock:
                left[0] += max(number - made, 0)  # what a child left that a call killed

    workers = os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
    return findings


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--kind", choices=list(SHARES))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        child(chosen.seed, chosen.count, chosen.kind)
        sys.exit()
    print(f"--seed {chosen.seed}", flush=True)
    findings = fuzz(chosen.count, chosen.seed, chosen.kind)
    print(dict(sorted(findings.counts.items())), f"slowest: {findings.slowest[0]:.1f} s, {findings.slowest[1][:300]}")
    sys.exit(f"{len(findings.found)} findings" if findings.found else 0)
