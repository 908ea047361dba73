-- `mechanisms` is a MAP from level to mechanism, or, where their reports differ in type, a STRUCT with one field a level.
-- `kind` is `mechanisms` once more: only its type is looked at.
CREATE OR REPLACE MACRO ldp._any
    (mechanisms, kind MAP(VARCHAR, VARCHAR)) AS map_values(mechanisms)[1],
    (mechanisms, kind) AS struct_extract_at(mechanisms, 1);

-- Counts of (level, report) pairs; they add up with ldp.merge.
CREATE OR REPLACE MACRO ldp.mixed_counts(report, level, keep := true) AS
    histogram({'level': level, 'report': report}) FILTER (WHERE try_cast(keep AS BOOLEAN));
CREATE OR REPLACE MACRO ldp.ibu_mixed(report, level, mechanisms, estimator := 'ibu', keep := true) AS
    ldp._rows(ldp._domain(ldp._any(mechanisms, mechanisms)),
              __ldp_estimate(ldp.mixed_counts(report, level, keep := keep), __ldp_mixed_plan(estimator, __ldp_mixture(mechanisms))));
CREATE OR REPLACE MACRO ldp.ibu_mixed_counts(counts, mechanisms, estimator := 'ibu') AS
    ldp._rows(ldp._domain(ldp._any(mechanisms, mechanisms)), __ldp_estimate(counts, __ldp_mixed_plan(estimator, __ldp_mixture(mechanisms))));
CREATE OR REPLACE MACRO ldp.diagnose_mixed(report, level, mechanisms, keep := true, estimator := 'ibu(misfit=''allow'')') AS
    ldp._diagnosis(ldp._domain(ldp._any(mechanisms, mechanisms)),
                   __ldp_diagnose(ldp.mixed_counts(report, level, keep := keep), __ldp_mixed_plan(estimator, __ldp_mixture(mechanisms))));

-- The order of a user's reports does not matter, so equal sets of them are counted together.
CREATE OR REPLACE MACRO ldp.repeated_counts(reports, keep := true) AS
    histogram(list_sort(list_filter(reports, lambda z: z IS NOT NULL))) FILTER (WHERE try_cast(keep AS BOOLEAN));
CREATE OR REPLACE MACRO ldp.ibu_repeated(reports, m, estimator := 'ibu', keep := true) AS
    ldp._rows(ldp._domain(m), __ldp_estimate(ldp.repeated_counts(reports, keep := keep),
                                           __ldp_repeated_plan(estimator, __ldp_mechanism(m))));
CREATE OR REPLACE MACRO ldp.ibu_repeated_counts(counts, m, estimator := 'ibu') AS
    ldp._rows(ldp._domain(m), __ldp_estimate(counts, __ldp_repeated_plan(estimator, __ldp_mechanism(m))));
CREATE OR REPLACE MACRO ldp.diagnose_repeated(reports, m, keep := true, estimator := 'ibu(misfit=''allow'')') AS
    ldp._diagnosis(ldp._domain(m), __ldp_diagnose(ldp.repeated_counts(reports, keep := keep),
                                                __ldp_repeated_plan(estimator, __ldp_mechanism(m))));

COMMENT ON MACRO ldp.mixed_counts IS 'aggregate: the counts of the reports of each level, a MAP';
COMMENT ON MACRO ldp.ibu_mixed IS 'aggregate: the estimate from reports that the mechanisms of several levels drew, by any estimator';
COMMENT ON MACRO ldp.ibu_mixed_counts IS 'the same from counts';
COMMENT ON MACRO ldp.diagnose_mixed IS 'aggregate: how far such an estimate can be trusted';
COMMENT ON MACRO ldp.repeated_counts IS 'aggregate: the counts of lists of reports, a MAP';
COMMENT ON MACRO ldp.ibu_repeated IS 'aggregate: the estimate from a list of reports of each user, by any estimator';
COMMENT ON MACRO ldp.ibu_repeated_counts IS 'the same from counts';
COMMENT ON MACRO ldp.diagnose_repeated IS 'aggregate: how far such an estimate can be trusted';
