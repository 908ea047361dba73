"""The maximum of the likelihood, with a certificate: `mle` chooses among the steps of `steps`."""
