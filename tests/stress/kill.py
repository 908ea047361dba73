"""Kill writers of a ledger at random moments, again and again, and look at what they leave behind.

    python -m tests.stress.kill --rounds 1000

In each round eight processes charge, draw, publish by renaming a file, and write the publication down, all on one ledger; each
is killed with SIGKILL at a moment of its own. Afterwards no account may hold more than its budget, every published file must be
in the ledger, and the ledger must add up. A killed process loses what it had in memory, not what the system had taken from it:
the loss of power is what ``synchronous = FULL`` is for, and is not tried here.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import ldpsql
from ldpsql.errors import BudgetExceeded, UnknownRelease
from ldpsql.functions import registry
from ldpsql.ledger import Ledger, Policy

WRITERS = 8
AFFORDED = 25  # releases of each dataset
TEXT = "krr(epsilon=0.04, domain=['a', 'b', 'c'])"  # 25 times 0.04 is 1


@dataclass
class Outcome:
    """What was counted; the first three must stay 0."""

    overspends: int = 0
    uncharged: int = 0
    damaged: int = 0
    kills: int = 0
    releases: int = 0
    charged_only: int = 0
    seconds: float = 0.0


def work(ledger: Ledger, folder: Path, dataset: str, name: str) -> None:
    """Release until the budget ends: charge, draw, publish, write it down."""
    mechanism = registry().mechanism(TEXT)
    for number in range(1000):
        destination = folder / f"{dataset} {name} {number}"
        try:
            release = ledger.charge(dataset, {"city": mechanism}, str(destination))
        except BudgetExceeded:
            continue
        reports = [str(report) for report in ldpsql.perturb(["a", "b", "c"] * 10, mechanism)]
        unfinished = folder / f"{destination.name}.unfinished"
        unfinished.write_text("\n".join([release.token, *reports]))
        unfinished.rename(destination)
        ledger.publish(release)


def fork(ledger: Ledger, folder: Path, dataset: str, name: str) -> int:
    """Start a writer and return its process id."""
    child = os.fork()
    if child == 0:
        try:
            work(ledger, folder, dataset, name)
        finally:
            os._exit(0)
    return child


def one_round(ledger: Ledger, folder: Path, dataset: str) -> int:
    """Start eight writers and kill each at a moment of its own; return how many were still alive."""
    children = [fork(ledger, folder, dataset, str(number)) for number in range(WRITERS)]
    killed = 0
    for child in random.sample(children, len(children)):
        time.sleep(random.uniform(0.0, 0.02))
        os.kill(child, signal.SIGKILL)
    for child in children:
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status)
    return killed


def look(ledger: Ledger, folder: Path, outcome: Outcome) -> None:
    """Count what must not be."""
    try:
        ledger.check()
    except ldpsql.LdpError:
        outcome.damaged += 1
    for published in folder.iterdir():
        if published.suffix == ".unfinished":
            continue
        outcome.releases += 1
        try:
            ledger.release_of(published.read_text().split("\n", 1)[0])
        except UnknownRelease:
            outcome.uncharged += 1
    history = ledger.history()
    datasets = [row["dataset"] for row in history]
    outcome.overspends += sum(datasets.count(dataset) > AFFORDED for dataset in set(datasets))
    outcome.overspends += sum(float(balance.spent) > 1 for balance in ledger.balances())
    there = {published.read_text().split("\n", 1)[0] for published in folder.iterdir() if published.suffix != ".unfinished"}
    outcome.charged_only += sum(row["release"] not in there for row in history)


def stress(rounds: int) -> Outcome:
    """Run so many rounds, fifty on each ledger."""
    outcome = Outcome()
    ldpsql.perturb(["a"], TEXT)  # load everything before the first fork
    started = time.monotonic()
    for first in range(0, rounds, 50):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "published"
            folder.mkdir()
            ledger = Ledger.open(Path(place) / "ledger", Policy(epsilon_budget=1))
            for number in range(first, min(first + 50, rounds)):
                outcome.kills += one_round(ledger, folder, f"dataset {number}")
            look(ledger, folder, outcome)
    outcome.seconds = round(time.monotonic() - started, 1)
    return outcome


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    outcome = stress(parser.parse_args().rounds)
    print(asdict(outcome))
    raise SystemExit(bool(outcome.overspends or outcome.uncharged or outcome.damaged))
