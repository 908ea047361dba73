"""The table of planted faults fits the code: ``make mutants`` plants them, and this test names those that moved."""

from __future__ import annotations

import pytest

from tests.mutants.mutant import ROOT, Misplaced, Mutant, table

TABLE = table()


def test_a_planted_fault_has_one_place_in_the_code_and_tests_that_exist() -> None:
    for mutant in TABLE:
        faulty = mutant.planted()
        if mutant.file.endswith(".py"):
            compile(faulty, mutant.file, "exec")
        for test in mutant.tests.split():
            file, _, name = test.partition("::")
            source = (ROOT / file).read_text(encoding="utf-8")
            assert not name or f"def {name.partition('[')[0]}(" in source, f"{mutant}: there is no {test}"


def test_a_fault_that_lost_its_place_is_named() -> None:
    lost = Mutant("ldpsql/quoting.py", "this stands nowhere", "", "nothing", "tests/test_sql.py")
    with pytest.raises(Misplaced, match=r"ldpsql/quoting\.py: nothing: found 0 times"):
        lost.planted()


def test_every_fault_is_described_once() -> None:
    assert len({str(mutant) for mutant in TABLE}) == len(TABLE)
    assert len(TABLE) >= 100
