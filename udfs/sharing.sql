-- An aggregate over the counts of groups. `pooled`, the counts of all groups, is passed if the rows are only some of the groups.
CREATE OR REPLACE MACRO ldp.prior(counts, m, estimator := 'shared', pooled := NULL) AS __ldp_learn(
    list(ldp._compared(counts, m)), pooled, ldp._learner(estimator, m)
);

COMMENT ON MACRO ldp.prior IS 'aggregate over the counts of groups: what these have in common, for prior := of the estimator shared';
