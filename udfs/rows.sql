-- The joint table of several columns in long form: one row for each cell, and one column for each variable.
-- `report` is a struct, such as {city: city, age: age}.
CREATE OR REPLACE MACRO ldp.crosstab(reports, report, m, estimator := 'ibu') AS TABLE
        (FROM ldp._estimate(reports, report, m, estimator)),
    (reports, report) AS TABLE
        (FROM query(__ldp_call('ldp._estimate', reports, report, 'ldp.mechanism', alias(report))));

-- `columns` holds the number of values of each column; by default the table of all columns is asked for.
CREATE OR REPLACE MACRO ldp.plan("columns", reports, epsilon, tables := []::VARCHAR[][]) AS TABLE
    SELECT unnest(__ldp_plan_tables("columns", reports, epsilon::VARCHAR, tables), recursive := true);

COMMENT ON MACRO TABLE ldp.plan IS 'the expected error of tables of several columns for each way to spend one epsilon on a row, the best first';
COMMENT ON MACRO TABLE ldp.crosstab IS 'the joint table of several columns of reports: a row for each cell, a column for each variable';
