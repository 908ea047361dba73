"""The laws: statements that every mechanism, estimator and road obeys, checked over the registry by public names only.

``subjects`` lists a small mechanism of each class; its reports are enumerated with their exact probabilities by
`ldpsql.testing.enumerated`, so that a law compares the product with what follows from the definitions, and draws nothing.

* ``test_privacy``: certificates, samplers and the central epsilon of shuffled reports.
* ``test_estimates``: what an estimate is of expected counts, of merged counts, of permuted values, of several groups.
* ``test_intervals``: standard errors are exact moments, and intervals cover as often as they say.
* ``test_roads``: SQL, Python, counts and the command line give the same answer, and refuse the same reports.
* ``test_ledger``: windows, policies and processes.
"""
