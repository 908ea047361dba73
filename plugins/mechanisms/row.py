"""Several columns of a row, each by its own mechanism, independently of each other."""

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


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer rows of several columns."""
    return [Row]
