-- Those whose city was never reported. Raw values: not for publication.
{{ config(materialized='view') }}

{% set reports = adapter.get_relation(this.database, this.schema, 'reports') %}
select person_id, region, city
from {{ ref('people') }}
{% if reports %}
where person_id not in (select person_id from {{ reports }})
{% endif %}
