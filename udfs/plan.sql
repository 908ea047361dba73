-- `size` is how many numbers, dates or times in order there are, cells of a grid with `width` cells to a row, or values.
CREATE OR REPLACE MACRO ldp.recommend(reports, size, epsilons := [0.5, 1, 2, 4], question := 'mean', width := NULL, error := NULL) AS TABLE
    SELECT unnest(__ldp_recommended(question, try_cast(reports AS BIGINT), try_cast(size AS BIGINT), epsilons::VARCHAR[],
                                    try_cast(width AS DOUBLE), try_cast(error AS DOUBLE)), recursive := true);

COMMENT ON MACRO TABLE ldp.recommend IS 'mechanisms by question: their expected errors, or for an error the smallest epsilon or number of reports, and which one is recommended';

-- `columns` holds the number of values of each column; by default the table of all columns is asked for.
CREATE OR REPLACE MACRO ldp.plan("columns", reports, epsilon, tables := []::VARCHAR[][]) AS TABLE
    SELECT unnest(__ldp_plan_tables("columns", reports, epsilon::VARCHAR, tables), recursive := true);

COMMENT ON MACRO TABLE ldp.plan IS 'the expected error of tables of several columns for each way to spend one epsilon on a row, the best first';
