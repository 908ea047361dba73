-- The helpers of every exported estimator; NAME is replaced by the name of the export. list_transform([value], lambda ...)[1]
-- gives a value a name: a parameter that appears twice in a macro would be computed twice.

-- The counts of the reports in the order of the alphabet; an impossible report is refused.
CREATE OR REPLACE MACRO NAME__counted(counts, alphabet) AS list_transform([counts], lambda c: CASE
    WHEN c IS NULL THEN NULL
    WHEN list_aggregate(list_transform(map_keys(c), lambda r: list_contains(alphabet, r)), 'bool_and')
    THEN list_transform(alphabet, lambda r: coalesce(map_extract(c, r)[1], 0)::DOUBLE)
    ELSE error('[LDP401] some reports cannot occur under this mechanism. Hint: check that these are its reports.')
END)[1];
CREATE OR REPLACE MACRO NAME__scaled(weights) AS list_transform([weights], lambda w:
    list_transform([list_sum(w)], lambda total: list_transform(w, lambda x: x / total))[1])[1];

-- Clip and normalise (INV-N); the nearest distribution in Euclidean distance (INV-P).
CREATE OR REPLACE MACRO NAME__clipped(v) AS NAME__scaled(list_transform(v, lambda x: greatest(x, 0.0::DOUBLE)));
CREATE OR REPLACE MACRO NAME__nearest(v) AS list_transform([v], lambda v: list_transform([list_reverse_sort(v)], lambda falling:
    list_transform([list_max(list_filter(range(1, len(falling) + 1), lambda m:
        falling[m] - (list_sum(falling[1:m]) - 1) / m > 0))], lambda last:
    list_transform([(list_sum(falling[1:last]) - 1) / last], lambda shift:
        NAME__scaled(list_transform(v, lambda x: greatest(x - shift, 0.0::DOUBLE)))
    )[1])[1])[1])[1];

-- Keep-or-spread, P(report | value) = spread + lift [report = value]: the maximum of the likelihood by water-filling.
CREATE OR REPLACE MACRO NAME__filled(s, lift, spread) AS list_transform([s], lambda s:
    list_transform([list_reverse_sort(s)], lambda falling:
    list_transform([list_max(list_filter(range(1, len(falling) + 1), lambda m:
        falling[m] > spread * list_sum(falling[1:m]) / (lift + m * spread)))], lambda last:
    list_transform([list_sum(falling[1:last]) / (lift + last * spread)], lambda scale:
        NAME__scaled(list_transform(s, lambda x: greatest((x / scale - spread) / lift, 0.0::DOUBLE)))
    )[1])[1])[1])[1];
-- Refuse reports that no distribution explains, by Agrawal's bound of the likelihood-ratio statistic at 1e-12.
CREATE OR REPLACE MACRO NAME__explained(s, n, lift, spread) AS list_transform([s], lambda s:
    list_transform([NAME__filled(s, lift, spread)], lambda best:
    list_transform([n * list_sum(list_transform(s, lambda x, i:
        CASE WHEN x > 0 THEN x * ln(x / (spread + lift * best[i])) ELSE 0.0::DOUBLE END))], lambda t:
        CASE WHEN t <= len(s) - 1 OR (len(s) - 1) * (1 + ln(t / (len(s) - 1))) - t >= ln(1e-12) THEN s
        ELSE error('[LDP305] these values were not drawn by this mechanism: no distribution explains them. Hint: was a raw column passed?')
        END)[1])[1])[1];
-- Standard errors of the inversion, and Wilson's intervals at z standard errors.
CREATE OR REPLACE MACRO NAME__rows(vals, theta, s, n, lift, spread, z) AS list_transform([theta], lambda theta:
    list_transform([NAME__nearest(theta)], lambda inside: list_transform(vals, lambda v, i:
        list_transform([spread + lift * inside[i]], lambda p:
        list_transform([s[i] + z * z / (2 * n)], lambda middle:
        list_transform([z * sqrt(s[i] * (1 - s[i]) / n + (z / (2 * n)) ** 2)], lambda reach:
        list_transform([sqrt(greatest(p * (1 - p), 0.0::DOUBLE) / n) / lift], lambda error:
        list_transform([greatest(reach / (1 + z * z / n) / lift, z * error) / 2], lambda kept: {  -- of an interval beyond [0, 1]
            'value': v,
            'estimate': theta[i],
            'std_error': error,
            'low': least(greatest(least(((middle - reach) / (1 + z * z / n) - spread) / lift, 1 - kept), 0), theta[i]),
            'high': greatest(least(greatest(((middle + reach) / (1 + z * z / n) - spread) / lift, kept), 1), theta[i])
        })[1])[1])[1])[1])[1]))[1])[1];

-- Steps of the iterative Bayesian update from the uniform distribution; s are the shares of the reports.
CREATE OR REPLACE MACRO NAME__stepped(channel_rows, channel_columns, s, steps) AS list_reduce(
    list_transform(range(steps), lambda i: []::DOUBLE[]),
    lambda theta, i: list_transform([list_transform(channel_columns, lambda a, z:
        CASE WHEN s[z] > 0 THEN s[z] / list_dot_product(theta, a) ELSE 0.0::DOUBLE END)], lambda w:
        NAME__scaled(list_transform(channel_rows, lambda a, x: theta[x] * list_dot_product(a, w))))[1],
    list_transform(channel_rows, lambda a: 1.0::DOUBLE / len(channel_rows)));
CREATE OR REPLACE MACRO NAME__shares(vals, theta) AS list_transform([theta], lambda theta:
    list_transform(vals, lambda v, i: {'value': v, 'estimate': theta[i]}))[1];
