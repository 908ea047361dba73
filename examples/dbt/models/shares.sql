-- The share of every city in each region, estimated from the reports alone.
select region, unnest(ldp.ibu(city, ldp.m.city()), recursive := true)
from {{ ref('reports') }}
group by region
