-- A key by which GROUP BY keeps strings apart that are equal by their collation: their bytes.
CREATE OR REPLACE MACRO ldp._key(x VARCHAR) AS encode(x), (x) AS x;

-- The query is written when a statement is bound: see perturb_rows_query.sql. An argument of query() cannot contain a subquery, so
-- functions in Python note the mechanisms before, while DuckDB binds the paths of json_remove. No row comes from that branch.
-- With a subquery, the path is not constant, and the query reads the mechanisms from the CTE, which is bound only then.
CREATE OR REPLACE MACRO ldp.perturb_rows(t, columns, keep := []) AS TABLE
    WITH "_ldpsql_columns" AS MATERIALIZED (SELECT columns AS m)
    SELECT * EXCLUDE ("_ldpsql_none") FROM (
        SELECT true AS "_ldpsql_none" WHERE json_remove('{}', __ldp_forget(0)) IS NULL
            OR json_remove('{}', __ldp_note(columns, typeof(columns))) IS NULL
        UNION ALL BY NAME FROM query(__ldp_rows_query(t, keep, 'ldp.'))
    );

COMMENT ON MACRO TABLE ldp.perturb_rows IS 'the rows of a table in random order: reports of columns, and kept columns';
