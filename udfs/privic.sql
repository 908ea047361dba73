-- The first mechanism, for the uniform prior by default, with the paper's number of iterations.
CREATE OR REPLACE MACRO ldp.privic_start
    (beta, "domain", "prior" := NULL, iterations := 5, mixing := 0, "columns" := NULL, side := 1, distances := NULL,
     "nulls" := NULL, outside := NULL) AS
    ldp.blahut_arimoto(beta, "domain", __ldp_prior("prior", len("domain")), iterations := iterations, mixing := mixing,
        "columns" := "columns", side := side, distances := distances, "nulls" := "nulls", outside := outside);

-- The mechanism, a STRUCT, is part of the list, not a capture of the lambda, so that it may be a subquery.
CREATE OR REPLACE MACRO ldp._step(m, result) AS list_transform([{'m': m, 'result': result}], lambda s:
    CASE WHEN s['result'] IS NOT NULL THEN struct_concat(
        struct_update(s['result'], theta := list_transform(list_zip(s['m']['domain'], s['result']['theta']),
            lambda p: {'value': p[1], 'estimate': p[2]})),
        struct_pack("next" := struct_update(s['m'], "prior" := s['result']['theta'])))
    END
)[1];
CREATE OR REPLACE MACRO ldp._step_of(counts, m, stop) AS
    ldp._step(ldp._struct(m), __ldp_privic([counts], [__ldp_mechanism(m)], stop::VARCHAR));
-- With cycles, an aggregate over one row of counts per cycle; IBU starts from the latest mechanism, and the next one has its parameters.
CREATE OR REPLACE MACRO ldp._step_of_cycles
    (report, m, stop, keep, "cycle" "NULL") AS ldp._step_of(
        CASE WHEN ldp._drew(ldp._record_of(report, report), m, m) THEN ldp._counted_by(report, keep) END, ldp._recorded(report, m, m), stop),
    (report, m, stop, keep, "cycle") AS ldp._step(
        arg_max(m, "cycle") FILTER (WHERE ldp._kept(keep)),
        __ldp_privic(list(ldp._compared(report, m) ORDER BY "cycle") FILTER (WHERE ldp._kept(keep)),
            list(__ldp_mechanism(m) ORDER BY "cycle") FILTER (WHERE ldp._kept(keep)), stop::VARCHAR)
    );
CREATE OR REPLACE MACRO ldp.privic_step(report, m := false, stop := 5, keep := true, "cycle" := NULL) AS
    ldp._step_of_cycles(report, m, stop, keep, "cycle");

COMMENT ON MACRO ldp.privic_start IS 'the mechanism of the first cycle of PRIVIC';
COMMENT ON MACRO ldp.privic_step IS 'aggregate: the estimate from the reports of a cycle, and the mechanism of the next cycle; with cycle, from the counts of all cycles together, one row per cycle';
