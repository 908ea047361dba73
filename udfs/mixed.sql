-- `mechanisms` is a MAP from level to mechanism or, if their reports differ in type, a STRUCT with one field per level.
-- `kind` is `mechanisms` again: only its type matters.
CREATE OR REPLACE MACRO ldp._any
    (mechanisms, kind MAP(VARCHAR, VARCHAR)) AS map_values(mechanisms)[1],
    (mechanisms, kind) AS struct_extract_at(mechanisms, 1);

-- Counts of (level, report) pairs; they add up with ldp.merge.
CREATE OR REPLACE MACRO ldp.mixed_counts(report, level, keep := true) AS
    ldp.counts({'level': level, 'report': report}, keep := keep);

-- The order of a user's reports does not matter, so lists that differ only in order are counted together.
CREATE OR REPLACE MACRO ldp.repeated_counts(reports, keep := true) AS
    ldp.counts(list_sort(list_filter(reports, lambda z: z IS NOT NULL)), keep := keep);

COMMENT ON MACRO ldp.mixed_counts IS 'aggregate: the counts of the reports of each level, a MAP';
COMMENT ON MACRO ldp.repeated_counts IS 'aggregate: the counts of lists of reports, a MAP';
