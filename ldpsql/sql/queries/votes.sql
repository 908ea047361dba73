-- A report of the value votes for it with the chance {spread} + {lift}, another one with {spread}: what is nearest to the inversion.
falling AS (
    SELECT {keys}value, place, impossible, total, n / total AS s,
        CAST(ROW_NUMBER() OVER ({partition} ORDER BY n DESC, place) AS DOUBLE) AS m,
        SUM(n / total) OVER ({partition} ORDER BY n DESC, place ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS above
    FROM shares WHERE NOT place IS NULL AND total > 0
),
last_ones AS (
    SELECT *,{last_filled}
        MAX(CASE WHEN (s - {spread}) / {lift} > ((above - m * {spread}) / {lift} - 1) / m THEN m END)
            OVER ({partition}) AS last_near
    FROM falling
),
levels AS (
    SELECT *,{scale}
        MAX(CASE WHEN m = last_near THEN ((above - m * {spread}) / {lift} - 1) / m END) OVER ({partition}) AS shift
    FROM last_ones
),
unscaled AS (
    SELECT *, (s - {spread}) / {lift} AS inverted,{filled}
        CASE WHEN m <= last_near THEN (s - {spread}) / {lift} - shift ELSE 0 END AS near
    FROM levels
),
estimates AS (
    SELECT *,{likeliest} near / SUM(near) OVER ({partition}) AS inside FROM unscaled
),
errors AS (
    SELECT *,{likeliest_error}
        SQRT(({spread} + {lift} * inside) * (1 - {spread} - {lift} * inside) / total) / {lift} AS inverted_error,
        (s + {z} * {z} / (2 * total)) / (1 + {z} * {z} / total) AS middle,
        {z} * SQRT(GREATEST(s * (1 - s), 0) / total + {z} * {z} / (4 * total * total)) / (1 + {z} * {z} / total) AS reach
    FROM estimates
),
kept AS (
    SELECT *,{likeliest_kept} GREATEST(reach / {lift}, {z} * inverted_error) / 2 AS inverted_kept,
        (middle - reach - {spread}) / {lift} AS begins, (middle + reach - {spread}) / {lift} AS ends
    FROM errors
)
SELECT {keys}value,{likeliest_columns}
