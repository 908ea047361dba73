"""The maximum of the likelihood, with a certificate: each kind of step has its file, and `mle` chooses among them."""
