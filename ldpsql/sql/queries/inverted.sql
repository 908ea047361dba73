    inverted, inverted_error AS inverted_std_error,
    LEAST(GREATEST(LEAST(begins, 1 - inverted_kept), 0), inverted) AS inverted_low,
    GREATEST(LEAST(GREATEST(ends, inverted_kept), 1), inverted) AS inverted_high,
    total AS reports, impossible
FROM {last} ORDER BY {keys}place
