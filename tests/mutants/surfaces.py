"""What people call: the lint, dbt, exported SQL, clients, the command line, and what errors say."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    # The lint
    Mutant(
        "ldpsql/sql/drawing.py",
        '_RUNNING = frozenset({_RUNS_TEXT, "json_execute_serialized_sql"})',
        "_RUNNING = frozenset({_RUNS_TEXT})",
        "a view that runs a serialised plan draws unseen",
        "tests/test_lint.py::test_what_redraws_is_found",
    ),
    Mutant(
        "ldpsql/sql/drawing.py",
        "        if not statement.only_constants(_RUNS_TEXT, or_calls=(WRITTEN_CALL, ROWS_QUERY)):\n            return True",
        "        if not statement.only_constants(_RUNS_TEXT, or_calls=(WRITTEN_CALL, ROWS_QUERY)):\n            return False",
        "a view that puts SQL together draws unseen",
        "tests/test_lint.py::test_what_redraws_is_found",
    ),
    Mutant(
        "ldpsql/sql/drawing.py",
        "while new := {name for name, body in self._macros if self._calls(body) & self.drawing} - self.drawing:",
        "if new := {name for name, body in self._macros if self._calls(body) & self.drawing} - self.drawing:",
        "a macro of a macro that perturbs draws unseen",
        "tests/test_lint.py::test_what_redraws_is_found",
    ),
    Mutant(
        "ldpsql/sql/lint.py",
        "[*macros, *con.sql(_PREPARED).fetchall()]",
        "[*macros]",
        "prepared statements are not read",
        "tests/test_lint.py::test_a_prepared_statement_of_stored_rows_is_found",
    ),
    Mutant(
        "ldpsql/sql/scripts.py",
        '"map_contains_entry", "nullif", "split_part", "weighted_avg",',
        '"map_contains_entry", "split_part", "weighted_avg",',
        "a draw in NULLIF, which gives two reports, is not seen",
        "tests/test_lint.py::test_draws_inside_of_expressions_that_duckdb_evaluates_several_times_are_found",
    ),
    Mutant(
        "ldpsql/sql/uses.py",
        'return "filter" if inner is node.this else ""',
        'return ""',
        "CASE city WHEN is not seen to compare reports",
        "tests/test_uses.py::test_every_planted_use_is_found_in_the_line_of_the_column",
    ),
    Mutant(
        "ldpsql/sql/uses.py",
        '            if join.args.get("method") == "NATURAL":',
        "            if False:",
        "a NATURAL JOIN by a report is not seen",
        "tests/test_uses.py::test_every_planted_use_is_found_in_the_line_of_the_column",
    ),
    Mutant(
        "ldpsql/sql/project.py",
        'return stripped if stripped.isidentifier() else "x"',
        'return stripped if stripped.isidentifier() else ""',
        "the SQL of a template with an expression cannot be read",
        "tests/test_uses.py::test_the_line_of_a_use_in_a_template_is_that_of_the_file",
    ),
    # dbt
    Mutant(
        "ldpsql/dbt/models.py",
        'return "" if config.full_refresh is False else "incremental without full_refresh=false"',
        'return ""',
        "dbt build --full-refresh draws reports again",
        "tests/test_dbt.py::test_whatever_dbt_would_draw_again_stops_the_project",
    ),
    Mutant(
        "ldpsql/dbt/releases.py",
        "                if succeeded:\n                    self._ledger.publish(release)",
        "                if building:\n                    self._ledger.publish(release)",
        "a model that failed is published",
        "tests/test_dbt.py::test_what_would_overspend_or_failed_is_not_published",
    ),
    Mutant(
        "ldpsql/dbt/models.py",
        '        if command == "show":',
        "        if False:",
        "dbt show draws reports that nobody keeps",
        "tests/test_dbt.py::test_what_jinja_puts_together_is_read_before_it_runs",
    ),
    # Exported SQL
    Mutant(
        "ldpsql/bulk/views.py",
        "table.shrink * (table.own - table.other) / 2",
        "table.shrink * (table.own - table.other)",
        "exported intervals are in the wrong place",
        "tests/test_relational.py::test_duckdb_without_ldpsql_returns_the_same_to_twelve_digits",
    ),
    Mutant(
        "ldpsql/bulk/views.py",
        't * table[f"{of}_b"] * 2',
        't * table[f"{of}_b"] * 0',
        "exported errors of inversions leave out the scaling",
        "tests/test_relational.py::test_every_linear_inversion_is_that_of_ldpsql_to_twelve_digits",
    ),
    Mutant(
        "ldpsql/bulk/views.py",
        ".length() == self.channel.chosen",
        ".length() >= 0",
        "exported SQL counts subsets of another size",
        "tests/test_relational.py::test_sets_that_the_mechanism_cannot_draw_are_counted_and_left_out",
    ),
    Mutant(
        "ldpsql/bulk/views.py",
        'possible &= bits.substr(size) == "0" * rest',
        "possible &= bits.length() > 0",
        "exported SQL counts sets with a value beyond the domain",
        "tests/test_relational.py::test_sets_that_the_mechanism_cannot_draw_are_counted_and_left_out",
    ),
    Mutant(
        "ldpsql/bulk/views.py",
        "own, moved = votes * (1 - votes), squares * (1 - 2 * votes) + votes * votes",
        "own, moved = votes * (1 - votes), votes * (1 - votes)",
        "exported errors do not see that weights go with values",
        "tests/test_relational.py::test_a_view_of_sqlite_returns_the_inversion_of_ldpsql",
    ),
    # Clients
    Mutant(
        "ldpsql/clients/js/structures.mjs",
        "size - 1) + 1;",
        "size - 1) + 2;",
        "a client draws another report than Python",
        "tests/test_clients.py::test_node_draws_the_reports_of_python_from_the_same_words",
    ),
    Mutant(
        "ldpsql/clients/js/core.mjs",
        "  const word = buffer[--left];",
        "  const word = buffer[--left] >> 1n;",
        "the first bit of a client's random words is always 0",
        "tests/test_clients.py::test_reports_follow_the_channel_with_the_random_words_of_node",
    ),
    Mutant(
        "ldpsql/clients/js/structures.mjs",
        "if (held.filter(Boolean).length === count) return held;",
        "return held;",
        "a client draws subsets with too many values if keys are equal",
        "tests/test_clients.py::test_subsets_whose_keys_are_equal_are_drawn_again_as_in_python",
    ),
    Mutant(
        "ldpsql/clients/js/domains.mjs",
        'if (out.has(at)) throw new RangeError("a set holds a key twice");',
        "",
        "a client takes a set with a key twice",
        "tests/test_clients.py::test_a_module_reads_the_sets_that_python_reads",
    ),
    Mutant(
        "ldpsql/clients/module.py",
        '.replace("<", "\\\\u003c")',
        "",
        "a value of the domain ends the script of a page",
        "tests/test_clients.py::test_a_module_can_stand_in_a_page_whatever_its_values_are",
    ),
    # The command line
    Mutant(
        "ldpsql/cli/perturb.py",
        '    ] = "random",',
        '    ] = "keep",',
        "ldpsql perturb keeps the order of the rows",
        "tests/test_cli.py::test_perturb_shuffles_unless_it_is_asked_to_keep_the_order",
    ),
    Mutant(
        "ldpsql/cli/perturb.py",
        "or len(set(columns)) < len(columns) or",
        "or",
        "the second mechanism of a column replaces the first",
        "tests/test_bulk.py::test_options_of_the_command_that_do_not_belong_together_are_refused",
    ),
    Mutant(
        "ldpsql/cli/options.py",
        "        return value if isfinite(value) else None",
        "        return value",
        "JSON has numbers that JSON does not have",
        "tests/test_cli.py::test_numbers_that_json_does_not_have_are_null",
    ),
    Mutant(
        "ldpsql/cli/failures.py",
        "return Failure(ours.code, ours.message, ours.hint, ours.exit_code)",
        "return Failure(ours.code, ours.message, ours.hint, 1)",
        "a refusal inside of SQL has another exit code than outside",
        "tests/test_cli.py::test_a_refusal_inside_sql_has_the_exit_code_of_its_kind_and_shows_no_raw_value",
    ),
    Mutant(
        "ldpsql/cli/lint.py",
        "return path.as_uri() if path.is_absolute() else quote(path.as_posix())",
        "return path.as_uri() if path.is_absolute() else path.as_posix()",
        "a file with a space in its name has no address in a review",
        "tests/test_policy_review.py::test_addresses_of_files_in_sarif_are_percent_encoded",
    ),
    # What errors say
    Mutant(
        "ldpsql/errors/wording.py",
        "_kept(part, names if place % 2 else names | _DUCKDB)",
        "_kept(part, names | _DUCKDB)",
        "a name from data that is a word of DuckDB is repeated within quotes",
        "tests/test_hygiene.py::test_a_name_that_was_not_typed_is_left_out_also_if_it_is_a_word_of_duckdb_and_so_is_what_resembles_it",
    ),
    Mutant(
        "ldpsql/errors/wording.py",
        '    if suggestion and "…" not in sentence:',
        "    if suggestion:",
        "a suggestion that resembles a raw value is shown",
        "tests/test_hygiene.py::test_a_name_that_was_not_typed_is_left_out_also_if_it_is_a_word_of_duckdb_and_so_is_what_resembles_it",
    ),
    Mutant(
        "ldpsql/errors/boundary.py",
        "    refusal.__cause__ = refusal.__context__ = None",
        "    refusal.__cause__ = None",
        "the traceback of an error holds the columns of the error before it",
        "tests/test_tracebacks.py::test_no_frame_and_no_exception_behind_an_error_holds_a_value",
    ),
    Mutant(
        "ldpsql/ledger/permanent.py",
        "        if shared:",
        "        if False:",
        "a key that others can read is used",
        "tests/test_perturb_once.py::test_a_lost_damaged_shared_or_other_key_is_reported",
    ),
)
