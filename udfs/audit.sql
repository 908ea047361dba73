-- A report keeps its own type if SQL lists the reports; otherwise it is text.
CREATE OR REPLACE MACRO ldp.channel(m) AS TABLE
    SELECT ldp._domain(m)[cell.value] AS value,
           cast_to_type(cell.report, from_json('null', '' || __ldp_shown_type(typeof(CASE WHEN true THEN m END), ldp._text(m)))) AS report,
           cell.exact, cell.probability
    FROM (SELECT unnest(__ldp_channel(__ldp_mechanism(m))) AS cell);

-- `prior` is a list with one number for each value of the domain.
CREATE OR REPLACE MACRO ldp.information(m, prior, beta := NULL) AS __ldp_information(__ldp_mechanism(m), prior,
    CASE WHEN beta IS NOT NULL THEN coalesce(try_cast(beta AS DOUBLE), 'nan') END);

CREATE OR REPLACE MACRO ldp.shuffled(m, reports, delta) AS
    __ldp_shuffled(__ldp_mechanism(m), try_cast(reports AS BIGINT), try_cast(delta AS DOUBLE));

CREATE OR REPLACE MACRO ldp.repeated_error(m, reports) AS __ldp_repeated_error(__ldp_mechanism(m), try_cast(reports AS DOUBLE));

COMMENT ON MACRO TABLE ldp.channel IS 'the probability of every report given every value, exact and rounded';
COMMENT ON MACRO ldp.information IS 'what one report reveals on average under a prior, in nats, and how far reports are from the values; with beta, the least information that this distortion allows';
COMMENT ON MACRO ldp.repeated_error IS 'bounds the error of identifying a value from many independent reports of it';
COMMENT ON MACRO ldp.shuffled IS 'the central epsilon of shuffled reports without ids, for a delta, with a lower bound';

-- array_to_string is a macro of DuckDB, which calls a macro of the user's named len.
-- Macros of a catalog of ldpsql are left out: those of a database that has the macro that marks one.
CREATE OR REPLACE MACRO ldp.lint() AS TABLE
WITH macros AS (
    SELECT * FROM duckdb_functions() WHERE macro_definition IS NOT NULL AND NOT internal AND database_name NOT IN (
        SELECT database_name FROM duckdb_functions() WHERE function_name = '_ldpsql_made_this'
    )
), objects AS (
    SELECT 'view' AS kind, schema_name || '.' || view_name AS name, sql FROM duckdb_views() WHERE NOT internal
    UNION ALL
    SELECT 'macro', schema_name || '.' || function_name, format(
        'CREATE MACRO "{}"({}) AS {}{}', replace(function_name, '"', '""'), coalesce(system.main.list_aggregate(parameters, 'string_agg', ', '), ''),
        CASE WHEN function_type = 'table_macro' THEN 'TABLE ' ELSE '' END, macro_definition
    ) FROM macros
    UNION ALL
    SELECT 'generated column of table', schema_name || '.' || table_name, 'SELECT ' || generation_expression
    FROM duckdb_columns() WHERE database_name <> 'system' AND is_generated
    UNION ALL
    SELECT 'check constraint of table', schema_name || '.' || table_name, 'SELECT ' || expression
    FROM duckdb_constraints() WHERE constraint_type = 'CHECK'
), tables AS (
    SELECT {'path': [database_name, schema_name, table_name],
            'columns': list({'name': column_name, 'comment': concat_ws(' ', comment, data_type)} ORDER BY column_index)} AS recorded
    FROM duckdb_columns() WHERE database_name <> 'system' GROUP BY database_name, schema_name, table_name
    HAVING bool_or(contains(concat_ws(' ', comment, data_type), 'ldpsql:'))
)
SELECT unnest(__ldp_lint(
    (SELECT list({'kind': kind, 'name': name, 'sql': sql} ORDER BY kind, name) FROM objects), (SELECT list(recorded ORDER BY recorded) FROM tables)
), recursive := true);

COMMENT ON MACRO TABLE ldp.lint IS 'views, generated columns, checks and macros of the database that draw again whenever they are used, or use reports as if they were the values';

CREATE OR REPLACE MACRO ldp.budget() AS TABLE SELECT unnest(__ldp_budget(ldp._guard()), recursive := true);

COMMENT ON MACRO TABLE ldp.budget IS 'the budget that the ledger of this connection has spent, and what is left';
