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
        "elif guard.process != os.getpid() or not all_among(charged, fingerprints(certified)):",
        "elif not all_among(charged, fingerprints(certified)):",
        "a forked process draws permanent reports of its parent's charge",
        "tests/laws/test_ledger.py::test_a_forked_process_draws_nothing_of_its_parents_charge",
    ),
    Mutant(
        "ldpsql/ledger/guard.py",
        "if self.left[mechanism] < rows or self.process != os.getpid():",
        "if self.left[mechanism] < rows:",
        "a forked process draws reports of its parent's charge",
        "tests/laws/test_ledger.py::test_a_forked_process_draws_nothing_of_its_parents_charge",
    ),
    Mutant(
        "ldpsql/ledger/guard.py",
        "if self.left[mechanism] < rows or self.process != os.getpid():",
        "if self.left[mechanism] < 1 or self.process != os.getpid():",
        "the last statement of a release draws more than is left",
        "tests/test_guard.py::test_a_release_is_of_the_table_that_its_statements_read",
    ),
    Mutant(
        "ldpsql/ledger/guard.py",
        "            self.left[mechanism] -= rows",
        "            self.left[mechanism] -= min(rows, 1)",
        "a statement of many rows takes one draw",
        "tests/test_guard.py::test_a_comparison_that_duckdb_makes_two_of_draws_twice_and_is_counted",
    ),
    Mutant(
        "ldpsql/ledger/guard.py",
        "            self.withdraw()\n            self.opened = None",
        "            self.opened = None",
        "draws that are left can be made after the release",
        "tests/test_guard.py::test_draws_that_a_release_leaves_end_with_it",
    ),
    Mutant(
        "ldpsql/ledger/guard.py",
        "self.left, self.permanent, self.columns = Counter(), {}, {}",
        "self.left, self.columns = Counter(), {}",
        "permanent reports can be drawn after the release",
        "tests/test_permanent_charges.py::test_a_permanent_report_is_refused_outside_of_its_release",
    ),
    Mutant(
        "ldpsql/ledger/guard.py",
        "        guard.take(mechanism, rows)\n        guard.check_permanent(certified)",
        "        guard.take(mechanism, rows)",
        "permanent reports that share a response are charged as if they did not",
        "tests/test_loloha.py::test_a_release_in_sql_does_not_pay_for_permanent_reports_of_loloha",
    ),
    Mutant(
        "ldpsql/ledger/guard.py",
        "    if guard is None or guard.ledger is None:",
        "    if guard is None or guard.key is None:",
        "a connection with a ledger and no key draws without a release",
        f"{_GUARD}::test_nothing_is_drawn_outside_of_a_release",
    ),
    Mutant(
        "ldpsql/ledger/guard.py",
        "        if whose is None or self.temporary",
        "        if whose is None:\n            return\n        if self.temporary",
        "a release pays for a statement of which nobody can see what it reads",
        f"{_GUARD}::test_a_release_draws_nothing_of_which_nobody_can_see_what_it_reads",
    ),
    Mutant(
        "ldpsql/ledger/guard.py",
        "if whose is None or self.temporary & {parts(name)[-1] for name in whose.names}:",
        "if whose is None:",
        "a temporary table or view is drawn from that has the name of the one that is charged",
        f"{_GUARD}::test_a_release_draws_nothing_of_which_nobody_can_see_what_it_reads",
    ),
    Mutant(
        "ldpsql/ledger/guard.py",
        "whose = identity_of_statement(cursor, self.sql, unless_by_value=True)",
        "whose = identity_of_statement(cursor, self.sql)",
        "a parameter or a variable names another table than the one that is seen",
        f"{_GUARD}::test_a_release_draws_nothing_of_which_nobody_can_see_what_it_reads",
    ),
    Mutant(
        "ldpsql/ledger/guard.py",
        "if number is not None and -number in LEDGERED:",
        "if False:",
        "a transaction that was open when the ledger was attached draws past it",
        f"{_GUARD}::test_a_transaction_that_was_open_when_the_ledger_was_attached_draws_nothing",
    ),
    # Spending
    Mutant(
        "ldpsql/ledger/spending.py",
        "{'up to ' * (fewest < reports)}",
        "",
        "a refusal says that all who are refused give as many reports as one of them",
        f"{_LEDGER}::test_a_refusal_says_what_it_costs_those_who_cannot_afford_it",
    ),
    Mutant(
        "ldpsql/ledger/policy.py",
        "groups.get(column.casefold(), REST)",
        "groups.get(column, REST)",
        "a column has a second budget in uppercase letters",
        f"{_LEDGER}::test_a_column_stays_in_its_group_in_lowercase_and_uppercase_letters",
    ),
    Mutant(
        "ldpsql/ledger/spending.py",
        'fresh = accounts["since"] <= (now - policy.window if',
        'fresh = accounts["since"] <= (now - policy.window // 2 if',
        "budgets renew after half the window",
        "tests/laws/test_ledger.py::test_a_budget_renews_when_the_window_has_passed_and_not_a_microsecond_before",
    ),
    Mutant(
        "ldpsql/ledger/spending.py",
        'fresh = accounts["since"] <= (now - policy.window if',
        'fresh = accounts["since"] <= (now - policy.window - 1 if',
        "budgets renew a microsecond after the window",
        "tests/laws/test_ledger.py::test_a_budget_renews_when_the_window_has_passed_and_not_a_microsecond_before",
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
        "if dataset in known or any(alike(dataset, name) for name in names)]",
        "if dataset in known]",
        "another spelling of a dataset has a budget of its own",
        "tests/test_datasets.py::test_a_table_has_one_budget_however_it_is_spelled "
        "tests/test_datasets.py::test_no_path_view_macro_or_url_gives_a_file_a_second_budget",
    ),
    # The book
    Mutant(
        "ldpsql/ledger/book.py",
        "if policy_of(db)[0] != request.policy:",
        "if False:",
        "a charge under a policy that another process has replaced meanwhile is taken",
        "tests/laws/test_ledger.py::test_a_charge_under_a_policy_that_changed_while_people_were_read_is_refused",
    ),
    Mutant(
        "ldpsql/ledger/book.py",
        "taken_up = resume and earlier and not earlier.stored and not was_drawn(db, earlier.token)",
        "taken_up = resume and earlier and not earlier.stored",
        "a release whose reports were seen is drawn again for nothing",
        "tests/test_datasets.py::test_a_table_that_is_gone_after_a_kill_is_charged_again",
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
        "return cls(currency, ceil(claim.epsilon.value * MICRO), ceil(claim.delta * _FEMTO))",
        "return cls(currency, int(claim.epsilon.value * MICRO), ceil(claim.delta * _FEMTO))",
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
        "tests/test_ledger.py::test_a_refusal_explains_a_clock_that_once_ran_ahead",
    ),
    Mutant(
        "ldpsql/ledger/entries.py",
        '"people": people.digest() if people else None',
        '"people": None',
        "a release of other people counts as the same one",
        "tests/test_ledger.py::test_the_same_release_of_other_people_is_another_one",
    ),
    # Damage
    Mutant(
        "ldpsql/ledger/file.py",
        "    if walk != last or seen != stated or not charges.keys() <= releases.keys():",
        "    if walk != last or seen != stated:",
        "charges of no release are not noticed",
        "tests/laws/test_ledger.py::test_a_row_that_is_added_to_any_table_of_the_file_is_found",
    ),
    Mutant(
        "ldpsql/ledger/file.py",
        "    if walk != last or seen != stated or not charges.keys() <= releases.keys():",
        "    if walk != last or not charges.keys() <= releases.keys():",
        "releases that were put in by another program are not noticed",
        "tests/laws/test_ledger.py::test_a_row_that_is_added_to_any_table_of_the_file_is_found",
    ),
    Mutant(
        "ldpsql/ledger/file.py",
        'if "charged" not in states or ("published" in states) != (row[9] is not None) or states >= _ENDS:',
        'if "charged" not in states or states >= _ENDS:',
        "a release that was marked as published by another program is used",
        "tests/test_ledger_damage.py::test_a_release_is_compared_with_its_seals_before_it_is_published_or_returned",
    ),
    Mutant(
        "ldpsql/ledger/statements.py",
        '(_total(people["epsilon_ever"]), _total(people["delta_ever"])) != (epsilon, delta)',
        '(_total(people["epsilon_ever"]), 0) != (epsilon, 0)',
        "an account with another delta adds up",
        "tests/test_ledger.py::test_check_compares_what_everybody_ever_spent_with_the_charges",
    ),
    Mutant(
        "ldpsql/bulk/charging.py",
        "return bool(self._source.users) and not len(self._source.users[0])",
        "return bool(self._source.users)",
        "a run that charges by user is taken for one of nobody and charges nobody",
        "tests/test_uncharged.py::test_a_run_of_nobody_costs_nothing_and_may_be_repeated_before_and_after_others",
    ),
)
