-- `shares` is an estimate: a table, a view or a CTE with a column `estimate`. Only its other columns are kept.
CREATE OR REPLACE MACRO ldp.synthesize(shares, "rows") AS TABLE
    WITH "ldp cells" AS MATERIALIZED (SELECT row_number() OVER () AS "ldp cell", t AS "ldp row" FROM query_table(shares) AS t),
    "ldp drawn" AS (
        SELECT unnest(__ldp_synthesized(list("ldp row" ORDER BY "ldp cell"), "rows")) AS "ldp cell" FROM "ldp cells"
    )
    SELECT COLUMNS(lambda c: lower(c) NOT IN ('estimate', 'std_error', 'low', 'high', 'n')) FROM (
        SELECT unnest("ldp row") FROM "ldp drawn" JOIN "ldp cells" USING ("ldp cell")
    );

COMMENT ON MACRO TABLE ldp.synthesize IS 'rows that are drawn from an estimate, for tools that need rows; they spend no epsilon';
