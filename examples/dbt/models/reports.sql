-- Every person's city is perturbed once, in the run that first sees the person.
{{ config(materialized='incremental') }}

select person_id, region, ldp.perturb(city, ldp.m.city()) as city
from {{ ref('people') }}
{% if is_incremental() %}
where person_id > (select max(person_id) from {{ this }})
{% endif %}
