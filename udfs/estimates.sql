-- p and q are lists of shares, or estimates as ldp.ibu and the other estimators return them. Their values are one unit apart
-- unless a mechanism defines their distances.
CREATE OR REPLACE MACRO ldp._maybe(m) AS CASE WHEN m IS NULL THEN NULL ELSE __ldp_mechanism(m) END;
CREATE OR REPLACE MACRO ldp.distance_between(p, q, metric := 'total_variation', m := NULL, power := 1) AS
    __ldp_distance(p, q, metric, ldp._maybe(m), power);

COMMENT ON MACRO ldp.distance_between IS 'how far two distributions are apart: lists of shares, or estimates; metric is one of total_variation, js_divergence (nats), mse, mae, emd and wasserstein; with m, emd and wasserstein measure in the distances of its values';

-- `shares` is an estimate: a table, a view or a CTE with a column `estimate`. Only its other columns are kept.
CREATE OR REPLACE MACRO ldp.synthesize(shares, "rows") AS TABLE
    WITH "ldp cells" AS MATERIALIZED (SELECT row_number() OVER () AS "ldp cell", t AS "ldp row" FROM query(__ldp_reading(shares, ldp._here())) AS t),
    "ldp drawn" AS (
        SELECT unnest(__ldp_synthesized(list("ldp row" ORDER BY "ldp cell"), "rows")) AS "ldp cell" FROM "ldp cells"
    )
    SELECT COLUMNS(lambda c: lower(c) NOT IN ('estimate', 'std_error', 'low', 'high', 'n')) FROM (
        SELECT unnest("ldp row") FROM "ldp drawn" JOIN "ldp cells" USING ("ldp cell")
    );

COMMENT ON MACRO TABLE ldp.synthesize IS 'rows that are drawn from an estimate, for tools that need rows; they spend no epsilon';

-- An aggregate over the counts of groups. `pooled`, the counts of all groups, is passed if the rows are only some of the groups.
CREATE OR REPLACE MACRO ldp.prior(counts, m, estimator := 'shared', pooled := NULL) AS __ldp_learn(
    list(counts), pooled, any_value(__ldp_ask('estimate', m, typeof(counts), estimator, NULL, NULL))
);

COMMENT ON MACRO ldp.prior IS 'aggregate over the counts of groups: what these have in common, for prior := of the estimator shared';
