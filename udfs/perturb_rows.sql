-- A key by which GROUP BY keeps strings apart that are equal by their collation: their bytes.
CREATE OR REPLACE MACRO ldp._key(x VARCHAR) AS encode(x), (x) AS x;

-- The query is written when a statement is bound: see perturb_rows_query.sql. An argument of query() cannot contain a subquery, so
-- functions in Python note the mechanisms before, while DuckDB binds the patterns of regexp_extract. No row comes from that branch.
-- With a subquery, the pattern is not constant, and the query reads the mechanisms from the CTE, which is bound only then.
CREATE OR REPLACE MACRO ldp.perturb_rows(t, columns, keep := []) AS TABLE
    WITH "_ldpsql_columns" AS MATERIALIZED (SELECT columns AS m)
    SELECT * EXCLUDE ("_ldpsql_none") FROM (
        SELECT true AS "_ldpsql_none" WHERE regexp_extract('', __ldp_forget(0)) <> ''
            OR regexp_extract('', __ldp_note(columns, typeof(columns))) <> ''
        UNION ALL BY NAME FROM query(__ldp_rows_query(t, keep, 'ldp.'))
    );

COMMENT ON MACRO TABLE ldp.perturb_rows IS 'the rows of a table in random order: reports of columns, and kept columns';
