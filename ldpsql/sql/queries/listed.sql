-- The cells of each group with the shares of their reports; the place is NULL for a report that the mechanism cannot draw.
WITH alphabet AS (SELECT * FROM (VALUES {values}) AS t(place, value)),
counts AS (
    SELECT {keys}{column} AS value, CAST({count} AS DOUBLE) AS n FROM {table} WHERE NOT {column} IS NULL GROUP BY {keys}{column}
),
cells AS (
    SELECT {keys}value, MAX(place) AS place, SUM(n) AS n FROM (
        SELECT {keys}value, n, CAST(NULL AS INT) AS place FROM counts
        UNION ALL
        SELECT {keys}value, CAST(0 AS DOUBLE) AS n, place FROM {groups}alphabet
    ) AS both_kinds GROUP BY {keys}value
),
shares AS (
    SELECT {keys}value, place, n, SUM(CASE WHEN place IS NULL THEN n ELSE 0 END) OVER ({partition}) AS impossible,
        SUM(CASE WHEN place IS NULL THEN 0 ELSE n END) OVER ({partition}) AS total
    FROM cells
),
