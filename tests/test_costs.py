"""What would take long or much memory is refused before it begins, in one sentence, by every function that is asked for it."""

from __future__ import annotations

import re
import subprocess
import sys

import duckdb
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql.channels import costs
from ldpsql.errors import InvalidParameter

_WIDE = "list_transform(range(1000), lambda i: list_transform(range(1000), lambda j: abs(i - j)))"
REFUSED = {
    "a table of a channel": ("FROM ldp.channel(ldp.hierarchy(1, 0, 100)) LIMIT 5", "use fewer values"),
    "a table of another channel": ("FROM ldp.channel(ldp.krr(1, range(2000)))", "use fewer values"),
    "wide sets": ("SELECT ldp.perturb(1::BIGINT, ldp.oue(.5, range(2000000))) FROM range(4000)", "use olh"),
    "wide sets of equal rows": ("FROM ldp.perturb_rows(zeros, {x: ldp.oue(.5, range(1000000))})", "use olh"),
    "chosen sets": ("SELECT ldp.perturb(1::BIGINT, ldp.subset_selection(.5, range(1000000))) FROM range(1000)", "use olh"),
    "distances": (f"SELECT ldp.describe(ldp.exponential(1, range(1000), distances := {_WIDE}))", "fewer values"),
    "probabilities": (f"SELECT ldp.describe(ldp.matrix(range(1000), {_WIDE}))", "fewer values"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_work_beyond_the_limit_is_refused_with_a_remedy(con: DuckDBPyConnection, what: str) -> None:
    statement, remedy = REFUSED[what]
    con.execute("CREATE TABLE zeros AS SELECT 0::BIGINT AS x FROM range(400000)")
    with pytest.raises(duckdb.Error, match=rf"LDP103\] .* would take .* limit is .*\. Hint: .*{remedy}"):
        con.execute(statement).fetchall()


def test_work_that_takes_a_while_says_so_before_it_begins(
    con: DuckDBPyConnection, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = "FROM ldp.channel(ldp.krr(1, range({}))) LIMIT 1"
    con.execute(channel.format(30)).fetchall()
    assert not caplog.messages
    monkeypatch.setattr(costs, "SOON", 1e-9)
    con.execute(channel.format(31)).fetchall()
    assert any(re.fullmatch(r"a table of .* will take about \d+ seconds", said) for said in caplog.messages)
    caplog.clear()
    with pytest.raises(duckdb.Error, match="would take"):  # what is refused does not take a while
        con.execute(channel.format(2000)).fetchall()
    assert not [said for said in caplog.messages if "a table of" in said]


def test_reports_that_take_too_much_memory_are_refused_in_python() -> None:
    with pytest.raises(InvalidParameter, match="GiB of memory"):
        ldpsql.perturb([0] * 200_000, "oue(1, range(100000))")


def test_a_table_of_a_channel_is_that_of_its_exact_probabilities(con: DuckDBPyConnection) -> None:
    for mechanism in (
        "ldp.krr(1, [3, 5, 7])",
        "ldp.olh(2, range(20))",
        "ldp.hierarchy(1, 0, 9, step := 1)",
        "ldp.geometric(1, 0, 5)",
    ):
        rows = con.execute(f"""
            SELECT value, sum(probability), count(DISTINCT report), bool_and(
                abs(split_part(exact, '/', 1)::DOUBLE / split_part(exact, '/', 2)::DOUBLE - probability) < 1e-12)
            FROM ldp.channel({mechanism}) GROUP BY value""").fetchall()
        assert all(total == pytest.approx(1, abs=1e-12) and exact for _, total, _, exact in rows)
        assert len({reports for *_, reports, _ in rows}) == 1


def test_no_function_of_sql_ends_the_process_at_an_interval() -> None:
    """Without pandas, Arrow cannot pass intervals to NumPy, and ends the process."""
    script = """
import sys, polars
from tests.stress.fuzz import NoPandas
sys.meta_path.insert(0, NoPandas()); sys.modules.pop("pandas", None)
import duckdb, ldpsql
con = ldpsql.connect()
for call in ("answer_mean(x, x)", "merge([x], [1])", "perturb(x, 0)", "cell(x, x, 0, x)"):
    try:
        con.execute(f"SELECT system.main.__ldp_{call} FROM (VALUES (INTERVAL 1 DAY), (NULL)) AS t(x)").fetchall()
    except duckdb.Error as error:
        assert "[LDP" in str(error) and "[LDP9" not in str(error), error
    else:
        raise AssertionError(call)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"[-2000:]


def test_an_answer_that_the_reports_do_not_contain_says_so(con: DuckDBPyConnection) -> None:
    nearly_singular = "ldp.blahut_arimoto(1, [0, 1, 2, 3], [4, 3, 2, 1], columns := 2)"
    con.execute("CREATE TABLE cells AS SELECT (i % 4)::INTEGER AS x FROM range(10000) t(i)")
    con.execute(f"CREATE TABLE seen AS FROM ldp.perturb_rows(cells, {{x: {nearly_singular}}})")
    con.execute("CREATE TABLE clear AS FROM ldp.perturb_rows(cells, {x: ldp.krr(3, range(4)::INTEGER[])})")
    for estimator in ("best", "ibu"):
        remedies = (f"SELECT (ldp.diagnose(x, estimator := '{estimator}')).remedy FROM {table}" for table in ("seen", "clear"))
        said, not_said = (con.execute(remedy).fetchall()[0][0] for remedy in remedies)
        assert re.search(r"these reports .* shares.*: about [0-9,]+ reports would be enough", said)
        assert "would be enough" not in not_said
