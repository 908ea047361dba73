"""Several columns of a row, each by its own mechanism: all of them, or one that is drawn at random, also known as SMP.

Nguyen, Xiao, Yang, Hui, Shin, Shin, "Collecting and analyzing data from smart device users with local differential privacy",
2016 (SMP); Arcolezi, Couchot, Al Bouna, Xiao, "Random sampling plus fake data", CIKM 2021, who compare it with other ways.
"""

from ldpsql.mechanisms import Mechanism, RowMechanism, hookimpl


class Row(RowMechanism):
    """A mechanism for each column of a row: all are drawn independently, and their epsilons add up.

    Values and reports are structs with the names of the columns. Reports that were drawn column by column are reports of the
    row, too. Their joint table is estimated with ``ldp.ibu({city: city, age: age}, m)``.

    >>> from ldpsql.registry.registry import registry
    >>> person = registry().mechanism("row(city=krr(1, ['Lima', 'Oslo']), adult=krr(0.5, [false, true]))")
    >>> str(person.claim()), person.values().texts[0]
    ('1.5-LDP', "{'city': 'Lima', 'adult': 'false'}")
    """

    name = "row"


class OneOf(RowMechanism):
    """One column of each row, drawn at random, by its own mechanism; the others are NULL, and epsilon is the largest of theirs.

    For many columns whose shares are wanted column by column. Reports say nothing about columns together: estimate each column
    with its own mechanism, which leaves NULL out.

    >>> from ldpsql.registry.registry import registry
    >>> person = registry().mechanism("one_of(city=krr(2, ['Lima', 'Oslo']), adult=krr(2, [false, true]))")
    >>> str(person.claim())
    '2-LDP'
    """

    name = "one_of"
    single = True


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer reports of all columns of a row, and of one of them."""
    return [Row, OneOf]
