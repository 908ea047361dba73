"""Key-value data in SQL: where the planes of 2013 flew from New York, and how late they arrived there.

``python examples/key_value.py``. The set of a plane holds its destinations with their mean arrival delays, and its report is
one noisy pair of the set. All reports together give the share of planes that fly to each destination, and their mean delay.
"""

from pathlib import Path

import ldpsql

FLIGHTS = Path(__file__).parent / "data" / "flights.parquet"

PLANES = """
CREATE TABLE planes AS
    SELECT tailnum, list({'key': dest, 'value': delay}) AS pairs
    FROM (SELECT tailnum, dest, avg(arr_delay) AS delay FROM flights WHERE arr_delay IS NOT NULL GROUP BY ALL)
    GROUP BY tailnum;
"""

# The destinations are public. Nine planes in ten have at most 25 of them; a shorter padding would make every share too low.
# Delays beyond the range are moved to its nearer end.
MECHANISM = """
SET VARIABLE destinations = (SELECT list(DISTINCT dest ORDER BY dest) FROM flights);
CREATE MACRO visits() AS
    ldp.pckv_grr(4, getvariable('destinations'), padding := 25, low := -30, high := 60, clip := true);
"""

# Perturb once, into a table, in random order: one report for each plane, and no other column.
PERTURB = "CREATE TABLE reports AS SELECT ldp.perturb(pairs, visits()) AS visit FROM planes ORDER BY random();"

ESTIMATE = """
WITH estimated AS (SELECT unnest(ldp.key_value(visit, visits(), estimator := 'ibu'), recursive := true) FROM reports),
     truth AS (
         SELECT pair.key, count(*) / (SELECT count(*) FROM planes) AS planes, avg(greatest(-30, least(60, pair.value))) AS delay
         FROM (SELECT unnest(pairs) AS pair FROM planes) GROUP BY ALL
     )
SELECT key AS dest, round(frequency, 3) AS share, round(frequency_error, 3) AS "+-", round(planes, 3) AS true_share,
       round(mean, 1) AS delay, round(mean_low, 1) AS low, round(mean_high, 1) AS high, round(delay, 1) AS true_delay
FROM estimated JOIN truth USING (key) ORDER BY frequency DESC LIMIT 10
"""

# How many pairs were padding, and does the padding seem too short?
SETS = "SELECT unnest(ldp.key_value_diagnose(visit, visits())) FROM reports"


def main() -> None:
    """Perturb the planes and print the estimates."""
    with ldpsql.connect() as con:
        con.read_parquet(str(FLIGHTS)).create_view("flights")
        for statement in (PLANES, MECHANISM, PERTURB):
            con.execute(statement)
        con.sql(ESTIMATE).show()
        con.sql(SETS).select("dummies", "dummies_error", "mean_set_size", "lost_if_geometric", "warning").show()


if __name__ == "__main__":
    main()
