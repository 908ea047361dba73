-- `size` is how many numbers, dates or times in order there are, or cells of a grid with `width` cells to a row.
CREATE OR REPLACE MACRO ldp.recommend(reports, size, epsilons := [0.5, 1, 2, 4], question := 'mean', width := NULL) AS TABLE
    SELECT unnest(__ldp_recommended(question, try_cast(reports AS BIGINT), try_cast(size AS BIGINT), epsilons::VARCHAR[], try_cast(width AS BIGINT)), recursive := true);

COMMENT ON MACRO TABLE ldp.recommend IS 'mechanisms for numbers by question (mean, distribution, ranges, quantiles), or for rectangles of a grid: their expected errors, and which one is recommended';
