select region
from {{ ref('shares') }}
group by region
having count(*) <> 4 or abs(sum(estimate) - 1) > 1e-9 or bool_or(estimate < low or estimate > high)
