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
), tables AS (
    SELECT {'path': [database_name, schema_name, table_name],
            'columns': list({'name': column_name, 'comment': concat_ws(' ', comment, data_type)} ORDER BY column_index)} AS recorded
    FROM duckdb_columns() WHERE database_name <> 'system' GROUP BY database_name, schema_name, table_name
    HAVING bool_or(contains(concat_ws(' ', comment, data_type), 'ldpsql:'))
)
SELECT unnest(__ldp_lint(
    (SELECT list({'kind': kind, 'name': name, 'sql': sql} ORDER BY kind, name) FROM objects), (SELECT list(recorded ORDER BY recorded) FROM tables)
), recursive := true);

COMMENT ON MACRO TABLE ldp.lint IS 'views and macros of the database that draw again whenever they are used, or use reports as if they were the values';
