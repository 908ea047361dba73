-- How many reports of each group support each value; a report that the mechanism cannot draw supports none.
WITH alphabet AS (SELECT * FROM (VALUES {values}) AS t(place, value)),
counts AS (
    SELECT {keys}{column} AS report, CAST({count} AS DOUBLE) AS n FROM {table} WHERE NOT {column} IS NULL GROUP BY {keys}{column}
),
checked AS (SELECT *, CASE WHEN {possible} THEN n ELSE 0 END AS counted FROM counts),
shares AS (
    SELECT {keys}value, place, SUM(CASE WHEN {supported} THEN counted ELSE 0 END) AS n, SUM(n - counted) AS impossible,
        SUM(counted) AS total
    FROM checked CROSS JOIN alphabet GROUP BY {keys}value, place
),
