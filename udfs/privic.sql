-- The first mechanism: made for the uniform prior unless one is given, with the paper's number of steps.
CREATE OR REPLACE MACRO ldp.privic_start
    (beta, "domain", "prior" := NULL, iterations := 5, mixing := 0, "columns" := NULL, side := 1, distances := NULL,
     "nulls" := NULL, outside := NULL) AS
    ldp.blahut_arimoto(beta, "domain", __ldp_prior("prior", len("domain")), iterations := iterations, mixing := mixing,
        "columns" := "columns", side := side, distances := distances, "nulls" := "nulls", outside := outside);

-- The mechanism, a STRUCT, travels inside the list, not as a capture of the lambda, so that it may be a subquery.
CREATE OR REPLACE MACRO ldp._step(m, found) AS list_transform([{'m': m, 'found': found}], lambda s:
    CASE WHEN s['found'] IS NOT NULL THEN struct_concat(
        struct_update(s['found'], theta := list_transform(list_zip(s['m']['domain'], s['found']['theta']),
            lambda p: {'value': p[1], 'estimate': p[2]})),
        struct_pack("next" := struct_update(s['m'], "prior" := s['found']['theta'])))
    END
)[1];
-- An aggregate over one row a cycle; IBU starts, and the next mechanism follows, from the latest.
CREATE OR REPLACE MACRO ldp.privic_step_pooled(counts, m, "cycle", stop := 5) AS ldp._step(
    arg_max(m, "cycle"),
    __ldp_privic(list(counts ORDER BY "cycle"), list(__ldp_mechanism(m) ORDER BY "cycle"), stop::VARCHAR)
);

COMMENT ON MACRO ldp.privic_start IS 'the mechanism of the first cycle of PRIVIC';
COMMENT ON MACRO ldp.privic_step_pooled IS 'aggregate: the same from the counts of all cycles together, one row a cycle';
