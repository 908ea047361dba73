"""A year of daily permanent reports: what the ledger charges, with workers that are killed in between."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from ldpsql import Key
from ldpsql.ledger import Ledger, Policy
from ldpsql.ledger.file import load, reading, snapshot
from tests.spending import DAYS, YEAR, few, report_a_year

PEOPLE, KILLS = 40, 3
SYMBOLS = 2  # of loloha


@pytest.mark.slow
def test_a_year_costs_an_epsilon_for_each_different_value_with_any_process_killed(tmp_path: Path) -> None:
    Key.create(tmp_path / "key")
    ledger = Ledger.open(
        tmp_path / "ledger", Policy(epsilon_budget=5, privacy_unit="id", column_groups={name: [name] for name in YEAR})
    )
    context = multiprocessing.get_context("spawn")
    for worker in range(KILLS + 1):
        started = context.Event()
        process = context.Process(target=report_a_year, args=(tmp_path, PEOPLE, started))
        process.start()
        if worker < KILLS:
            assert started.wait(100)
            os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
    ledger.check()
    days = np.array([few(day, PEOPLE) for day in range(DAYS)])
    different = np.array([len(set(values)) for values in days.T.tolist()])
    with reading(ledger.path) as db, snapshot(db):
        accounts = dict(db.execute("SELECT column_group, id FROM account WHERE currency = 'epsilon'").fetchall())
        epsilons = {name: np.sort(load(db, number)["epsilon"]) // 10**6 for name, number in accounts.items()}
    assert epsilons["same"].tolist() == [1] * PEOPLE
    assert epsilons["few"].tolist() == sorted(different)
    assert (epsilons["hashed"] <= np.minimum(epsilons["few"], SYMBOLS)).all()
    assert {row["state"] for row in ledger.history()[-3:]} == {"published"}
