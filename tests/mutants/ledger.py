"""Budgets: what is charged, what is refused, and the guard of a connection."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_GUARD = "tests/test_guard.py"
_LEDGER = "tests/test_ledger.py"
_LAWS = "tests/laws/test_ledger.py"

MUTANTS = (
    # The guard
    Mutant(
        "ldpsql/ledger/guard.py",
        "if self.process != os.getpid() or not all_among(charged, asked):",
        "if not all_among(charged, asked):",
        "a forked process draws permanent reports of its parent's charge",
        _LAWS,
    ),
    Mutant(
        "ldpsql/ledger/guard.py",
        "if self.left[mechanism] < rows or self.process != os.getpid():",
        "if self.left[mechanism] < rows:",
        "a forked process draws reports of its parent's charge",
        _LAWS,
    ),
    Mutant(
        "ldpsql/ledger/guard.py",
        "if self.left[mechanism] < rows or self.process != os.getpid():",
        "if self.left[mechanism] < 1 or self.process != os.getpid():",
        "the last statement of a release draws more than is left",
        f"{_GUARD}",
    ),
    Mutant(
        "ldpsql/ledger/guard.py",
        "            self.left[mechanism] -= rows",
        "            self.left[mechanism] -= min(rows, 1)",
        "a statement of many rows takes one draw",
        f"{_GUARD}",
    ),
    Mutant(
        "ldpsql/ledger/guard.py",
        "            self.left = Counter()\n            self.occupied.release()",
        "            self.occupied.release()",
        "draws that are left can be made after the release",
        f"{_GUARD}",
    ),
    Mutant(
        "ldpsql/ledger/guard.py",
        "                self.permanent = {}",
        "                pass",
        "permanent reports can be drawn after the release",
        "tests/test_permanent_charges.py",
    ),
    Mutant(
        "ldpsql/ledger/guard.py",
        "        guard.take(mechanism, rows)\n        guard.check_permanent(certified)",
        "        guard.take(mechanism, rows)",
        "permanent reports that share a response are charged as if they did not",
        "tests/test_permanent_charges.py tests/test_loloha.py",
    ),
    Mutant(
        "ldpsql/ledger/guard.py",
        "    if guard is None or GUARDS.thing(guard).ledger is None:",
        "    if guard is None or GUARDS.thing(guard).key is None:",
        "a connection with a ledger and no key draws without a release",
        f"{_GUARD}::test_nothing_is_drawn_outside_of_a_release",
    ),
    # Spending
    Mutant(
        "ldpsql/ledger/spending.py",
        'fresh = accounts["since"] <= (now - policy.window if',
        'fresh = accounts["since"] <= (now - policy.window // 2 if',
        "budgets renew after half the window",
        _LAWS,
    ),
    Mutant(
        "ldpsql/ledger/spending.py",
        'fresh = accounts["since"] <= (now - policy.window if',
        'fresh = accounts["since"] <= (now - policy.window - 1 if',
        "budgets renew a microsecond after the window",
        _LAWS,
    ),
    Mutant(
        "ldpsql/ledger/spending.py",
        "return reports > (budget - spent) // cost if cost else spent > budget",
        "return reports > (budget - spent) // cost + 1 if cost else spent > budget",
        "everybody may spend one report more than the budget",
        f"{_LEDGER}::test_a_hundred_hundredths_fit_into_one_and_no_more",
    ),
    Mutant(
        "ldpsql/ledger/spending.py",
        'refused |= _beyond(accounts["delta"], cost.delta, people.reports, allowed.delta)',
        'refused |= _beyond(accounts["delta"], 0, people.reports, allowed.delta)',
        "a delta beyond its budget is charged once",
        f"{_LEDGER}::test_delta_and_distance_have_budgets_of_their_own",
    ),
    Mutant(
        "ldpsql/ledger/spending.py",
        "        accounts[name] += each * people.reports",
        "        accounts[name] += each",
        "a user of many rows pays for one",
        f"{_LEDGER}::test_users_are_charged_for_each_of_their_rows_wherever_they_are",
    ),
    Mutant(
        "ldpsql/ledger/spending.py",
        "any(dataset == name or alike(dataset, name) for name in names)",
        "any(dataset == name for name in names)",
        "another spelling of a dataset has a budget of its own",
        "tests/test_datasets.py",
    ),
    # The book
    Mutant(
        "ldpsql/ledger/book.py",
        "if policy_of(db)[0] != request.policy:",
        "if False:",
        "a charge under a policy that another process has replaced meanwhile is taken",
        _LAWS,
    ),
    Mutant(
        "ldpsql/ledger/book.py",
        "taken_up = resume and earlier and not earlier.stored and not was_drawn(db, earlier.token)",
        "taken_up = resume and earlier and not earlier.stored",
        "a release whose reports were seen is drawn again for nothing",
        "tests/test_ledger.py tests/test_datasets.py",
    ),
    Mutant(
        "ldpsql/ledger/book.py",
        "            elif once:",
        "            elif False:",
        "two runs draw the reports of one charge",
        "tests/test_datasets.py::test_of_two_runs_that_take_up_one_charge_one_writes_reports",
    ),
    Mutant(
        "ldpsql/ledger/policy.py",
        "return cls(currency, ceil(claim.epsilon.value * MICRO), ceil(delta * _FEMTO))",
        "return cls(currency, int(claim.epsilon.value * MICRO), ceil(delta * _FEMTO))",
        "costs are rounded down",
        f"{_LEDGER}::test_costs_are_rounded_up_and_budgets_down",
    ),
    Mutant(
        "ldpsql/ledger/policy.py",
        "int(self.delta_budget * _FEMTO)",
        "ceil(self.delta_budget * _FEMTO)",
        "a budget of delta is rounded up",
        f"{_LEDGER}::test_costs_are_rounded_up_and_budgets_down",
    ),
    Mutant(
        "ldpsql/ledger/entries.py",
        "    return max(clock(), latest)",
        "    return clock()",
        "a clock that goes back and forth renews budgets",
        f"{_LEDGER}",
    ),
    Mutant(
        "ldpsql/ledger/entries.py",
        '"people": people.digest() if people else None',
        '"people": None',
        "a release of other people counts as the same one",
        f"{_LEDGER}",
    ),
    # Damage
    Mutant(
        "ldpsql/ledger/seals.py",
        "    if walk != last or seen != stated or not charges.keys() <= releases.keys():",
        "    if walk != last or seen != stated:",
        "charges of no release are not noticed",
        "tests/test_ledger_damage.py tests/test_ledger.py",
    ),
    Mutant(
        "ldpsql/ledger/seals.py",
        "    if walk != last or seen != stated or not charges.keys() <= releases.keys():",
        "    if walk != last or not charges.keys() <= releases.keys():",
        "releases that were put in by another program are not noticed",
        "tests/test_ledger_damage.py tests/test_ledger.py",
    ),
    Mutant(
        "ldpsql/ledger/seals.py",
        'if "charged" not in states or ("published" in states) != (row[9] is not None):',
        'if "charged" not in states:',
        "a release that was marked as published by another program is used",
        "tests/test_ledger_damage.py tests/test_ledger.py",
    ),
    Mutant(
        "ldpsql/ledger/statements.py",
        '(_total(people["epsilon_ever"]), _total(people["delta_ever"])) != (epsilon, delta)',
        '(_total(people["epsilon_ever"]), 0) != (epsilon, 0)',
        "an account with another delta adds up",
        "tests/test_ledger_damage.py tests/test_ledger.py",
    ),
)
