-- An aggregate over the counts of groups. `pooled`, the counts of all groups, is passed if the rows are only some of the groups.
CREATE OR REPLACE MACRO ldp.prior(counts, m, estimator := 'shared', pooled := NULL) AS __ldp_learn(
    list(counts), pooled, any_value(__ldp_ask('estimate', m, typeof(counts), estimator, NULL, NULL))
);

COMMENT ON MACRO ldp.prior IS 'aggregate over the counts of groups: what these have in common, for prior := of the estimator shared';
