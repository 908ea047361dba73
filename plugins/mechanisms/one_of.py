"""One column of each row, drawn at random, with all of epsilon; also known as SMP.

Nguyen, Xiao, Yang, Hui, Shin, Shin, "Collecting and analyzing data from smart device users with local differential privacy",
2016; Arcolezi, Couchot, Al Bouna, Xiao, "Random sampling plus fake data", CIKM 2021, who compare it with other ways.
"""

from ldpsql.mechanisms import Mechanism, RowMechanism, hookimpl


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
    """Offer reports of one column of a row."""
    return [OneOf]
