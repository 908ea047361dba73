-- A dbt model: one row of counts a day. Days that are there stay as they are; only new reports are read.
{{ config(materialized='incremental', unique_key='day') }}

SELECT day, ldp.counts(city) AS counts
FROM {{ ref('reports') }}
{% if is_incremental() %}
WHERE day > (SELECT max(day) FROM {{ this }})
{% endif %}
GROUP BY day
