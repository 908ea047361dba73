"""Speed of the SQL functions, against plain DuckDB on the same rows in the same run: K = 100 values, 100 groups."""

from __future__ import annotations

from functools import partial

import ldpsql
from benchmarks.figures import Figure, at_least, at_most, in_turns


def figures(quick: bool) -> list[Figure]:
    """Return the ratios of perturbing and estimating."""
    millions = 10 if quick else 100
    con = ldpsql.connect()
    con.execute("CREATE MACRO m() AS ldp.krr(1.0, range(100))")
    con.execute("CREATE TABLE people AS SELECT range % 100 AS x FROM range(10_000_000)")
    copy = partial(con.execute, "CREATE OR REPLACE TABLE c AS SELECT x FROM people")
    perturb = partial(con.execute, "CREATE OR REPLACE TABLE c AS SELECT ldp.perturb(x, m()) AS x FROM people")
    plain, perturbed = in_turns(copy, perturb)
    con.execute("SET threads = 1")
    (alone,) = in_turns(perturb)
    con.execute("RESET threads")
    out = [
        at_least("ldp.perturb, 10 M rows into a table", 10 / perturbed, 10, "M rows/s"),
        at_least("ldp.perturb, 10 M rows into a table, SET threads = 1", 10 / alone, 10, "M rows/s"),
        Figure("ldp.perturb against copying the column", perturbed / plain),
    ]
    con.execute(
        f"""CREATE TABLE r AS SELECT (range // 10) % 100 AS g, ldp.perturb(range % 100, m()) AS x
            FROM range({millions} * 1_000_000)"""
    )
    plain, estimated = in_turns(
        partial(con.execute, "CREATE OR REPLACE TABLE c AS SELECT g, x, count(*) FROM r GROUP BY g, x"),
        partial(con.execute, "CREATE OR REPLACE TABLE c AS SELECT g, ldp.ibu(x, m()) FROM r GROUP BY g"),
    )
    out.append(at_most(f"ldp.ibu, {millions} M reports, 100 groups, against GROUP BY", estimated / plain, 1.3))
    plain, estimated = in_turns(
        partial(con.execute, "CREATE OR REPLACE TABLE c AS SELECT x, count(*) FROM r GROUP BY x"),
        partial(con.execute, "CREATE OR REPLACE TABLE c AS SELECT ldp.ibu(x, m()) FROM r"),
    )
    out.append(Figure(f"ldp.ibu, {millions} M reports, one group, against GROUP BY", estimated / plain))
    con.execute(
        "CREATE OR REPLACE TABLE r AS SELECT range % 100_000 AS g, ldp.perturb(range % 97, m()) AS x FROM range(10_000_000)"
    )
    plain, estimated = in_turns(
        partial(con.execute, "CREATE OR REPLACE TABLE c AS SELECT g, histogram(x) FROM r GROUP BY g"),
        partial(con.execute, "CREATE OR REPLACE TABLE c AS SELECT g, ldp.ibu(x, m()) FROM r GROUP BY g"),
    )
    out.append(at_most("ldp.ibu, 100,000 groups, against histogram", estimated / plain, 2))
    return out
