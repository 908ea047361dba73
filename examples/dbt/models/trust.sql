-- How far the estimates can be trusted.
select region, unnest(ldp.diagnose(city, ldp.m.city()))
from {{ ref('reports') }}
group by region
