
-- A report keeps its own type if SQL lists the reports; otherwise it is text.
CREATE OR REPLACE MACRO ldp.channel(m) AS TABLE
    SELECT ldp._domain(m)[cell.value] AS value,
           cast_to_type(cell.report, from_json('null', '' || __ldp_shown_type(typeof([m][1]), ldp._text(m)))) AS report,
           cell.exact, cell.probability
    FROM (SELECT unnest(__ldp_channel(__ldp_mechanism(m))) AS cell);

-- `prior` is a list with one number for each value of the domain.
CREATE OR REPLACE MACRO ldp.information(m, prior, beta := NULL) AS __ldp_information(__ldp_mechanism(m), prior,
    CASE WHEN beta IS NOT NULL THEN coalesce(try_cast(beta AS DOUBLE), 'nan') END);

CREATE OR REPLACE MACRO ldp.shuffled(m, reports, delta) AS
    __ldp_shuffled(__ldp_mechanism(m), try_cast(reports AS BIGINT), try_cast(delta AS DOUBLE));

CREATE OR REPLACE MACRO ldp.repeated_error(m, reports) AS __ldp_repeated_error(__ldp_mechanism(m), try_cast(reports AS DOUBLE));

COMMENT ON MACRO TABLE ldp.channel IS 'the probability of every report given every value, exact and rounded';
COMMENT ON MACRO ldp.information IS 'what one report reveals on average under a prior, in nats, and how far reports are from the values; with beta, the least information that this distortion allows';
COMMENT ON MACRO ldp.repeated_error IS 'bounds the error of identifying a value from many independent reports of it';
COMMENT ON MACRO ldp.shuffled IS 'the central epsilon of shuffled reports without ids, for a delta, with a lower bound';
