-- `size` is how many numbers, dates or times in order there are, or cells of a grid with `width` cells to a row.
CREATE OR REPLACE MACRO ldp.recommend(reports, size, epsilons := [0.5, 1, 2, 4], question := 'mean', width := NULL) AS TABLE
    SELECT unnest(__ldp_recommended(question, reports::BIGINT, size::BIGINT, epsilons::VARCHAR[], width::BIGINT), recursive := true);

COMMENT ON MACRO TABLE ldp.recommend IS 'mechanisms for numbers by question (mean, distribution, ranges, quantiles), or for rectangles of a grid: their expected errors, and which one is recommended';
