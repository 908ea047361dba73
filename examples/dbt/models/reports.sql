-- Every person's city is perturbed once, in the run that first sees the person, and charged to the ledger in that run.
{{ config(
    materialized='incremental',
    unique_key='person_id',
    full_refresh=false,
    meta={'ldp': {'dataset': 'new_people', 'columns': {'city': 'city'}}}
) }}

select person_id, region, ldp.perturb(city, ldp.m.city()) as city
from {{ ref('new_people') }}
order by random()
