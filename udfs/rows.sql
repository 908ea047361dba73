-- `columns` holds the number of values of each column; by default the table of all columns is asked for.
CREATE OR REPLACE MACRO ldp.plan("columns", reports, epsilon, tables := []::VARCHAR[][]) AS TABLE
    SELECT unnest(__ldp_plan_tables("columns", reports, epsilon::VARCHAR, tables), recursive := true);

COMMENT ON MACRO TABLE ldp.plan IS 'the expected error of tables of several columns for each way to spend one epsilon on a row, the best first';
