-- p and q are lists of shares, or estimates as ldp.ibu and the other estimators return them. Their values are one unit apart
-- unless a mechanism defines their distances.
CREATE OR REPLACE MACRO ldp._maybe(m) AS CASE WHEN m IS NULL THEN NULL ELSE __ldp_mechanism(m) END;
CREATE OR REPLACE MACRO ldp.distance_between(p, q, metric := 'total_variation', m := NULL, power := 1) AS
    __ldp_distance(p, q, metric, ldp._maybe(m), power);

COMMENT ON MACRO ldp.distance_between IS 'how far two distributions are apart: lists of shares, or estimates; metric is one of total_variation, js_divergence (nats), mse, mae, emd and wasserstein; with m, emd and wasserstein measure in the distances of its values';
