from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import count

# Set before NumPy is loaded: a worker a core leaves no core idle, and more threads of linear algebra only wait for each other.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import pytest
from duckdb import DuckDBPyConnection

os.environ["LDPSQL_PLUGINS"] = "0"  # plugins installed on this machine must not change a result
os.environ["LDPSQL_CONFIG"] = os.devnull  # nor may its user's settings
if "LDPSQL_TEST_CACHE" not in os.environ:  # one folder for all processes of a run
    os.environ["LDPSQL_TEST_CACHE"] = os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="ldpsql-cache-")
    atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

from ldpsql.functions import registry
from ldpsql.inference import limits
from ldpsql.registry.agreement import warn_unmarked
from tests import commands, instances, seeds

commands.quicken()
gc.disable()  # until thousands of tests are collected, none of which is garbage


def pytest_collection_finish() -> None:
    """Collect garbage again, but never look at the tests and modules for it."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 20)  # objects of tests die early: to look for cycles took one twentieth of the time


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what repeats the random data of this run; the noise of reports has no seed."""
    terminalreporter.write_line(f"random data of the tests: {seeds.VARIABLE}={seeds.SEED}")


@pytest.fixture(autouse=True, scope="session")
def _registry_of_no_project() -> None:
    """Load the registry of the process before a test enters a folder whose settings would stay in it."""
    registry()


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Return a generator of random data for one test."""
    return seeds.generator(request.node.nodeid)


@pytest.fixture(autouse=True)
def _same_data_alone(request: pytest.FixtureRequest) -> None:
    """Let a test see the same random data whatever ran before it."""
    seeds.start_again(request.module, request.node.nodeid)


@pytest.fixture
def unsaid() -> Iterator[None]:
    """Let the warning about reports without a fingerprint, which a process gives once, come again."""
    warn_unmarked.cache_clear()
    yield
    warn_unmarked.cache_clear()


@pytest.fixture
def wound(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A clock that is a second later at each look: a deadline of n seconds passes at the same place in every run."""

    def wind() -> None:
        looks = count()
        monkeypatch.setattr(limits, "monotonic", lambda: float(next(looks)))

    return wind


@pytest.fixture(autouse=True, scope="module")
def _functions_as_they_were() -> Iterator[None]:
    """Fail if a test of a module changed functions or settings of a connection that it shares with others."""
    yield
    instances.check()


@pytest.fixture
def con() -> Iterator[DuckDBPyConnection]:
    """Lend a connection to a database in memory with the functions and the macro ``city``, and nothing else."""
    with instances.connection() as connection:
        yield connection
